//! `troupemq store`: what it says of the folder of a broker, and what it makes anew.
//!
//! Invariants:
//! - the settings are those of the broker whose store it is.

use std::path::{Path, PathBuf};

use crate::daemon::{Daemon, done, failed, run, store};

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
