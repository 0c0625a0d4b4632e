//! A log of which the disk cannot read a part, under a running node.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::sync::Arc;

use troupemq_codec::ResponseCode;
use troupemq_codec::request::{QueryMessage, QueryMessageHeader};
use troupemq_store::faults::{Op, arm, forget, hold_up};
use troupemq_store::{Clock, ManualClock};

use super::delivery_test::{NOW_MS, count, start};
use super::end_to_end_test::{found, refused, with_cold_log};
use crate::node::Node;
use crate::testing::{
    Client, block_on, evict, first_segment, queue_dir, request, small_broker, start_broker, stored, until,
    wait_for,
};
use crate::timer::Report;

#[test]
fn what_the_disk_cannot_read_is_an_answer_that_names_it_and_the_node_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("commitlog");
    let first = first_segment(dir.path());
    let node = with_cold_log(dir.path());
    let disk = std::fs::OpenOptions::new().write(true).open(&first).unwrap();
    let mut client = Client::of(&node);
    let broken = arm(&log, Op::Read, 0, 5);
    let answer = client.pull("Cold", 0, 13, "*");
    refused(&answer, ResponseCode::SYSTEM_ERROR, &format!("cannot read {}: ", first.display()));
    drop(broken);
    assert_eq!(found(&client.pull("Cold", 0, 13, "*")).1.len(), 1, "the disk reads again");
    // Somebody cuts the file while it is mapped.
    disk.set_len(16_000_000).unwrap();
    let answer = client.pull("Cold", 0, 17, "*");
    refused(&answer, ResponseCode::SYSTEM_ERROR, &format!("cannot read {}: ", first.display()));
    for offset in [14, 22] {
        assert_eq!(found(&client.pull("Cold", 0, offset, "*")).0.next_offset, offset + 1);
    }
    stored(&client.produce("Cold", 0, b"goes on", ""));
}

#[test]
fn units_that_the_disk_cannot_read_are_an_answer_that_names_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    // Three pages of units: a start looks at the first and the last one.
    for at in 0..600_u16 {
        stored(&client.produce("Units", 0, &at.to_be_bytes(), ""));
    }
    node.stop_and_wait().expect("a clean stop");
    drop((node, client));
    let queue = queue_dir(dir.path(), "Units", 0);
    evict(&queue);
    let node = start_broker(dir.path());
    let broker = node.broker().unwrap().clone();
    let mut client = Client::of(&node);
    let broken = arm(&queue, Op::Read, 0, 5);
    let answer = client.pull("Units", 0, 300, "*");
    let file = queue.join(format!("{:020}", 0));
    refused(&answer, ResponseCode::SYSTEM_ERROR, &format!("cannot read {}: ", file.display()));
    assert_eq!(broker.stats.read().cold_pulls, 1);
    drop(broken);
    let forgotten = forget(&queue);
    let (header, messages) = found(&client.pull("Units", 0, 300, "*"));
    assert_eq!((header.next_offset, &messages[0].body[..]), (332, &300_u16.to_be_bytes()[..]));
    assert_eq!(broker.stats.read().cold_pulls, 2);
    assert!(forgotten.seen() > 0, "they were read through the file");
}

#[test]
fn what_this_node_wrote_and_the_system_has_evicted_is_read_where_waiting_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.broker.as_mut().unwrap().store.log_segment_bytes = 20 << 20;
    let node = Node::start(config).unwrap();
    // What the disk does not have of the queue, the system keeps.
    let _unflushed = hold_up(&dir.path().join("consumequeue"), Op::Flush);
    let mut client = Client::of(&node);
    // More than what counts as in memory because it was written last.
    for at in 0..90_u8 {
        stored(&client.produce("Own", 0, &[at; 1_000_000], ""));
    }
    let log = dir.path().join("commitlog");
    evict(&log);
    let forgotten = forget(&log);
    let broker = node.broker().unwrap().clone();
    let (_, messages) = found(&client.pull("Own", 0, 5, "*"));
    assert_eq!(messages[0].body[..], [5; 1_000_000]);
    assert_eq!(broker.stats.read().cold_pulls, 1);
    assert!(forgotten.seen() > 0, "it was read through the file");
    assert_eq!(found(&client.pull("Own", 0, 89, "*")).1.len(), 1);
    assert_eq!(broker.stats.read().cold_pulls, 1, "the end is in memory");
}

