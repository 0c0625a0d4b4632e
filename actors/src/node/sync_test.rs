//! Flushes of a running node: what is acknowledged is on the disk when that was asked for, whatever refuses.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use troupemq_codec::ResponseCode;
use troupemq_codec::request::{DelayOffsetTable, SendMessageReplyHeader};
use troupemq_store::faults::{Op, arm, hold_up};
use troupemq_store::tables::TableFile;
use troupemq_store::timer::TimerPeek;
use troupemq_store::{FlushMode, ManualClock};

use super::delivery_test::NOW_MS;
use crate::config::{NodeClock, NodeConfig};
use crate::dispatcher::Settle;
use crate::node::{Node, NodeHandle};
use crate::send::slow::SlowSend;
use crate::testing::{Client, block_on, send_request, small_broker, until, wait_for};

const SEGMENT_BYTES: u64 = 1 << 20;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A batch that meets the end of a segment is stored in part if there is no other.
#[test]
fn of_a_batch_stored_in_part_nothing_is_acknowledged_before_it_is_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    let store = &mut config.broker.as_mut().unwrap().store;
    (store.log_segment_bytes, store.flush) = (SEGMENT_BYTES, FlushMode::Sync);
    let log = dir.path().join("commitlog");
    let _no_room = arm(&log.join(format!("{SEGMENT_BYTES:020}")), Op::Create, 0, ENOSPC);
    let node = Node::start(config).unwrap();
    let mut client = Client::of(&node);
    let wrote_to = || node.broker().unwrap().log.wrote_to();
    while wrote_to() + 80_000 < SEGMENT_BYTES {
        assert_eq!(client.produce("Full", 0, &[7; 10_000], "").code, 0);
    }
    let _no_flush = arm(&log, Op::Flush, 0, EIO);
    let mut together = BytesMut::new();
    for opaque in 1..=12 {
        let mut send = send_request("Full", 0, &[7; 10_000], "");
        send.opaque = opaque;
        send.encode(&mut together);
    }
    let before = wrote_to();
    client.write(&together);
    // A node that cannot flush ends, so not all are answered.
    let answers = std::iter::from_fn(|| client.receive()).take(12);
    let codes: Vec<_> = answers.map(|answer| answer.response_code()).collect();
    assert!(wrote_to() > before, "none was stored, so nothing was seen: {codes:?}");
    assert!(!codes.contains(&ResponseCode::SUCCESS), "{codes:?}");
}

fn synchronous(dir: &Path) -> NodeConfig {
    let mut config = small_broker(dir);
    config.broker.as_mut().unwrap().store.flush = FlushMode::Sync;
    config
}

fn queued(node: &NodeHandle, topic: &str) -> i64 {
    node.broker().unwrap().queues.get(topic, 0).map_or(0, |queue| queue.max_offset())
}

/// The clock stands still: whoever is answered was not answered because its time was over.
#[test]
fn a_flush_that_fails_is_told_to_all_who_wait_with_its_file_and_cause_and_ends_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = synchronous(dir.path());
    config.clock = NodeClock(Arc::new(ManualClock::at(1_795_000_000_000)));
    let node = Node::start(config).unwrap();
    let mut clients = [Client::of(&node), Client::of(&node), Client::of(&node)];
    assert_eq!(clients[0].produce("Lost", 0, b"kept", "").code, 0);
    let log = dir.path().join("commitlog");
    let slow = hold_up(&log, Op::Flush);
    for client in &mut clients {
        client.send(send_request("Lost", 0, b"lost", ""));
    }
    until("all are stored and wait for the disk", || queued(&node, "Lost") == 4);
    let segment = log.join(format!("{:020}", 0));
    let _broken = arm(&segment, Op::Flush, 0, EIO);
    drop(slow);
    let cause = format!("cannot flush {}: Input/output error", segment.display());
    for client in &mut clients {
        let answer = client.receive().expect("who waits is answered");
        assert_eq!(answer.response_code(), ResponseCode::SERVICE_NOT_AVAILABLE, "{answer:?}");
        assert!(answer.remark.as_deref().unwrap_or_default().contains(&cause), "{answer:?}");
    }
    let ended = block_on(node.ended()).expect_err("the node ends");
    assert!(ended.to_string().starts_with(&format!("stopped: flush failed: {cause}")), "{ended}");
    assert!(node.broker().unwrap().log.flushed_to() < node.broker().unwrap().log.wrote_to());
}

