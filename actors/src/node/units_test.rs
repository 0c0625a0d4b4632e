//! Units of queues that a disk is slow to read, or cannot read, under a running node: they wait or are refused, the
//! others go on, and no thread that serves many waits with them.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::sync::Arc;

use troupemq_codec::request::{
    GetEarliestMsgStoretime, GetEarliestMsgStoretimeHeader, QueryConsumeQueue, QueryConsumeQueueHeader,
    QueryConsumerOffset, QueryConsumerOffsetHeader, SearchOffsetByTimestamp, SearchOffsetByTimestampHeader,
    TRANSACTION_COMMIT,
};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::ManualClock;
use troupemq_store::dispatch::SCHEDULE_TOPIC;
use troupemq_store::faults::{Op, arm, hold_up};
use troupemq_store::timer::TIMER_TOPIC;

use super::delivery_test::{NOW_MS, count, start};
use super::end_to_end_test::refused;
use super::transaction_test::{Question, end, half, produce_for};
use crate::config::{NodeClock, NodeConfig};
use crate::detour::HALF_TOPIC;
use crate::node::Node;
use crate::testing::{
    Client, block_on, evict, first_segment, queue_dir, request, small_broker, stored, until, wait_for,
};
use crate::timer::Report;
use crate::transaction::CountOpen;

fn level(level: i32) -> String {
    format!("DELAY\u{1}{level}\u{2}")
}