/// Two messages wait, of which the disk cannot read the first for a while.
fn deliver_unreadable(wait: &str) {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    stored(&client.produce("Late", 0, b"first", wait));
    for _ in 0..9 {
        stored(&client.produce("Fill", 0, &[1; 1_000_000], ""));
    }
    stored(&client.produce("Late", 0, b"second", wait));
    let broken = arm(&first_segment(dir.path()), Op::Read, 0, 5);
    clock.advance_ms(5_000);
    assert_eq!(&wait_for(&mut client, "Late", 0, 0).body[..], b"second", "it is not held up");
    until("the first is tried", || broken.has_struck());
    node.stop_and_wait().expect("a clean stop");

    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    clock.advance_ms(5_000);
    stored(&client.produce("Late", 0, b"third", wait));
    clock.advance_ms(5_000);
    assert_eq!(&wait_for(&mut client, "Late", 0, 1).body[..], b"third", "the second comes once");
    drop(broken);
    until("the first comes", || {
        clock.advance_ms(1_000);
        count(&mut client, "Late", 0) == 3
    });
    assert_eq!(&wait_for(&mut client, "Late", 0, 2).body[..], b"first");
    node.stop_and_wait().expect("a clean stop");
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    stored(&client.produce("Late", 0, b"last", ""));
    assert_eq!(&wait_for(&mut client, "Late", 0, 3).body[..], b"last", "and each comes once");
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_message_of_a_level_that_the_disk_cannot_read_comes_when_it_can_once_and_holds_up_no_other() {
    deliver_unreadable("DELAY\u{1}1\u{2}");
}

#[test]
fn a_timer_that_the_disk_cannot_read_comes_when_it_can_once_and_holds_up_no_other() {
    deliver_unreadable("TIMER_DELAY_MS\u{1}2000\u{2}");
}

#[test]
fn a_timer_that_the_disk_never_reads_is_given_up_when_no_message_would_be_kept_so_long_and_holds_no_slot_open()
 {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let timer = node.broker().expect("a broker").timer.clone();
    let report = || block_on(timer.send(Report)).expect("it lives");
    stored(&client.produce("Late", 0, b"first", "TIMER_DELAY_MS\u{1}2000\u{2}"));
    until("it is entered", || report().behind == 0);
    for _ in 0..9 {
        stored(&client.produce("Fill", 0, &[1; 1_000_000], ""));
    }
    let broken = arm(&first_segment(dir.path()), Op::Read, 0, 5);
    clock.advance_ms(5_000);
    until("it is tried", || broken.has_struck());
    assert_eq!(report().given_up, 0);
    let held_ms = report().checkpoint.last_read_ms;
    assert!(held_ms <= NOW_MS + 3_000, "its slot is open");
    until("it is given up", || {
        clock.advance_ms(3 * 3_600_000);
        report().given_up == 1
    });
    assert!(clock.now_ms() >= NOW_MS + 48 * 3_600_000, "not before two thirds of three days are over");
    until("its slot is passed", || report().checkpoint.last_read_ms > NOW_MS + 48 * 3_600_000);
    drop(broken);
    let mut client = Client::of(&node);
    stored(&client.produce("Late", 0, b"second", "TIMER_DELAY_MS\u{1}2000\u{2}"));
    until("the second is entered", || report().behind == 0);
    clock.advance_ms(5_000);
    assert_eq!(&wait_for(&mut client, "Late", 0, 0).body[..], b"second");
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_query_for_what_the_disk_cannot_read_is_answered_with_file_place_and_cause() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    stored(&client.produce("Found", 0, b"x", "KEYS\u{1}k\u{2}"));
    let header = QueryMessageHeader {
        topic: "Found".into(),
        key: "k".into(),
        messages_max: 9,
        end_timestamp_ms: i64::MAX,
        ..QueryMessageHeader::default()
    };
    for place in ["commitlog", "index"] {
        let broken = arm(&dir.path().join(place), Op::Read, 0, 5);
        let answer = client.call(request::<QueryMessage>(&header));
        let named = format!("cannot read {}", dir.path().join(place).display());
        refused(&answer, ResponseCode::SYSTEM_ERROR, &named);
        assert!(answer.remark.unwrap_or_default().contains(", at byte "));
        drop(broken);
        assert_eq!(client.call(request::<QueryMessage>(&header)).code, 0);
    }
    node.stop_and_wait().expect("a clean stop");
}
