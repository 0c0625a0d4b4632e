//! `troupemq store`: what it says of the folder of a broker, and what it makes anew.
//!
//! Invariants:
//! - the settings are those of the broker whose store it is.

use std::path::{Path, PathBuf};

use crate::daemon::{Daemon, cells, done, failed, run, store};

/// The files in a folder, with their lengths.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let entries = std::fs::read_dir(dir).expect("the folder is there").map(|entry| entry.expect("a file"));
    entries.map(|entry| (entry.path(), entry.metadata().expect("it is there").len())).collect()
}

#[test]
fn a_store_is_looked_at_and_made_anew_with_the_settings_of_its_broker() {
    let (folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let sent = run(&format!("produce {} -t lines --key k", daemon.flag()), "eins\nzwei\ndrei\n");
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    daemon.terminate();
    let settings = folder.path().join("broker.conf");
    let lines = std::fs::read_to_string(store.with_extension("conf")).expect("the broker has settings");
    std::fs::write(&settings, format!("storePathRootDir={}\n{lines}", store.display())).expect("writable");
    let config = format!("--config {}", settings.display());
    let checked = done(&format!("store check {config}"));
    assert!(checked.starts_with("3 records in ") && checked.lines().count() == 1, "{checked}");
    assert!(done(&format!("store dump {config} --count 1")).contains("lines"));

    let made = files(&store.join("index"));
    std::fs::remove_dir_all(store.join("index")).expect("the index can be removed");
    std::fs::remove_dir_all(store.join("consumequeue")).expect("the queues can be removed");
    assert!(done(&format!("store rebuild {config}")).starts_with("3 records read"));
    let again = files(&store.join("index"));
    assert_eq!((again.len(), again[0].1), (1, made[0].1), "{again:?}");
    assert_eq!(done(&format!("store check {config}")), checked);
}

#[test]
fn entries_of_the_index_and_tables_are_printed_for_people_and_programs() {
    let (_folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let flag = daemon.flag();
    let sent = run(&format!("produce {flag} -t lines --key k"), "eins\nzwei\ndrei\n");
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    done(&format!("group create {flag} readers --retries 3"));
    done(&format!("consume {flag} -t lines --group readers --from first --count 3"));
    daemon.terminate();
    let config = format!("--config {}", store.with_extension("conf").display());
    let dump = |what: &str| done(&format!("store dump {} {config} {what}", store.display()));
    let objects = |what: &str| -> Vec<serde_json::Value> {
        let text = dump(&format!("{what} --json"));
        text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
    };

    // Each message has its unique key and the one it was given.
    let entries = objects("--index");
    let numbers: Vec<_> = entries.iter().map(|entry| entry["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=6).map(Some).collect::<Vec<_>>());
    let records = objects("--count 3");
    let times = |object: &serde_json::Value| object["storeTimestampMs"].as_i64().expect("a time");
    for (record, entries) in records.iter().zip(entries.chunks(2)) {
        assert!(entries.iter().all(|entry| entry["logOffset"] == record["logOffset"]), "{entries:?}");
        assert!(entries.iter().all(|entry| (0..1_000).contains(&(times(record) - times(entry)))));
    }
    assert!(dump(&format!("--queue lines:{}", records[0]["queueId"])).starts_with("byte 0: "));
    let (code, why) = failed(&format!("store dump {} {config} --queue line:0", store.display()));
    assert!(code == Some(5) && why.contains("queue 0 of line has no units here"), "{code:?} {why}");
    let last = dump(&format!("--index --from {} --count 1", records[2]["logOffset"]));
    assert!(last.contains(" 5: hash ") && last.lines().count() == 1, "{last}");

    let tables = dump("--tables");
    let has = |begin: &str| tables.lines().any(|line| line.starts_with(begin));
    assert!(has("checkpoint logTimeMs ") && has("config/timercheck lastReadMs "), "{tables}");
    assert!(has("config/topics.json topicConfigTable lines {"), "{tables}");
    assert!(has("config/subscriptionGroup.json subscriptionGroupTable readers {"), "{tables}");
    let rows = objects("--tables");
    assert_eq!(rows.len(), tables.lines().count());
    let offsets = rows.iter().find(|row| row["key"] == "lines@readers").expect("offsets are committed");
    let offsets = offsets["value"].as_object().expect("offsets by queue").values();
    assert_eq!(offsets.filter_map(serde_json::Value::as_i64).sum::<i64>(), 3);
    assert_eq!(dump("--tables --count 2").lines().count(), 2);
}

#[test]
fn settings_that_cannot_be_taken_are_refused_before_the_store_is_looked_at() {
    let (folder, store) = store();
    let settings = folder.path().join("broker.conf");
    std::fs::write(&settings, "maxHashSlotNum=many\n").expect("the folder is writable");
    for command in ["check", "rebuild", "dump"] {
        let (code, said) =
            failed(&format!("store {command} {} --config {}", store.display(), settings.display()));
        assert!(code == Some(1) && said.contains("broker.conf:1: maxHashSlotNum"), "{code:?} {said}");
    }
    assert!(!store.try_exists().expect("the folder can be looked at"));
}

/// The times at which messages of a level are due follow from the levels of the broker.
#[test]
fn a_rebuild_keeps_the_levels_of_the_broker_and_has_its_next_start_enter_the_timers_anew() {
    let (folder, store) = store();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "messageDelayLevel=1s 7h\nmappedFileSizeCommitLog=1048576\n").expect("writable");
    let (store, file) = (store.display(), file.display());
    let start = || {
        let ports = "--listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0 --broker-name b";
        Daemon::spawn(&format!("{ports} --store-dir {store} --config {file}"))
    };
    let mut daemon = start();
    done(&format!("produce {} -t Later --delay-level 2 text", daemon.flag()));
    done(&format!("produce {} -t Later --delay-ms 3600000 text", daemon.flag()));
    assert!(daemon.terminate().success());
    let units = || done(&format!("store dump {store} --queue SCHEDULE_TOPIC_XXXX:1"));
    let before = units();
    assert!(before.contains("tags code 1"), "{before}");
    assert!(done(&format!("store rebuild {store} --config {file}")).starts_with("2 records read"));
    assert_eq!(units(), before);
    let daemon = start();
    // The timer stands on the wheel some milliseconds after the start.
    let waits = || cells(&done(&format!("timer {}", daemon.flag())))[0][1] == "1";
    assert!((0..1_000).any(|_| waits()), "the timer is entered anew");
}

#[test]
fn a_store_in_use_is_refused_by_name() {
    let (_folder, store) = store();
    let _daemon = Daemon::start(&store);
    for command in ["check", "rebuild", "dump"] {
        let (code, said) = failed(&format!("store {command} {}", store.display()));
        assert!(code == Some(7) && said.contains("is open in another process"), "{command}: {code:?} {said}");
    }
}

#[test]
fn a_start_that_fails_names_its_cause_and_its_exit_code_tells_the_class() {
    let (folder, store) = store();
    let start = |store: &Path, listen: &str| {
        let ports = format!("--listen {listen} --namesrv-listen 127.0.0.1:0");
        let ended = run(&format!("{ports} --store-dir {}", store.display()), "");
        (ended.code, ended.stderr)
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has one").to_string();
    let (code, said) = start(&store, &address);
    assert!(code == Some(6) && said.contains(&format!("cannot listen on {address}")), "{code:?} {said}");

    let daemon = Daemon::start(&store);
    let (code, said) = start(&store, "127.0.0.1:0");
    assert!(code == Some(7) && said.contains("is open in another process"), "{code:?} {said}");
    drop(daemon);

    let gap = folder.path().join("gap");
    std::fs::create_dir_all(gap.join("commitlog")).expect("writable");
    for start in [0, 2 << 20] {
        let segment = std::fs::File::create(gap.join("commitlog").join(format!("{start:020}")));
        segment.and_then(|file| file.set_len(1 << 20)).expect("writable");
    }
    let (code, said) = start(&gap, "127.0.0.1:0");
    assert!(code == Some(8) && said.contains("the segment before it is missing"), "{code:?} {said}");

    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").expect("writable");
    let (code, said) = start(&file, "127.0.0.1:0");
    assert!(code == Some(9) && said.contains(&file.display().to_string()), "{code:?} {said}");
}
