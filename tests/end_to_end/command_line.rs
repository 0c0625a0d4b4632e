//! The program as a person at a terminal or a script meets it: help, completions, input and output of commands.
//!
//! Invariants:
//! - with `--json`, every line that is printed is an object.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::client_trouble::knows;
use crate::daemon::{Daemon, done, run, store, unheard};
use crate::proxy::Behind;
use crate::waiting::{give_up, leave_open};

/// Each kind of load, as little as it can be.
pub(crate) const LOADS: [&str; 3] = [
    "bench send --rate 100 --seconds 1 --warmup 0",
    "bench pull --rate 100 --seconds 1 --warmup 0",
    "bench ramp --from 100 --seconds 1 --warmup 0 --p99-max-ms 0",
];

/// Every line as the object that it is.
fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no object: {line}")))
        .collect()
}

/// The commands that a help lists.
fn listed(help: &str) -> Vec<String> {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

/// Whether a line of a help is about a flag, and not one of a list.
fn is_flag(line: &str) -> bool {
    line.starts_with('-') && !line.starts_with("- ")
}

/// Text that no compression makes shorter than three quarters of it.
fn noise(bytes: usize) -> String {
    let mut state = 1_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + u8::try_from(state >> 26).expect("6 bits"))
    };
    (0..bytes).map(|_| letter()).collect()
}

/// Every command that has no further ones below it, with its help.
fn commands() -> Vec<(String, String)> {
    let mut open: Vec<String> = listed(&done("--help"));
    let mut all = Vec::new();
    while let Some(command) = open.pop() {
        let help = done(&format!("{command} --help"));
        let below = listed(&help);
        if below.is_empty() {
            all.push((command, help));
            continue;
        }
        open.extend(below.into_iter().map(|name| format!("{command} {name}")));
    }
    all
}

/// What each command that speaks JSON is asked, and how many objects it must print at least. `@` stands for the flag
/// that names the name server; the order is such that each finds what it asks for.
const ASKED: [(&str, &str, usize); 39] = [
    ("topic create", "@ made --queues 1", 0),
    ("topic update", "@ made --perm r", 0),
    ("topic list", "@", 3),
    ("topic show", "@ orders", 1),
    ("produce", "@ -t orders --key k2 --count 2 x", 2),
    ("consume", "@ -t orders --count 1", 1),
    ("group create", "@ made --retries 3", 0),
    ("group update", "@ made --retries 4", 0),
    ("group list", "@", 2),
    ("group show", "@ readers", 1),
    ("offset show", "@ troupemq-consume", 1),
    ("offset reset", "@ made orders --to latest", 1),
    ("offset clone", "@ made readers", 0),
    ("message find", "@ orders --key k1", 1),
    ("message show", "@ orders ID", 1),
    ("cluster list", "@", 1),
    ("cluster status", "@ b", 10),
    ("cluster config", "@ b", 10),
    ("cluster deny-writes", "@ b --yes", 1),
    ("cluster allow-writes", "@ b", 1),
    ("timer", "@", 1),
    ("dlq list", "@", 1),
    ("dlq show", "@ readers", 1),
    ("dlq resend", "@ readers", 1),
    ("dlq purge", "@ readers --yes", 0),
    ("tx list", "@", 2),
    ("tx resume", "@ T1", 0),
    ("tx drop", "@ T2", 0),
    ("bench send", "@ --rate 100 --seconds 1 --warmup 0", 1),
    ("bench pull", "@ --rate 100 --seconds 1 --warmup 0", 1),
    ("bench ramp", "@ --from 100 --seconds 1 --warmup 0 --p99-max-ms 0", 2),
    ("group delete", "@ made", 0),
    ("topic delete", "@ made", 0),
    ("config show", "", 70),
    ("config check", "--log=off FILE", 1),
    ("config explain", "maxMessageSize", 1),
    ("store check", "DIR", 1),
    ("store dump", "DIR", 3),
    ("store rebuild", "DIR", 1),
];

