//! What the sections about levels, timers and transactions say, sentence by sentence. The clock is turned by hand.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::sync::Arc;

use troupemq_codec::message::Message;
use troupemq_codec::request::{
    DeleteTopicInBroker, DeleteTopicInBrokerHeader, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK,
};
use troupemq_store::faults::{Op, hold_up};
use troupemq_store::{FlushMode, ManualClock};

use super::delivery_test::{NOW_MS, back, count, join, start};
use super::transaction_test::{GIVEN_UP, OPS, end, half, poll, produce_for};
use crate::testing::{Client, request, start_broker_at, stored, wait_for};

/// 4.4: what cannot be delivered any more is passed over.
#[test]
fn a_message_whose_topic_was_deleted_while_it_waited_holds_up_nothing_and_makes_no_topic() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let waits = ["DELAY\u{1}2\u{2}", "TIMER_DELAY_SEC\u{1}5\u{2}"];
    for (at, wait) in (0..).zip(waits) {
        for topic in ["Gone", "Stays"] {
            stored(&client.produce(topic, 0, &[at], wait));
        }
    }
    let delete = DeleteTopicInBrokerHeader { topic: "Gone".into() };
    assert_eq!(client.call(request::<DeleteTopicInBroker>(&delete)).code, 0);
    clock.advance_ms(5000);
    let mut come = [0, 1].map(|offset| wait_for(&mut client, "Stays", 0, offset).body[0]);
    come.sort_unstable();
    assert_eq!(come, [0, 1]);
    let broker = node.broker().unwrap();
    assert!(broker.directory.topic("Gone").is_none() && broker.queues.get("Gone", 0).is_none());
    node.stop_and_wait().expect("a clean stop");
}

/// 4.4: with a level the times are deleted before the message is stored.
#[test]
fn a_message_with_a_level_is_stored_without_its_times() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let times =
        "TIMER_DELAY_SEC\u{1}1\u{2}TIMER_DELAY_MS\u{1}1\u{2}TIMER_DELIVER_MS\u{1}1\u{2}KEYS\u{1}k\u{2}";
    stored(&client.produce("Late", 0, b"x", &format!("DELAY\u{1}2\u{2}{times}")));
    clock.advance_ms(5000);
    let message = wait_for(&mut client, "Late", 0, 0);
    for name in ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS"] {
        assert_eq!(message.properties.get(name), None, "{name}");
    }
    assert_eq!((message.properties.get("DELAY"), message.keys().next()), (Some("2"), Some("k")));
    assert!(node.broker().unwrap().queues.get("rmq_sys_wheel_timer", 0).is_none(), "it was no timer");
    node.stop_and_wait().expect("a clean stop");
}

/// 4.4: the setting has fewer levels after a restart; Java's broker would never look at the others again.
#[test]
fn what_waits_in_a_level_that_is_configured_no_more_comes_at_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for (topic, level) in [("Third", 3), ("Last", 18)] {
        stored(&client.produce(topic, 0, topic.as_bytes(), &format!("DELAY\u{1}{level}\u{2}")));
    }
    node.stop_and_wait().expect("a clean stop");
    let node = start_broker_at(&clock, dir.path(), |part| part.store.delay_levels = "1s 2s".to_owned());
    for (number, topic, delay_ms) in [(0, "Third", 10_000), (1, "Last", 7_200_000)] {
        clock.advance_to(NOW_MS + delay_ms - 1001);
        // A connection that was silent for long is closed.
        let mut client = Client::of(&node);
        stored(&client.produce("Probe", 0, b"x", "DELAY\u{1}1\u{2}"));
        clock.advance_ms(1000);
        // With this all levels were looked at with the time as it is now.
        wait_for(&mut client, "Probe", 0, number);
        assert_eq!(count(&mut client, topic, 0), 0, "{topic} is early");
        clock.advance_ms(1);
        let message = wait_for(&mut client, topic, 0, 0);
        assert_eq!(&message.body[..], topic.as_bytes());
    }
    node.stop_and_wait().expect("a clean stop");
}

/// 4.4: a retry that goes through a level has its retry topic as its real one.
#[test]
fn a_retry_waits_in_its_level_for_the_retry_topic() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let _member = join(&node, "Group");
    stored(&client.produce("Work", 3, b"x", "DELAY\u{1}1\u{2}"));
    clock.advance_ms(1000);
    let first = wait_for(&mut client, "Work", 3, 0);
    assert_eq!(client.call(back(&first, 0, (None, 475))).code, 0);
    clock.advance_ms(10_000);
    let again = wait_for(&mut client, "%RETRY%Group", 0, 0);
    let told = ["REAL_TOPIC", "REAL_QID", "DELAY", "RETRY_TOPIC"].map(|name| again.properties.get(name));
    assert_eq!(told, [Some("%RETRY%Group"), Some("0"), Some("3"), Some("Work")]);
    node.stop_and_wait().expect("a clean stop");
}

