//! What a kill leaves of transactions that were decided together: their messages, and not the op message behind them.
//!
//! Invariants:
//! - the log of the killed node ends in front of its last op message.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use troupemq_codec::message::Message;
use troupemq_codec::request::*;
use troupemq_store::ManualClock;

use super::delivery_test::{NOW_MS, count, start};
use super::timer_test::copy;
use super::transaction_test::{OPS, end, ending, half};
use crate::testing::{Client, request, wait_for};

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
    forget_progress(&killed.path().join("config"));
    let log = killed.path().join("commitlog/00000000000000000000");
    let log = OpenOptions::new().write(true).open(log).expect("the log of a small broker is one file");
    let left = log.metadata().expect("it is open").len() - op.log_offset.cast_unsigned();
    let zeros = vec![0; usize::try_from(left).unwrap()];
    log.write_all_at(&zeros, op.log_offset.cast_unsigned()).expect("there is room");

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
