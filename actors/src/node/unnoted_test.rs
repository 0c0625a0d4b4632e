//! What a kill or a full disk leaves of transactions that were decided, checked or given up: what was stored for them,
//! and not the op message behind it.
//!
//! Invariants:
//! - the log of a killed node ends in front of its last op message;
//! - that of a full disk has room for what stands in front of the op message, and not for that.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use troupemq_codec::message::Message;
use troupemq_codec::request::*;
use troupemq_store::ManualClock;
use troupemq_store::faults::{Fault, Op, arm};

use super::delivery_test::{NOW_MS, count, start};
use super::timer_test::copy;
use super::transaction_test::{GIVEN_UP, OPS, Question, end, ending, half, poll, produce_for};
use crate::node::NodeHandle;
use crate::testing::{Client, request, start_broker_at, until, wait_for};

fn named(op: &Message) -> Vec<i64> {
    let text = String::from_utf8_lossy(&op.body);
    text.split(',').filter_map(|name| name.parse().ok()).collect()
}

fn last_op(client: &mut Client) -> Message {
    let ops = Message::decode_all(client.pull(OPS, 0, 0, "*").body).expect("whole records");
    ops.into_iter().next_back().expect("ends were noted")
}

/// Progress is saved only once the disk has the log so far; this log loses what the disk had.
fn forget_progress(config: &Path) {
    for entry in std::fs::read_dir(config).expect("a broker has tables") {
        let entry = entry.expect("a folder that nobody changes");
        if entry.file_name().to_string_lossy().starts_with("consumerOffset") {
            std::fs::remove_file(entry.path()).expect("it is there");
        }
    }
}

/// The store as a kill leaves it that comes in front of this op message.
fn cut_at(store: &Path, op: &Message) {
    forget_progress(&store.join("config"));
    let log = store.join("commitlog/00000000000000000000");
    let log = OpenOptions::new().write(true).open(log).expect("the log of a small broker is one file");
    let left = log.metadata().expect("it is open").len() - op.log_offset.cast_unsigned();
    let zeros = vec![0; usize::try_from(left).unwrap()];
    log.write_all_at(&zeros, op.log_offset.cast_unsigned()).expect("there is room");
}

#[test]
fn a_message_whose_op_message_a_kill_has_cut_off_is_not_delivered_again() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let more = |number| if number == 39 { "DELAY\u{1}1\u{2}" } else { "" };
    let halves: Vec<_> =
        (0..40).map(|number| half(&mut client, &format!("U{number}"), more(number))).collect();
    let is_committed = |number: usize| !number.is_multiple_of(4);
    for (number, at) in halves.iter().enumerate() {
        let outcome = if is_committed(number) { TRANSACTION_COMMIT } else { TRANSACTION_ROLLBACK };
        client.send(request::<EndTransaction>(&ending("Payers", *at, outcome)));
    }
    halves.iter().for_each(|_| assert_eq!(client.receive().expect("each is answered").code, 0));
    let op = last_op(&mut client);
    copy(dir.path(), killed.path());
    node.stop_and_wait().expect("a clean stop");
    cut_at(killed.path(), &op);

    let node = start(killed.path(), &clock);
    let mut client = Client::of(&node);
    let mut noted = named(&wait_for(&mut client, OPS, 0, op.queue_offset));
    noted.sort_unstable();
    let number_of = |name: &i64| halves.iter().position(|at| at.0 == *name).expect("one of ours");
    let mut wanted: Vec<i64> = named(&op).into_iter().filter(|name| is_committed(number_of(name))).collect();
    wanted.sort_unstable();
    assert!(wanted.contains(&halves[39].0), "the last of all is in the last batch");
    assert_eq!(noted, wanted);
    for name in named(&op) {
        let again = end(&mut client, halves[number_of(&name)], TRANSACTION_ROLLBACK);
        // Of what was rolled back nothing was left: it is decided now.
        assert_eq!(again.remark.is_some(), is_committed(number_of(&name)), "{again:?}");
    }
    assert_eq!(count(&mut client, "Paid", 1), 29);
    clock.advance_ms(1000);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 29).body[..], b"U39");
    assert_eq!(count(&mut client, "Paid", 1), 30);
    node.stop_and_wait().expect("a clean stop");
}

/// Has the transaction committed, by its first half message and by its copy: once in all.
fn is_committed_once(client: &mut Client, first: (i64, i64), copied: (i64, i64)) {
    until("there is room, and the first is taken", || {
        end(client, first, TRANSACTION_COMMIT).remark.is_none_or(|remark| !remark.contains("disk full"))
    });
    let late = end(client, copied, TRANSACTION_COMMIT).remark.expect("a refusal says why");
    assert!(late.contains("was decided before"), "{late}");
    assert_eq!(count(client, "Paid", 1), 1);
}

/// Waits until op messages name these half messages.
fn until_named(client: &mut Client, halves: &[i64]) {
    until("op messages name them", || {
        let ops = Message::decode_all(client.pull(OPS, 0, 0, "*").body).unwrap_or_default();
        let all: Vec<i64> = ops.iter().flat_map(named).collect();
        halves.iter().all(|at| all.contains(at))
    });
}

/// A broker on a copy of the store from which a kill has cut off the first op message.
fn again_without_op(
    node: NodeHandle,
    (dir, killed): (&Path, &Path),
    clock: &Arc<ManualClock>,
) -> (NodeHandle, Client) {
    let op = poll(&mut Client::of(&node), OPS, 0);
    copy(dir, killed);
    node.stop_and_wait().expect("a clean stop");
    cut_at(killed, &op);
    let node = start(killed, clock);
    let client = Client::of(&node);
    (node, client)
}