/// 4.4: what the disk confirms too late is stored all the same, so it is not delivered a second time.
#[test]
fn what_leaves_a_level_while_the_disk_is_slow_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start_broker_at(&clock, dir.path(), |part| part.store.flush = FlushMode::Sync);
    let mut client = Client::of(&node);
    stored(&client.produce("Late", 0, b"slow", "DELAY\u{1}1\u{2}"));
    let slow = hold_up(&dir.path().join("commitlog"), Op::Flush);
    clock.advance_ms(1000);
    assert_eq!(&wait_for(&mut client, "Late", 0, 0).body[..], b"slow");
    // Its delivery is answered when the time of the disk is over.
    clock.advance_ms(5000);
    stored(&client.produce("Late", 0, b"behind", "DELAY\u{1}1\u{2}WAIT\u{1}false\u{2}"));
    clock.advance_ms(1000);
    assert_eq!(&wait_for(&mut client, "Late", 0, 1).body[..], b"behind");
    drop(slow);
    assert_eq!(count(&mut client, "Late", 0), 2);
    node.stop_and_wait().expect("a clean stop");
}

/// 4.13: how a half message, its op message and what is delivered of it are stored.
#[test]
fn a_half_message_waits_as_a_plain_record_and_is_delivered_as_a_committed_one() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let ends = [("C", TRANSACTION_COMMIT), ("R", TRANSACTION_ROLLBACK)];
    let places = ends.map(|(id, _)| half(&mut client, id, "TAGS\u{1}A\u{2}"));
    let waiting = Message::decode_all(client.pull("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, "*").body).unwrap();
    for (half, id) in waiting.iter().zip(["C", "R"]) {
        assert_eq!((half.sys_flag & 12, half.queue_id), (0, 0), "no transaction, so it has a unit");
        let names = ["REAL_TOPIC", "REAL_QID", "TRAN_MSG", "__transactionId__"];
        let told = names.map(|name| half.properties.get(name));
        assert_eq!(told, [Some("Paid"), Some("1"), Some("true"), Some(id)]);
    }
    clock.advance_ms(777);
    for ((_, outcome), at) in ends.iter().zip(places) {
        assert_eq!(end(&mut client, at, *outcome).code, 0);
    }
    let delivered = wait_for(&mut client, "Paid", 1, 0);
    assert_eq!((delivered.sys_flag & 12, delivered.prepared_log_offset), (8, places[0].1));
    let born = |message: &Message| (message.born_timestamp_ms, message.born_host);
    assert_eq!((born(&delivered), &delivered.body), (born(&waiting[0]), &waiting[0].body));
    let given: Vec<_> = waiting[0].properties.iter().collect();
    assert_eq!(
        delivered.properties.iter().collect::<Vec<_>>(),
        given,
        "its properties are those it waited with"
    );
    for (offset, body) in [(0, "0,"), (1, "1,")] {
        let op = poll(&mut client, OPS, offset);
        assert_eq!((&op.body[..], op.queue_id), (body.as_bytes(), 0));
        assert_eq!(op.properties.get("TAGS"), Some("d"));
    }
    assert_eq!(count(&mut client, "Paid", 1), 1);
    node.stop_and_wait().expect("a clean stop");
}

/// 4.13: born longer ago than messages are kept, it goes to the topic of those that nobody decided.
#[test]
fn a_half_message_older_than_messages_are_kept_is_given_up_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let open = half(&mut Client::of(&node), "Old", "");
    clock.advance_ms(73 * 3_600_000);
    let mut producer = produce_for(&node, "Payers");
    let given_up = poll(&mut producer, GIVEN_UP, 0);
    assert_eq!((&given_up.body[..], given_up.properties.get("TRANSACTION_CHECK_TIMES")), (&b"Old"[..], None));
    assert_ne!(end(&mut producer, open, TRANSACTION_COMMIT).code, 0);
    let topic = node.broker().unwrap().directory.topic(GIVEN_UP).expect("it was made");
    let config = &topic.config;
    assert_eq!((config.read_queue_nums, config.write_queue_nums, config.perm), (1, 1, 6));
    node.stop_and_wait().expect("a clean stop");
}