#[test]
fn a_level_whose_units_the_disk_is_slow_to_read_holds_up_no_other_and_goes_on_when_they_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let held = hold_up(&queue_dir(dir.path(), SCHEDULE_TOPIC, 0), Op::Read);
    stored(&client.produce("Late", 0, b"one", &level(1)));
    stored(&client.produce("Late", 1, b"five", &level(2)));
    until("the disk is asked for the units of the first level", || held.has_struck());
    clock.advance_ms(5_000);
    assert_eq!(&wait_for(&mut client, "Late", 1, 0).body[..], b"five");
    assert_eq!(count(&mut client, "Late", 0), 0, "its units are not there yet");
    drop(held);
    assert_eq!(&wait_for(&mut client, "Late", 0, 0).body[..], b"one");
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_level_whose_units_the_disk_cannot_read_holds_up_no_other_and_is_tried_again_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let broken = arm(&queue_dir(dir.path(), SCHEDULE_TOPIC, 0), Op::Read, 0, 5);
    for number in 0..3_u8 {
        stored(&client.produce("Late", 0, &[number], &level(1)));
    }
    stored(&client.produce("Late", 1, b"five", &level(2)));
    until("the disk refuses the units of the first level", || broken.has_struck());
    clock.advance_ms(5_000);
    assert_eq!(&wait_for(&mut client, "Late", 1, 0).body[..], b"five");
    assert_eq!(count(&mut client, "Late", 0), 0);
    drop(broken);
    until("they come", || {
        clock.advance_ms(1_000);
        count(&mut client, "Late", 0) == 3
    });
    for number in 0..3_u8 {
        let at = i64::from(number);
        assert_eq!(wait_for(&mut client, "Late", 0, at).body[..], [number], "in their order, each once");
    }
    stored(&client.produce("Late", 0, b"last", ""));
    assert_eq!(&wait_for(&mut client, "Late", 0, 3).body[..], b"last");
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn what_waits_in_levels_and_timers_is_delivered_after_a_start_that_finds_its_units_on_the_disk_only() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    // Three pages of units: a start looks at the first and the last one.
    for number in 0..600_u16 {
        stored(&client.produce("Late", 0, &number.to_be_bytes(), &level(3)));
        stored(&client.produce("Timed", 0, &number.to_be_bytes(), "TIMER_DELAY_MS\u{1}9000\u{2}"));
    }
    node.stop_and_wait().expect("a clean stop");
    evict(&queue_dir(dir.path(), SCHEDULE_TOPIC, 2));
    evict(&queue_dir(dir.path(), TIMER_TOPIC, 0));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    clock.advance_ms(10_000);
    let queues = node.broker().expect("a broker").queues.clone();
    for topic in ["Late", "Timed"] {
        until("all have come", || queues.get(topic, 0).is_some_and(|queue| queue.max_offset() == 600));
    }
    for at in [0, 299, 300, 599_u16] {
        let message = wait_for(&mut client, "Late", 0, i64::from(at));
        assert_eq!(message.body[..], at.to_be_bytes(), "in their order");
    }
    for topic in ["Late", "Timed"] {
        stored(&client.produce(topic, 0, b"last", ""));
        assert_eq!(&wait_for(&mut client, topic, 0, 600).body[..], b"last", "each came once");
    }
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn timers_whose_units_the_disk_is_slow_to_read_are_entered_when_they_are_there_and_their_actor_answers_meanwhile()
 {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let timer = node.broker().expect("a broker").timer.clone();
    let behind = || block_on(timer.send(Report)).expect("it lives").behind;
    let held = hold_up(&queue_dir(dir.path(), TIMER_TOPIC, 0), Op::Read);
    stored(&client.produce("Timed", 0, b"late", "TIMER_DELAY_MS\u{1}2000\u{2}"));
    until("the disk is asked for its unit", || held.has_struck());
    clock.advance_ms(5_000);
    assert_eq!(behind(), 1);
    stored(&client.produce("Timed", 1, b"now", ""));
    assert_eq!(&wait_for(&mut client, "Timed", 1, 0).body[..], b"now");
    assert_eq!(count(&mut client, "Timed", 0), 0);
    drop(held);
    assert_eq!(&wait_for(&mut client, "Timed", 0, 0).body[..], b"late");
    assert_eq!(behind(), 0);
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn timers_whose_units_the_disk_cannot_read_hold_up_none_that_is_entered_and_come_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let wait = "TIMER_DELAY_MS\u{1}2000\u{2}";
    let timer = node.broker().expect("a broker").timer.clone();
    stored(&client.produce("Timed", 0, b"entered", wait));
    let behind = || block_on(timer.send(Report)).expect("it lives").behind;
    until("the first is entered", || behind() == 0);
    let broken = arm(&queue_dir(dir.path(), TIMER_TOPIC, 0), Op::Read, 0, 5);
    stored(&client.produce("Timed", 0, b"unreadable", wait));
    until("the disk refuses its unit", || broken.has_struck());
    clock.advance_ms(5_000);
    assert_eq!(&wait_for(&mut client, "Timed", 0, 0).body[..], b"entered");
    assert_eq!((count(&mut client, "Timed", 0), behind()), (1, 1));
    drop(broken);
    until("it comes", || {
        clock.advance_ms(1_000);
        count(&mut client, "Timed", 0) == 2
    });
    assert_eq!(&wait_for(&mut client, "Timed", 0, 1).body[..], b"unreadable");
    node.stop_and_wait().expect("a clean stop");
}

/// Requests that look at units of a queue.
fn look_ups(topic: &str) -> Vec<Command> {
    let topic = Text::from(topic);
    vec![
        request::<SearchOffsetByTimestamp>(&SearchOffsetByTimestampHeader {
            topic: topic.clone(),
            queue_id: 0,
            timestamp_ms: NOW_MS,
            boundary: None,
        }),
        request::<GetEarliestMsgStoretime>(&GetEarliestMsgStoretimeHeader {
            topic: topic.clone(),
            queue_id: 0,
        }),
        request::<QueryConsumeQueue>(&QueryConsumeQueueHeader {
            topic: topic.clone(),
            units_max: 10,
            ..QueryConsumeQueueHeader::default()
        }),
        request::<QueryConsumerOffset>(&QueryConsumerOffsetHeader {
            group: Text::from_static("New"),
            topic,
            ..QueryConsumerOffsetHeader::default()
        }),
    ]
}