#[test]
fn a_check_whose_op_message_a_kill_has_cut_off_leaves_one_half_message() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let first = half(&mut client, "A", "");
    let mut producer = produce_for(&node, "Payers");
    clock.advance_ms(30_000);
    let copied = Question::wait(&mut producer).at();
    let killed = tempfile::tempdir().unwrap();
    let (node, mut client) = again_without_op(node, (dir.path(), killed.path()), &clock);
    until_named(&mut client, &[first.0]);
    is_committed_once(&mut client, first, copied);
    node.stop_and_wait().expect("a clean stop");
}

/// What a half message says that was checked as often as the broker checks.
const CHECKED: &str = "TRANSACTION_CHECK_TIMES\u{1}15\u{2}";

/// The bodies of those that were given up once this one was too.
fn given_up(client: &mut Client, last: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    until("the last is given up", || {
        let all = Message::decode_all(client.pull(GIVEN_UP, 0, 0, "*").body).unwrap_or_default();
        bodies = all.iter().map(|message| String::from_utf8_lossy(&message.body).into_owned()).collect();
        bodies.iter().any(|body| body == last)
    });
    bodies
}

#[test]
fn a_transaction_that_is_given_up_whose_op_message_a_kill_has_cut_off_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let first = half(&mut client, "A", CHECKED);
    clock.advance_ms(30_000);
    let killed = tempfile::tempdir().unwrap();
    let (node, mut client) = again_without_op(node, (dir.path(), killed.path()), &clock);
    until_named(&mut client, &[first.0]);
    assert!(end(&mut client, first, TRANSACTION_COMMIT).remark.is_some());
    half(&mut client, "B", CHECKED);
    clock.advance_ms(30_000);
    assert_eq!(given_up(&mut client, "B"), ["A", "B"]);
    assert_eq!(count(&mut client, "Paid", 1), 0);
    node.stop_and_wait().expect("a clean stop");
}

const SEGMENT_BYTES: u64 = 64 << 10;
const ENOSPC: i32 = 28;
/// Less than the record of an op message has.
const NO_OP_BYTES: u64 = 64;

/// A broker whose log finds no room behind its first segment.
fn start_full(dir: &Path, clock: &Arc<ManualClock>) -> (NodeHandle, Fault) {
    let next = dir.join("commitlog").join(format!("{SEGMENT_BYTES:020}"));
    let node = start_broker_at(clock, dir, |part| part.store.log_segment_bytes = SEGMENT_BYTES);
    (node, arm(&next, Op::Create, 0, ENOSPC))
}

/// Half of a transaction; the log takes a record then that is longer by so many bytes, and no op message behind it.
fn half_before_full(
    node: &NodeHandle,
    client: &mut Client,
    (more_properties, longer): (&str, i64),
) -> (i64, i64) {
    let wrote_to = || node.broker().unwrap().log.wrote_to();
    let mut record_bytes = |make: &mut dyn FnMut(&mut Client)| {
        let before = wrote_to();
        make(client);
        wrote_to() - before
    };
    let mut first = (0, 0);
    let half_bytes = record_bytes(&mut |client| first = half(client, "A", more_properties));
    let mut fill = |bytes: u64| {
        let body = vec![7; usize::try_from(bytes).unwrap()];
        record_bytes(&mut |client| assert_eq!(client.produce("Fill", 0, &body, "").code, 0))
    };
    let more = fill(1) - 1;
    // Eight bytes close a segment.
    let room = half_bytes.checked_add_signed(longer).unwrap() + 8 + NO_OP_BYTES;
    while SEGMENT_BYTES - wrote_to() > room + 20_000 {
        fill(10_000);
    }
    fill(SEGMENT_BYTES - wrote_to() - room - more);
    assert_eq!(SEGMENT_BYTES - wrote_to(), room);
    first
}

#[test]
fn a_check_whose_op_message_finds_no_room_leaves_one_half_message() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let (node, full) = start_full(dir.path(), &clock);
    let mut client = Client::of(&node);
    let counted = "TRANSACTION_CHECK_TIMES\u{1}1\u{2}".len().cast_signed();
    let first = half_before_full(&node, &mut client, ("", counted as i64));
    let mut producer = produce_for(&node, "Payers");
    clock.advance_ms(30_000);
    let copied = Question::wait(&mut producer).at();
    assert_eq!(count(&mut client, OPS, 0), 0);
    drop(full);
    is_committed_once(&mut client, first, copied);
    until_named(&mut client, &[first.0, copied.0]);
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_transaction_that_is_given_up_whose_op_message_finds_no_room_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let (node, full) = start_full(dir.path(), &clock);
    let mut client = Client::of(&node);
    let longer = GIVEN_UP.len().cast_signed() - "RMQ_SYS_TRANS_HALF_TOPIC".len().cast_signed();
    let first = half_before_full(&node, &mut client, (CHECKED, longer as i64));
    clock.advance_ms(30_000);
    assert_eq!(given_up(&mut client, "A"), ["A"]);
    assert_eq!(count(&mut client, OPS, 0), 0);
    let over = end(&mut client, first, TRANSACTION_COMMIT).remark.expect("a refusal says why");
    assert!(over.contains("was decided before"), "{over}");
    drop(full);
    until_named(&mut client, &[first.0]);
    half(&mut client, "B", CHECKED);
    clock.advance_ms(30_000);
    assert_eq!(given_up(&mut client, "B"), ["A", "B"]);
    node.stop_and_wait().expect("a clean stop");
}