#[test]
fn who_does_not_want_to_wait_is_answered_while_the_disk_takes_its_time_and_who_does_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = synchronous(dir.path());
    config.clock = NodeClock(Arc::new(ManualClock::at(1_795_000_000_000)));
    let node = Node::start(config).unwrap();
    let (mut patient, mut hasty) = (Client::of(&node), Client::of(&node));
    assert_eq!(patient.produce("Wait", 0, b"first", "").code, 0);
    let log = &node.broker().unwrap().log;
    let slow = hold_up(&dir.path().join("commitlog"), Op::Flush);
    patient.send(send_request("Wait", 0, b"waits", ""));
    until("the disk is asked", || slow.has_struck());
    let (wrote_to, flushed_to) = (log.wrote_to(), log.flushed_to());
    for _ in 0..20 {
        let answer = hasty.produce("Wait", 0, b"does not", "WAIT\u{1}false\u{2}");
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    assert_eq!((queued(&node, "Wait"), log.flushed_to()), (22, flushed_to), "none is on the disk");
    assert!(flushed_to < wrote_to);
    assert!(!patient.has_answer(), "an acknowledgement before the disk");
    drop(slow);
    assert_eq!(patient.receive().expect("an answer").code, 0);
    assert!(log.flushed_to() >= wrote_to);
}

/// What the system refuses for another reason than a lack of room may be anything: nobody knows what is on the disk.
#[test]
fn a_write_that_fails_is_no_success_and_ends_the_node() {
    let places = [
        ("commitlog", Op::Write, "stopped: append failed: "),
        ("consumequeue", Op::Create, "stopped: dispatch failed: "),
    ];
    for (place, op, cause) in places {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(small_broker(dir.path())).unwrap();
        let mut client = Client::of(&node);
        assert_eq!(client.produce("Broken", 0, b"kept", "").code, 0);
        let broken = arm(&dir.path().join(place), op, 0, EIO);
        client.send(send_request("Broken", 1, b"lost", ""));
        // A node that ends may close the connection first.
        let answer = client.receive();
        assert!(answer.as_ref().is_none_or(|answer| answer.code != 0), "{answer:?}");
        assert!(broken.has_struck());
        let ended = block_on(node.ended()).expect_err("the node ends");
        assert!(ended.to_string().starts_with(cause), "{ended}");
    }
}

/// 3.1 #13.
#[test]
fn a_disk_that_is_late_is_a_success_with_a_code_and_its_message_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (mut config, clock) = (synchronous(dir.path()), Arc::new(ManualClock::at(1_795_000_000_000)));
    let timeout_ms = config.broker.as_ref().unwrap().config.sync_flush_timeout;
    config.clock = NodeClock(clock.clone());
    let node = Node::start(config).unwrap();
    let mut client = Client::of(&node);
    assert_eq!(client.produce("Late", 0, b"in time", "").code, 0);
    let slow = hold_up(&dir.path().join("commitlog"), Op::Flush);
    client.send(send_request("Late", 0, b"late", ""));
    until("the disk is asked", || slow.has_struck());
    until("it is stored and waits", || queued(&node, "Late") == 2);
    assert!(!client.has_answer(), "an acknowledgement before the disk");
    // Its time begins with its wait, which begins a moment after it is stored.
    until("who waited too long is answered", || {
        clock.advance_ms(u32::try_from(timeout_ms).unwrap());
        client.has_answer()
    });
    let answer = client.receive().expect("who waited too long is answered");
    assert_eq!(answer.response_code(), ResponseCode::FLUSH_DISK_TIMEOUT, "{answer:?}");
    let stored: SendMessageReplyHeader = answer.header().expect("it says where the message is");
    assert_eq!((stored.queue_id, stored.queue_offset), (0, 1));
    drop(slow);
    assert_eq!(&wait_for(&mut client, "Late", 0, 1).body[..], b"late");
}

#[test]
fn in_async_mode_what_was_written_is_flushed_after_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    let store = &mut config.broker.as_mut().unwrap().store;
    assert_eq!((store.flush, store.flush_interval_ms), (FlushMode::Async, 500), "the default");
    (store.flush_interval_ms, store.flush_bytes) = (20, 1 << 40);
    let node = Node::start(config).unwrap();
    let (mut client, log) = (Client::of(&node), &node.broker().unwrap().log);
    for _ in 0..3 {
        assert_eq!(client.produce("Timed", 0, b"x", "").code, 0);
        let wrote_to = log.wrote_to();
        until("the interval is over", || log.flushed_to() >= wrote_to);
    }
}

/// The interval is longer than this test waits.
#[test]
fn in_async_mode_a_few_mebibytes_are_flushed_before_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    let store = &mut config.broker.as_mut().unwrap().store;
    assert!((4 << 20..=64 << 20).contains(&store.flush_bytes), "the default");
    (store.flush_interval_ms, store.flush_bytes) = (60_000, 1 << 20);
    let node = Node::start(config).unwrap();
    let (mut client, log) = (Client::of(&node), &node.broker().unwrap().log);
    for _ in 0..3 {
        let from = log.wrote_to();
        while log.wrote_to() < from + (1 << 20) + 100_000 {
            assert_eq!(client.produce("Large", 0, &[7; 100_000], "").code, 0);
        }
        until("so many bytes are flushed", || log.flushed_to() > from);
    }
}

