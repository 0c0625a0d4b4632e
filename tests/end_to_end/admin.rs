//! The commands of administration, as a person or a script uses them.
//!
//! Invariants:
//! - what a table says is what `--json` says; the exit code tells the class of a failure.

use crate::daemon::{Daemon, cells, done, failed, store};

#[test]
fn a_topic_is_made_listed_changed_and_deleted() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("topic create {flag} orders --queues 3"));
    assert_eq!(cells(&done(&format!("topic list {flag}"))), [["orders", "3", "rw", "1"]]);
    done(&format!("topic update {flag} orders --perm r --attribute +message.type=NORMAL"));
    let shown = done(&format!("topic show {flag} orders"));
    assert!(shown.contains("b: 3 queues to read, 3 to write, r, message.type=NORMAL"), "{shown}");
    let json = done(&format!("topic show {flag} orders --json"));
    assert_eq!(json.lines().count(), 1, "{json}");
    let json: serde_json::Value = serde_json::from_str(&json).expect("an object");
    assert_eq!(json["brokers"]["b"]["attributes"]["message.type"], "NORMAL", "{json}");
    assert_eq!(
        (json["queues"].as_array().map(Vec::len), &json["readers"]),
        (Some(3), &serde_json::json!([]))
    );
    let json = done(&format!("topic list {flag} --json --all"));
    assert!(
        json.lines().any(|line| line == r#"{"topic":"orders","queues":3,"perm":"r","brokers":1}"#),
        "{json}"
    );
    assert!(json.contains("TBW102"), "{json}");
    done(&format!("topic delete {flag} orders"));
    assert_eq!(done(&format!("topic list {flag}")), "topic  queues  perm  brokers\n");
}

#[test]
fn a_group_is_followed_reset_and_copied() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("topic create {flag} orders --queues 1"));
    done(&format!("produce {flag} -t orders --key k1 hello"));
    done(&format!("produce {flag} -t orders --key k2 again"));
    done(&format!("group create {flag} g --retries 3"));
    assert_eq!(done(&format!("consume {flag} -t orders --group g --count 1")), "hello\n");
    let list = done(&format!("group list {flag}"));
    let [line] = &cells(&list)[..] else { panic!("{list}") };
    // How many messages it has had a second depends on the second.
    let (rate, others) = (line[3].parse::<f64>(), [&line[..3], &line[4..]].concat());
    assert_eq!((others, rate.is_ok()), (vec!["g", "0", "1", "3"], true), "{list}");
    let progress = done(&format!("offset show {flag} g --topic orders"));
    assert_eq!(cells(&progress)[0][..6], ["orders", "b", "0", "1", "2", "1"]);
    assert_eq!(cells(&done(&format!("offset reset {flag} g orders --to latest"))), [["b", "0", "2"]]);
    assert_eq!(cells(&done(&format!("offset reset {flag} g orders --to 0:1"))), [["b", "0", "1"]]);
    done(&format!("group create {flag} copy"));
    done(&format!("offset clone {flag} g copy"));
    let copied = done(&format!("offset show {flag} copy --topic orders --json"));
    assert!(copied.contains(r#""committed":1"#), "{copied}");
    let nothing = failed(&format!("offset clone {flag} nobody copy"));
    assert_eq!(nothing.0, Some(5), "{nothing:?}");
    assert_eq!(failed(&format!("offset clone {flag} g copy --topic other")).0, Some(5));
    done(&format!("group update {flag} g --enabled false"));
    assert!(done(&format!("group show {flag} g")).starts_with("reads: no"));
    let json = done(&format!("group show {flag} g --json"));
    assert_eq!(json.lines().count(), 1, "{json}");
    assert!(json.starts_with(r#"{"group":"g","config":{"#) && json.contains(r#""members":[]"#), "{json}");
    assert!(json.contains(r#"{"topic":"orders","brokerName":"b","queueId":0,"committed":1,"#), "{json}");
    done(&format!("group delete {flag} g"));
    assert_eq!(failed(&format!("group show {flag} g")).0, Some(5));
    assert_eq!(failed(&format!("offset show {flag} g")).0, Some(5));
    let waiting = crate::daemon::run(&format!("consume {flag} -t nowhere --idle 1"), "");
    assert_eq!((waiting.code, &*waiting.stdout), (Some(0), ""));
    assert!(waiting.stderr.contains("nobody has this topic yet") && waiting.stderr.contains("nowhere"));
}

#[test]
fn messages_are_found_by_key_and_by_both_ids() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("topic create {flag} orders --queues 1"));
    done(&format!("produce {flag} -t orders --key k1 --tag new hello"));
    let found = done(&format!("message find {flag} orders --key k1 --since 1h"));
    let line = cells(&found).remove(0);
    assert_eq!(line[3..], ["b", "0", "0", "new", "hello"]);
    let shown = done(&format!("message show {flag} orders {}", line[0]));
    assert!(shown.ends_with("\nhello\n") && shown.contains("KEYS = k1"), "{shown}");
    let place =
        shown.lines().find_map(|line| line.strip_prefix("place         ")).expect("its place is shown");
    let place = place.split(' ').next().expect("a word");
    assert_eq!(done(&format!("message show {flag} orders {place}")), shown);
    assert_eq!(failed(&format!("message find {flag} orders --key k2")).0, Some(5));
    assert_eq!(failed(&format!("message show {flag} orders {}", "0".repeat(32))).0, Some(5));
}

#[test]
fn brokers_are_listed_and_a_setting_is_changed() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    let list = done(&format!("cluster list {flag}"));
    assert_eq!(cells(&list)[0][..3], ["DefaultCluster", "b", "0"]);
    assert!(done(&format!("cluster status {flag} b")).contains("bootTimestamp"));
    done(&format!("cluster config {flag} b maxMessageSize=5000"));
    assert_eq!(
        cells(&done(&format!("cluster config {flag} b maxMessageSize"))),
        [["maxMessageSize", "5000"]]
    );
    let (code, why) = failed(&format!("cluster config {flag} b maxMessageSize=1"));
    assert_eq!(code, Some(4));
    assert!(why.contains("maxMessageSize = 1 is out of bounds"), "{why}");
    let (code, why) = failed(&format!("cluster config {flag} b maxMesageSize=5000"));
    assert_eq!(code, Some(5));
    assert!(why.contains("broker b has no setting maxMesageSize, the nearest is maxMessageSize"), "{why}");
    let (code, why) = failed(&format!("cluster config {flag} b listenPort=1"));
    assert_eq!(code, Some(4));
    assert!(why.contains("listenPort cannot change while the broker runs"), "{why}");
    assert_eq!(failed(&format!("cluster status {flag} nobody")).0, Some(5));
}

#[test]
fn a_broker_is_closed_to_producers_and_opened_again() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("topic create {flag} orders --queues 3"));
    let perm = || cells(&done(&format!("topic list {flag}")))[0][2].to_owned();
    let (code, why) = failed(&format!("cluster deny-writes {flag} b"));
    assert_eq!((code, perm().as_str()), (Some(2), "rw"), "{why}");
    assert!(why.contains("producers would be kept away from broker b; say --yes"), "{why}");
    assert_eq!(failed(&format!("cluster deny-writes {flag} nobody --yes")).0, Some(5));
    let denied = done(&format!("cluster deny-writes {flag} b --yes"));
    let denied = cells(&denied).remove(0);
    assert_eq!((denied[2], perm().as_str()), ("r", "r"));
    let (_, why) = failed(&format!("produce {flag} -t orders hello"));
    assert!(why.contains("topic orders has no writable queue"), "{why}");
    let allowed = done(&format!("cluster allow-writes {flag} b --json"));
    let allowed: serde_json::Value = serde_json::from_str(&allowed).expect("an object");
    assert_eq!(allowed["topics"].to_string(), denied[1]);
    assert_eq!((allowed["perm"].as_str(), perm().as_str()), (Some("rw"), "rw"));
    done(&format!("produce {flag} -t orders hello"));
}