#[test]
fn with_json_every_command_prints_objects_and_nothing_else() {
    let (_folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let flag = daemon.flag();
    for topic in ["orders", "paid"] {
        done(&format!("topic create {flag} {topic} --queues 1"));
    }
    done(&format!("group create {flag} readers"));
    let sent = objects(&done(&format!("produce {flag} -t orders --key k1 --json hello")));
    let id = sent[0]["messageId"].as_str().expect("it has an id");
    give_up(&flag, "orders", "readers");
    for transaction in ["T1", "T2"] {
        leave_open(&flag, transaction);
    }
    let file = store.with_extension("conf").display().to_string();
    let dir = format!("{} --config {file}", store.display());
    let mut asked = BTreeSet::from(["doctor"]);
    for (command, arguments, least) in ASKED {
        if command.starts_with("store") && asked.insert("store") {
            assert!(daemon.terminate().success());
        }
        let arguments = arguments.replace('@', &flag).replace("ID", id).replace("FILE", &file);
        let told = objects(&done(&format!("{command} --json {}", arguments.replace("DIR", &dir))));
        assert!(told.len() >= least, "{command}: {told:?}");
        assert!(told.iter().all(Value::is_object), "{command}: {told:?}");
        asked.insert(command);
    }
    // Whether a machine is good enough is not for a test to say.
    let doctor = run(&format!("doctor --json --store-dir {}", store.display()), "");
    assert!(objects(&doctor.stdout).len() > 10, "{}", doctor.stderr);
    asked.remove("store");
    let commands = commands();
    let speaking = commands.iter().filter(|(_, help)| help.contains("--json")).map(|(name, _)| name.as_str());
    assert_eq!(speaking.collect::<BTreeSet<_>>(), asked, "each command with --json is asked here");
}

#[test]
fn every_command_has_a_help_that_says_what_each_flag_is_for() {
    let mut commands: Vec<String> = listed(&done("--help"));
    assert!(commands.len() > 15, "{commands:?}");
    let mut seen = 0;
    while let Some(command) = commands.pop() {
        let help = done(&format!("{command} --help"));
        let about = help.lines().next().unwrap_or_default();
        assert!(about.len() > 10 && !about.ends_with('.'), "{command}: {about:?}");
        assert!(help.contains("Usage: troupemq "), "{command}: {help}");
        let lines: Vec<&str> = help.lines().map(str::trim).collect();
        for (at, flag) in lines.iter().enumerate().filter(|(_, line)| is_flag(line)) {
            let beside = flag.split("  ").skip(1).any(|part| !part.trim().is_empty());
            let below = lines.get(at + 1).is_some_and(|line| !line.is_empty() && !is_flag(line));
            assert!(beside || below, "{command}: {flag} says nothing");
        }
        commands.extend(listed(&help).into_iter().map(|name| format!("{command} {name}")));
        seen += 1;
    }
    assert!(seen > 40, "{seen} commands");
}

#[test]
fn every_shell_gets_completions_with_every_command() {
    let commands = listed(&done("--help"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = done(&format!("--log=off completions {shell}"));
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell} knows no {command}");
        }
    }
}

#[test]
fn lines_without_a_body_are_counted_and_the_first_that_fails_is_named() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    let sent = run(&format!("produce {flag} -t lines --in-flight 1"), "one\n\ntwo\n");
    assert_eq!(sent.stdout, "sent 2 messages to lines, 1 empty lines passed over\n", "{}", sent.stderr);
    let long = noise(7 << 20);
    let failed = run(&format!("produce {flag} -t lines --in-flight 1"), &format!("one\n{long}\nthree\n"));
    assert_eq!(failed.stdout, "sent 1 messages to lines\n");
    assert!(failed.stderr.contains("line 2 was not sent"), "{}", failed.stderr);
    assert!(failed.code.is_some_and(|code| code != 0));
}