#[test]
fn a_look_up_of_units_that_the_disk_cannot_read_is_answered_with_their_file_and_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for number in 0..3_u8 {
        stored(&client.produce("Found", 0, &[number], ""));
    }
    let units = queue_dir(dir.path(), "Found", 0);
    for look_up in look_ups("Found") {
        let broken = arm(&units, Op::Read, 0, 5);
        let answer = client.call(look_up.clone());
        let file = units.join(format!("{:020}", 0));
        refused(&answer, ResponseCode::SYSTEM_ERROR, &format!("cannot read {}: ", file.display()));
        assert!(answer.remark.unwrap_or_default().contains("os error 5"), "{look_up:?}");
        drop(broken);
        assert_eq!(client.call(look_up).code, 0);
    }
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_look_up_of_units_that_the_disk_is_slow_to_read_keeps_nobody_else_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    stored(&client.produce("Found", 0, b"x", ""));
    for look_up in look_ups("Found") {
        let held = hold_up(&queue_dir(dir.path(), "Found", 0), Op::Read);
        let mut waiting: Vec<Client> = (0..2).map(|_| Client::of(&node)).collect();
        waiting.iter_mut().for_each(|client| _ = client.send(look_up.clone()));
        until("the disk is asked", || held.has_struck());
        // On each arbiter.
        for number in 0..4 {
            stored(&Client::of(&node).produce("Other", number % 2, b"y", ""));
        }
        assert!(!waiting.iter().any(Client::has_answer));
        drop(held);
        for mut client in waiting {
            assert_eq!(client.receive().expect("an answer").code, 0);
        }
    }
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_half_message_whose_unit_the_disk_cannot_read_is_asked_about_when_it_can_and_can_be_decided_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let (decided, asked) = (half(&mut client, "Decided", ""), half(&mut client, "Asked", ""));
    let mut producer = produce_for(&node, "Payers");
    let checker = node.broker().expect("a broker").transactions.clone();
    until("both are taken in", || block_on(checker.send(CountOpen)).expect("it lives") == 2);
    let broken = arm(&queue_dir(dir.path(), HALF_TOPIC, 0), Op::Read, 0, 5);
    clock.advance_ms(30_000);
    until("a round looks at it", || broken.has_struck());
    assert_eq!(end(&mut client, decided, TRANSACTION_COMMIT).code, 0);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 0).body[..], b"Decided");
    drop(broken);
    // The next round. A producer that is silent for two minutes would be taken for gone.
    clock.advance_ms(30_000);
    let question = Question::wait(&mut producer);
    assert_eq!((question.header.message_id.as_deref(), question.times()), (Some("Asked"), Some("1")));
    assert_eq!(end(&mut client, asked, TRANSACTION_COMMIT).code, 0, "by its old place too");
    assert_eq!(&wait_for(&mut client, "Paid", 1, 1).body[..], b"Asked");
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_start_that_cannot_read_which_transactions_are_done_is_refused_and_none_is_delivered_twice() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let open = half(&mut client, "Open", "");
    let done = half(&mut client, "Done", "");
    assert_eq!(end(&mut client, done, TRANSACTION_COMMIT).code, 0);
    // The next file of the log: a start reads the last one.
    for _ in 0..9 {
        stored(&client.produce("Fill", 0, &[1; 1_000_000], ""));
    }
    node.stop_and_wait().expect("a clean stop");
    let first = first_segment(dir.path());
    let broken = arm(&first, Op::Read, 0, 5);
    let config = NodeConfig { clock: NodeClock(clock.clone()), ..small_broker(dir.path()) };
    let refusal = Node::start(config).expect_err("it is not known what is done").to_string();
    assert!(refusal.contains(&format!("cannot read {}: ", first.display())), "{refusal}");
    assert!(refusal.contains("os error 5") && refusal.contains(", at byte "), "{refusal}");
    drop(broken);
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let again = end(&mut client, done, TRANSACTION_COMMIT);
    refused(&again, ResponseCode::SYSTEM_ERROR, "was decided before; the first decision counts");
    assert_eq!(end(&mut client, open, TRANSACTION_COMMIT).code, 0);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 1).body[..], b"Open");
    assert_eq!(count(&mut client, "Paid", 1), 2);
    node.stop_and_wait().expect("a clean stop");
}
