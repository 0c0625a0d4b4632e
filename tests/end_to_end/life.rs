//! The life of the daemon: start, work, stop, crash, start again.
//!
//! Invariants:
//! - what a producer was told is stored is there after any end of the process.

use crate::daemon::{Daemon, run, store, until};

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn lines_go_in_as_messages_and_come_out_as_lines() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    assert!(daemon.greeting[1].contains("produce") && daemon.greeting[2].contains("consume"));
    let flag = daemon.flag();
    let sent = run(&format!("produce {flag} -t lines --tag a --key k --json"), "eins\nzwei\ndrei\n");
    assert_eq!((sent.code, sent.stdout.lines().count()), (Some(0), 3), "{}", sent.stderr);
    let got = run(&format!("consume {flag} -t lines --count 3 --from first"), "");
    assert_eq!(sorted_lines(&got.stdout), ["drei", "eins", "zwei"], "{}", got.stderr);
    // The group's progress was committed: nothing comes twice, and another group gets all of it.
    let again = run(&format!("consume {flag} -t lines --idle 1"), "");
    assert_eq!(again.stdout, "", "{}", again.stderr);
    let other = run(&format!("consume {flag} -t lines --group other --count 3 --json"), "");
    for line in other.stdout.lines() {
        let message: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
        assert_eq!(
            (&message["tag"], &message["keys"][0], &message["topic"]),
            (&"a".into(), &"k".into(), &"lines".into())
        );
    }
    assert_eq!(other.stdout.lines().count(), 3, "{}", other.stderr);
}