#[test]
fn what_the_commands_of_stores_and_settings_say_can_be_read_by_programs() {
    let (folder, store) = store();
    let mut daemon = Daemon::start(&store);
    done(&format!("topic create {} t --queues 1", daemon.flag()));
    done(&format!("produce {} -t t --key k hello", daemon.flag()));
    assert!(daemon.terminate().success());
    let dir = format!("{} --config {}", store.display(), store.with_extension("conf").display());
    let checked = objects(&done(&format!("store check {dir} --json")));
    assert!(checked[0]["records"].as_i64().is_some_and(|records| records >= 1), "{checked:?}");
    let dumped = objects(&done(&format!("store dump {dir} --json")));
    let record = dumped.iter().find(|record| record["topic"] == "t").expect("it is in the log");
    assert_eq!(record["bodySize"], 5);
    assert!(dumped.last().is_some_and(|end| end["why"].is_string()), "{dumped:?}");
    let units = objects(&done(&format!("store dump {dir} --queue t:0 --json")));
    assert_eq!(units[0]["logOffset"], record["logOffset"]);
    let rebuilt = objects(&done(&format!("store rebuild {dir} --json")));
    assert_eq!(rebuilt[0]["records"], checked[0]["records"]);
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "brokerName=b\nhaListenPort=10912\n").expect("the folder is writable");
    let right = objects(&done(&format!("--log=off config check {} --json", file.display())));
    assert_eq!(right[0]["settings"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_signed_with_the_credentials_of_a_file() {
    let behind = Behind::start(knows("operator", "the secret")).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("writable");
        file.display().to_string()
    };
    let good = file("tools.yml", "accessKey: operator\nsecretKey: the secret\n");
    let wrong = file("wrong.yml", "accessKey: operator\nsecretKey: a guess\n");
    let broken = file("broken.yml", "accessKey: operator\n");
    let names = behind.names();
    let asked = move |command: &str, credentials: &str| {
        run(&format!("{command} -n {names} --credentials {credentials}"), "")
    };
    let told = tokio::task::spawn_blocking(move || {
        let made = asked("topic create t --queues 1", &good);
        assert_eq!((made.code, &*made.stdout), (Some(0), "topic t is made\n"), "{}", made.stderr);
        let sent = asked("produce -t t hello", &good);
        assert_eq!((sent.code, &*sent.stdout), (Some(0), "sent 1 messages to t\n"), "{}", sent.stderr);
        for load in LOADS {
            let load = asked(&format!("{load} -t t --json"), &good);
            assert!(load.code == Some(0) && load.stdout.contains(r#""refused":0,"#), "{load:?}");
        }
        let refused = asked(&format!("{} -t t", LOADS[0]), &wrong);
        assert!(refused.stdout.contains("check signature failed"), "{refused:?}");
        let refused = asked("produce -t t hello", &wrong);
        assert!(refused.code == Some(4) && refused.stderr.contains("check signature failed"), "{refused:?}");
        let unread = asked("topic list", &broken);
        assert!(
            unread.code == Some(1) && unread.stderr.contains("broken.yml: it has no secretKey"),
            "{unread:?}"
        );
        let missing = asked("topic list", "/no/such.yml");
        assert!(
            missing.code == Some(1) && missing.stderr.contains("cannot read /no/such.yml"),
            "{missing:?}"
        );
    });
    told.await.expect("each command says what it should");
    behind.broker.shutdown().await.expect("it ends");
}

#[test]
fn flags_that_a_load_could_not_keep_are_refused() {
    assert_eq!(run("bench ramp --rate 100", "").code, Some(2));
    assert_eq!(run("bench send --messages 1", "").code, Some(2));
}

/// As in `troupemq topic list 2>&1 | head -0`.
#[test]
fn a_command_that_nobody_listens_to_ends_as_it_would_and_without_a_panic() {
    for (command, code) in [("--help", 0), ("completions bash", 0), ("--listen 127.0.0.1:0 topic list", 2)] {
        assert_eq!((run(command, "").code, unheard(command)), (Some(code), Some(code)), "{command}");
    }
}