#[test]
fn a_name_that_no_topic_or_group_can_have_is_refused_at_once() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    for line in ["topic create * --queues 1", "consume --topic *", "produce -t * hello"] {
        let (code, why) = failed(&format!("{line} {flag}"));
        assert!(
            code == Some(1) && why.contains("'*' is not allowed in a name, only letters"),
            "{line}: {why}"
        );
    }
    let long = "g".repeat(256);
    for line in ["group create", "consume -t orders --group"] {
        let (code, why) = failed(&format!("{line} {long} {flag}"));
        let limit = "it has 256 characters, at most 255 are allowed";
        assert!(code == Some(1) && why.contains(limit), "{line}: {why}");
    }
}

#[test]
fn the_exit_code_tells_the_class_of_a_failure() {
    let (code, why) = failed("topic list -n 127.0.0.1:1");
    assert_eq!(code, Some(3));
    assert!(why.contains("127.0.0.1:1"), "{why}");
    assert_eq!(failed("topic").0, Some(2));
    let nonsense = ["topic create t --attribute nonsense", "produce -t t --property nonsense x"];
    let worse = ["offset reset g t --to begin", "consume -t t --from begin", "topic create t --perm x"];
    for line in nonsense.iter().chain(&worse) {
        let (code, why) = failed(&format!("{line} -n 127.0.0.1:1"));
        assert_eq!(code, Some(2), "a wrong flag is told before anybody is asked: {line}: {why}");
    }
    let (code, why) = failed("--listen 127.0.0.1:0 topic list");
    assert_eq!(code, Some(2));
    assert!(why.contains("belong behind"), "{why}");
    assert!(done("--log=off completions bash").contains("_troupemq"));
}

#[test]
fn timers_are_shown_while_the_broker_runs_and_when_it_does_not() {
    let (_folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("topic create {flag} orders --queues 1"));
    done(&format!("produce {flag} -t orders --delay-ms 3000000 later"));
    done(&format!("produce {flag} -t orders --delay-ms 86400000 tomorrow"));
    let waits = |arguments: &str| loop {
        // A timer stands on the wheel some milliseconds after its send.
        let shown = done(arguments);
        if cells(&shown)[0][1] == "2" {
            break shown;
        }
    };
    let shown = waits(&format!("timer {flag}"));
    assert_eq!(cells(&shown)[0][..2], ["b", "2"]);
    assert_eq!(cells(&done(&format!("timer {flag} b --by second"))).len(), 1);
    assert_eq!(cells(&done(&format!("timer {flag} --by minute"))).len(), 2);
    assert_eq!(cells(&done(&format!("timer {flag} --by topic"))), [["b", "orders", "2"]]);
    assert_eq!(failed(&format!("timer {flag} elsewhere")).0, Some(5));
    assert!(daemon.terminate().success());
    let folder = store.display();
    let json = done(&format!("timer --store-dir {folder} --json"));
    assert!(json.contains(r#""pending":2"#) && json.contains(r#""lagMs":0"#), "{json}");
    assert_eq!(cells(&done(&format!("timer --store-dir {folder} --by minute"))).len(), 2);
    assert_eq!(failed(&format!("timer --store-dir {folder}/config")).0, Some(5));
    assert_eq!(failed(&format!("timer --store-dir {folder} --by topic")).0, Some(2));
}