#[test]
fn a_stop_by_either_signal_is_orderly_and_leaves_javas_folders() {
    for is_interrupt in [false, true] {
        let (_folder, store) = store();
        let mut daemon = Daemon::start(&store);
        let sent = run(&format!("produce {} -t t hello --key k", daemon.flag()), "");
        assert_eq!(sent.stdout, "sent 1 messages to t\n", "{}", sent.stderr);
        assert!(store.join("abort").is_file());
        let ended = if is_interrupt { daemon.interrupt() } else { daemon.terminate() };
        assert_eq!(ended.code(), Some(0));
        assert!(!store.join("abort").try_exists().expect("the store can be looked at"));
        for name in ["commitlog", "consumequeue", "index", "config", "checkpoint", "lock"] {
            assert!(store.join(name).try_exists().expect("the store can be looked at"), "{name}");
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let (_folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let lines: String = (0..500).map(|n| format!("line-{n:03}\n")).collect();
    let sent = run(&format!("produce {} -t t", daemon.flag()), &lines);
    assert_eq!(sent.stdout, "sent 500 messages to t\n", "{}", sent.stderr);
    daemon.kill();
    assert!(store.join("abort").is_file());
    let mut daemon = daemon.start_again(&store);
    let got = run(&format!("consume {} -t t --count 500", daemon.flag()), "");
    assert_eq!(sorted_lines(&got.stdout), lines.lines().collect::<Vec<_>>(), "{}", got.stderr);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn progress_and_topics_are_kept_over_a_restart() {
    let (_folder, store) = store();
    let mut daemon = Daemon::start(&store);
    run(&format!("produce {} -t t --count 10 before", daemon.flag()), "");
    let got = run(&format!("consume {} -t t --count 10", daemon.flag()), "");
    assert_eq!(got.stdout.lines().count(), 10, "{}", got.stderr);
    daemon.terminate();
    let daemon = daemon.start_again(&store);
    run(&format!("produce {} -t t --count 3 after", daemon.flag()), "");
    let got = run(&format!("consume {} -t t --count 3 --idle 60", daemon.flag()), "");
    assert_eq!(got.stdout, "after\nafter\nafter\n", "{}", got.stderr);
}

#[test]
fn name_servers_and_brokers_run_as_processes_of_their_own() {
    let (folder, _) = store();
    let mut name_servers: Vec<_> = (0..2).map(|_| Daemon::spawn("namesrv --listen 127.0.0.1:0")).collect();
    let list: Vec<_> =
        name_servers.iter().map(|one| one.name_server.expect("it is one").to_string()).collect();
    let flags = format!("--broker-name b --cluster C --flush sync --namesrv {}", list.join(";"));
    let dir = folder.path().join("one").display().to_string();
    let mut broker = Daemon::spawn(&format!("broker --listen 127.0.0.1:0 {flags} --store-dir {dir}"));
    for address in &list {
        let sent = run(&format!("produce -n {address} -t t hello"), "");
        assert_eq!(sent.stdout, "sent 1 messages to t\n", "{}", sent.stderr);
    }
    let got = run(&format!("consume -n {} -t t --count 2", list.join(";")), "");
    assert_eq!(got.stdout, "hello\nhello\n", "{}", got.stderr);
    assert_eq!(broker.terminate().code(), Some(0));
    name_servers.iter_mut().for_each(|one| assert_eq!(one.terminate().code(), Some(0)));
}

#[test]
fn a_load_is_measured_and_told_as_json() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flags =
        format!("{} --seconds 2 --warmup 0 --connections 2 --depth 4 --size 100 --json", daemon.flag());
    for (load, form) in [("send", "json"), ("send", "binary"), ("pull", "json")] {
        let report = loaded(&format!("bench {load} {flags} --rate 2000 --header {form}"));
        assert_eq!(report["load"], load, "{report}");
    }
}

/// What a load says that went well.
fn loaded(command: &str) -> serde_json::Value {
    let ended = run(command, "");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("the report is JSON");
    assert_eq!(report["refused"], 0, "{report}");
    // How many they are is up to the machine.
    assert!(report["messages"].as_u64().is_some_and(|count| count > 0), "{report}");
    report
}

/// How many messages stand in a topic.
fn stored_in(daemon: &Daemon, topic: &str) -> u64 {
    let shown = run(&format!("topic show {} {topic} --json", daemon.flag()), "");
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
    let queues = shown["queues"].as_array().expect("the topic has queues");
    queues.iter().filter_map(|queue| queue["maxOffset"].as_u64()).sum()
}

/// Waits until something is so.
fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(until(what, async || is_so()));
}

#[test]
fn a_load_of_delays_timers_and_transactions_comes_to_its_topic() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flags =
        format!("{} --seconds 2 --warmup 0 --connections 2 --depth 4 --size 100 --json", daemon.flag());
    let ways = [
        ("send by level", "--level 1"),
        ("send of timers", "--after 100"),
        ("transactions", "--transactions"),
    ];
    for ((name, way), form) in ways.into_iter().zip(["json", "binary", "json"]) {
        let topic = name.replace(' ', "-");
        let report = loaded(&format!("bench send {way} {flags} --topic {topic} --rate 500 --header {form}"));
        assert_eq!(report["load"], name, "{report}");
        let sent = report["messages"].as_u64().expect("a number");
        await_that(name, || stored_in(&daemon, &topic) >= sent);
    }
    let open = run(&format!("tx list {} --json", daemon.flag()), "");
    assert_eq!((open.code, open.stdout.as_str()), (Some(0), ""), "each was committed");
}

/// How many timers wait, and how many are not on the wheel yet.
fn timers(daemon: &Daemon) -> (i64, i64) {
    let shown = run(&format!("timer {} --json", daemon.flag()), "");
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
    (shown["pending"].as_i64().expect("a number"), shown["behind"].as_i64().expect("a number"))
}

/// `benches/large` does it with a million.
#[test]
fn many_timers_survive_a_kill_each_of_them_and_take_little_memory() {
    let (_folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let flags = "--seconds 2 --warmup 0 --size 10 --json --after 86400000 --topic timed";
    let sent = loaded(&format!("bench send {} {flags}", daemon.flag()))["messages"].as_i64();
    await_that("all are on the wheel", || timers(&daemon).1 == 0);
    let (pending, _) = timers(&daemon);
    assert!(Some(pending) >= sent, "{pending} of {sent:?}");
    daemon.kill();
    let daemon = daemon.start_again(&store);
    await_that("all are on the wheel again", || timers(&daemon) == (pending, 0));
    let own = daemon.own_bytes();
    assert!(own < 200 << 20, "{own} bytes for {pending} timers");
}