/// Two seconds pass while the disk does not answer.
#[test]
fn a_send_that_takes_long_is_told_with_the_stage_that_took_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = synchronous(dir.path());
    let clock = Arc::new(ManualClock::at(1_795_000_000_000));
    clock.advance_ms(1);
    config.clock = NodeClock(clock.clone());
    let node = Node::start(config).unwrap();
    let (mut client, broker) = (Client::of(&node), node.broker().unwrap());
    assert_eq!(client.produce("Slow", 0, b"first", "").code, 0);
    assert_eq!(broker.slow_sends.last(), None);
    let slow = hold_up(&dir.path().join("commitlog"), Op::Flush);
    client.send(send_request("Slow", 0, b"slow", ""));
    until("it waits for the disk", || slow.has_struck() && queued(&node, "Slow") == 2);
    // What was stored before is dispatched when this is answered, so that only the disk is still waited for.
    block_on(broker.dispatcher.send(Settle)).expect("the dispatcher lives");
    clock.advance_ms(2_000);
    drop(slow);
    assert_eq!(client.receive().expect("an answer").code, 0);
    let told = SlowSend { total_ms: 2_000, log_ms: 0, queues_ms: 0, flush_ms: 2_000 };
    assert_eq!(broker.slow_sends.last(), Some(told));
}

/// A message that waited lies on the disk long before it is delivered. What was delivered was not there yet when the
/// node ended: the next start delivers it again.
#[test]
fn what_was_delivered_and_never_came_to_the_disk_does_not_count_as_delivered_when_the_node_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.broker.as_mut().unwrap().store.flush_interval_ms = 20;
    let clock = Arc::new(ManualClock::at(1_795_000_000_000));
    config.clock = NodeClock(clock.clone());
    let node = Node::start(config).unwrap();
    let (mut client, log) = (Client::of(&node), node.broker().unwrap().log.clone());
    let timed = format!("TIMER_DELIVER_MS\u{1}{}\u{2}UNIQ_KEY\u{1}timed\u{2}", 1_795_000_001_000_i64);
    assert_eq!(client.produce("Level", 0, b"waits", "DELAY\u{1}1\u{2}UNIQ_KEY\u{1}level\u{2}").code, 0);
    assert_eq!(client.produce("Timed", 0, b"waits", &timed).code, 0);
    until("what waits is on the disk", || log.flushed_to() >= log.wrote_to());
    let files = dir.path().join("commitlog");
    let slow = hold_up(&files, Op::Flush);
    clock.advance_ms(5_000);
    until("both are delivered", || queued(&node, "Level") == 1 && queued(&node, "Timed") == 1);
    let broken = arm(&files.join(format!("{:020}", 0)), Op::Flush, 0, EIO);
    drop(slow);
    assert!(block_on(node.ended()).is_err(), "the node ends");
    // The log as the disk has it.
    let flushed_to = log.flushed_to();
    drop((client, log, node, broken));
    let segment = std::fs::OpenOptions::new().write(true).open(files.join(format!("{:020}", 0))).unwrap();
    let bytes = segment.metadata().unwrap().len();
    segment.set_len(flushed_to).unwrap();
    segment.set_len(bytes).unwrap();
    let mut config = small_broker(dir.path());
    config.clock = NodeClock(clock.clone());
    let node = Node::start(config).unwrap();
    until("both are delivered again", || queued(&node, "Level") == 1 && queued(&node, "Timed") == 1);
    node.stop_and_wait().unwrap();
}

/// Nothing but the stop flushes here.
#[test]
fn a_stop_that_cannot_flush_notes_no_delivery_and_the_next_start_finds_each_once() {
    for wait in ["DELAY\u{1}1\u{2}", "TIMER_DELAY_MS\u{1}2000\u{2}"] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let start = || {
            let mut config = small_broker(dir.path());
            config.broker.as_mut().unwrap().store.flush_interval_ms = 60_000;
            config.clock = NodeClock(clock.clone());
            Node::start(config).unwrap()
        };
        let noted = || {
            let (_, table) = TableFile::<DelayOffsetTable>::open(dir.path()).unwrap();
            let timers = TimerPeek::read(dir.path()).unwrap().expect("it has timers");
            (
                table.offset_table.get(&1).copied().unwrap_or(0),
                timers.checkpoint.last_read_ms > NOW_MS + 1_000,
            )
        };
        let node = start();
        let mut client = Client::of(&node);
        // However long this takes, no flush of another moment succeeds.
        let slow = hold_up(&dir.path().join("commitlog"), Op::Flush);
        assert_eq!(client.produce("Late", 0, b"late", wait).code, 0);
        clock.advance_ms(5_000);
        assert_eq!(&wait_for(&mut client, "Late", 0, 0).body[..], b"late");
        let broken = arm(&dir.path().join("commitlog"), Op::Flush, 0, EIO);
        drop(slow);
        let _poisoned = node.stop_and_wait();
        assert!(broken.has_struck());
        drop(broken);
        assert_eq!(noted(), (0, false), "{wait}");

        let node = start();
        let mut client = Client::of(&node);
        assert_eq!(client.produce("Late", 0, b"last", "").code, 0);
        assert_eq!(&wait_for(&mut client, "Late", 0, 1).body[..], b"last", "each comes once");
        node.stop_and_wait().expect("a clean stop");
    }
}
