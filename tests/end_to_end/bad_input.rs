//! What the program says when it is asked for something that cannot be.
//!
//! Invariants:
//! - a refusal names the file, key or address and the reason, on standard error; its exit code tells the class.

use std::net::TcpListener;

use crate::daemon::{Daemon, refused, run, silent_address, store};

#[test]
fn an_unknown_setting_is_refused_with_the_nearest_one() {
    let (folder, store) = store();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "brokerName=b\nflushDiskTipe=SYNC_FLUSH\n").expect("the folder is writable");
    let ended = refused(&format!("--config {} --store-dir {}", file.display(), store.display()));
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("broker.conf:2") && ended.stderr.contains("\"flushDiskType\""),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_port_in_use_is_named_and_the_store_is_not_touched() {
    let (_folder, store) = store();
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("it is bound");
    let dir = store.display();
    let ended = refused(&format!("--listen {address} --namesrv-listen 127.0.0.1:0 --store-dir {dir}"));
    assert_eq!(ended.code, Some(6));
    assert!(ended.stderr.contains(&format!("cannot listen on {address}")), "{}", ended.stderr);
    assert!(!store.try_exists().expect("the folder can be looked at"));
}

#[test]
fn two_processes_never_share_a_store() {
    let (_folder, store) = store();
    let _first = Daemon::start(&store);
    let dir = store.display();
    let ended = refused(&format!("--listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0 --store-dir {dir}"));
    assert_eq!(ended.code, Some(7));
    assert!(ended.stderr.contains(&format!("{dir} is open in another process")), "{}", ended.stderr);
}

#[test]
fn a_command_without_a_cluster_says_where_it_looked() {
    let (_kept, address) = silent_address();
    let ended = run(&format!("produce -n {address} -t t hello"), "");
    assert_eq!(ended.code, Some(3));
    assert!(ended.stderr.contains(&format!("cannot connect to {address}")), "{}", ended.stderr);
}

#[test]
fn a_refusal_of_the_broker_keeps_its_code_and_words() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let ended = run(&format!("produce {} -t SCHEDULE_TOPIC_XXXX hello", daemon.flag()), "");
    assert_eq!(ended.code, Some(4));
    assert!(
        ended.stderr.contains("refused SEND_MESSAGE_V2") || ended.stderr.contains("SCHEDULE_TOPIC_XXXX"),
        "{}",
        ended.stderr
    );
    let ended = run(&format!("produce {} -t bad!name hello", daemon.flag()), "");
    assert!(ended.code == Some(1) && ended.stderr.contains("'!' is not allowed"), "{}", ended.stderr);
}

#[test]
fn a_wrong_flag_is_exit_code_two() {
    assert_eq!(run("produce --no-such-flag", "").code, Some(2));
    assert_eq!(run("--flush sometimes", "").code, Some(2));
}

#[test]
fn a_log_that_shall_lie_elsewhere_than_in_its_store_is_no_reason_to_begin_another() {
    let (folder, store) = store();
    let file = folder.path().join("broker.conf");
    let elsewhere = folder.path().join("disk2").join("commitlog");
    std::fs::write(&file, format!("brokerName=b\nstorePathCommitLog={}\n", elsewhere.display()))
        .expect("writable");
    let ended = refused(&format!("--config {} --store-dir {}", file.display(), store.display()));
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
    let expected =
        format!("{}:2: storePathCommitLog = {} cannot be kept", file.display(), elsewhere.display());
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    assert!(
        ended.stderr.contains(&format!("here {}", store.join("commitlog").display())),
        "{}",
        ended.stderr
    );
    assert!(!store.try_exists().expect("readable"), "no store was begun");
}
