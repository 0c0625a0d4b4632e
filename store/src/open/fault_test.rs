//! The operating system refuses at every point, one after the other: nothing acknowledged is lost.
//!
//! Invariants:
//! - acknowledged is what was appended and, with synchronous flush, flushed;
//! - after a failed flush or write nothing is acknowledged any more;
//! - after a lack of space that has ended, the same open store goes on.

use tempfile::TempDir;

use super::*;
use crate::commit_log::batch::AppendBatch;
use crate::config::FlushMode;
use crate::faults::{Op, arm};
use crate::testing::{Random, Sample, small_files};

const NO_SPACE: i32 = 28;
const IO_ERROR: i32 = 5;

fn config(dir: &TempDir, flush: FlushMode) -> StoreConfig {
    StoreConfig { flush, recycled_max: 1, ..small_files(dir.path()) }
}

fn try_open(dir: &TempDir, flush: FlushMode) -> Result<Opened, StoreError> {
    open(config(dir, flush), Arc::new(crate::SystemClock::new()))
}

/// Acknowledged messages: position and number.
type Acked = Vec<(u64, i64)>;

/// Appends a batch, and flushes it where that is asked for. Adds what was acknowledged.
fn send(opened: &mut Opened, random: &mut Random, acked: &mut Acked) -> Result<(), StoreError> {
    let queue = opened.queues.open_or_create(Sample::TOPIC, 0)?;
    let mut batch = AppendBatch::default();
    for _ in 0..8 {
        Sample { queue_id: 0, fill: 7, body_bytes: random.below(2_000) }.push(&mut batch, &queue);
    }
    let appended = opened.log.append(&mut batch, 1_000)?;
    let dispatched = opened.dispatch.dispatch(&batch, &appended);
    dispatched.map_err(|error| if error.is_out_of_space() { error } else { opened.poison.set(error) })?;
    let stored = &batch.records[..appended.records];
    if opened.config.flush == FlushMode::Sync {
        opened.flusher.flush()?;
    }
    acked.extend(stored.iter().map(|record| (record.log_offset, record.queue_offset)));
    appended.refused.map_or(Ok(()), Err)
}

/// What fails: which operation on which part of the store, from which turn on, and with which error.
#[derive(Debug, Clone, Copy)]
struct Blow {
    op: Op,
    place: &'static str,
    nth: u64,
    errno: i32,
}

/// Sends under the fault; answers what was acknowledged before, during and after it.
fn suffer(dir: &TempDir, flush: FlushMode, blow: Blow) -> (Acked, bool) {
    let mut random = Random::seeded(blow.nth + 1);
    let mut acked = Acked::new();
    let fault = arm(&dir.path().join(blow.place), blow.op, blow.nth, blow.errno);
    let Ok(mut opened) = try_open(dir, flush) else { return (acked, fault.has_struck()) };
    let mut is_final = false;
    for round in 0..40 {
        let result = send(&mut opened, &mut random, &mut acked);
        assert!(!is_final || result.is_err(), "a poisoned log took a batch");
        if round % 10 == 9 {
            let _flushed = opened.flusher.flush();
            let saved = opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher());
            // As the node does.
            let _ended = saved.map_err(|error| opened.poison.set(error));
        }
        is_final = opened.poison.cause().is_some();
    }
    let has_struck = fault.has_struck();
    drop(fault);
    let before = acked.len();
    if !is_final {
        opened.dispatch.catch_up(&opened.reader).unwrap();
    }
    let result = send(&mut opened, &mut random, &mut acked);
    assert_eq!(result.is_ok(), !is_final, "{blow:?} {result:?}");
    assert_eq!(acked.len() - before, if is_final { 0 } else { 8 });
    (acked, has_struck)
}

fn assert_holds(opened: &Opened, acked: &Acked) {
    let queue = opened.queues.open_or_create(Sample::TOPIC, 0).unwrap();
    for (log_offset, queue_offset) in acked {
        let unit = queue.unit(*queue_offset).expect("an acknowledged message has its unit");
        assert_eq!(unit.log_offset, *log_offset);
        let fill = opened.reader.record_at(*log_offset, |record| record.body().iter().all(|byte| *byte == 7));
        assert_eq!(fill, Some(true));
    }
}

/// Lets the operation fail at its first, second, … turn until a run is over before its turn comes.
fn every_turn(op: Op, place: &'static str, errno: i32) {
    for flush in [FlushMode::Async, FlushMode::Sync] {
        let mut nth = 0;
        loop {
            let dir = TempDir::new().unwrap();
            let (acked, has_struck) = suffer(&dir, flush, Blow { op, place, nth, errno });
            let mut opened = try_open(&dir, flush).unwrap();
            assert_holds(&opened, &acked);
            let mut more = acked.clone();
            send(&mut opened, &mut Random::seeded(9), &mut more).unwrap();
            assert_holds(&opened, &more);
            if !has_struck {
                assert_eq!(acked.len(), 41 * 8);
                break;
            }
            nth += 1 + nth / 4;
        }
        assert!(nth > 0, "{op:?} of {place:?} was never tried");
    }
}

#[test]
fn no_space_for_a_new_file_costs_no_acknowledged_message() {
    for place in ["commitlog", "consumequeue", "index", "checkpoint", "abort"] {
        every_turn(Op::Create, place, NO_SPACE);
    }
}

#[test]
fn no_space_for_the_blocks_of_a_file_costs_no_acknowledged_message() {
    for place in ["commitlog", "consumequeue", "index"] {
        every_turn(Op::Allocate, place, NO_SPACE);
    }
}

#[test]
fn a_failed_or_short_write_costs_no_acknowledged_message() {
    for place in ["", "checkpoint"] {
        every_turn(Op::Write, place, IO_ERROR);
        every_turn(Op::Write, place, NO_SPACE);
    }
}

#[test]
fn a_failed_flush_is_never_tried_again() {
    for place in ["commitlog", "consumequeue", "index", "checkpoint"] {
        every_turn(Op::Flush, place, IO_ERROR);
    }
}

/// Also when the disk would take it again: the page cache may have forgotten what it could not write.
#[test]
fn after_a_flush_or_a_write_of_the_log_that_failed_the_open_store_takes_nothing() {
    for op in [Op::Flush, Op::Write] {
        let dir = TempDir::new().unwrap();
        let mut opened = try_open(&dir, FlushMode::Async).unwrap();
        let (mut random, mut acked) = (Random::seeded(2), Acked::new());
        send(&mut opened, &mut random, &mut acked).unwrap();
        let fault = arm(&dir.path().join("commitlog"), op, 0, IO_ERROR);
        let (sent, flushed) = (send(&mut opened, &mut random, &mut acked), opened.flusher.flush());
        assert_eq!((sent.is_err(), flushed.is_err()), (op == Op::Write, true), "{op:?}");
        assert!(fault.has_struck());
        drop(fault);
        let sent = send(&mut opened, &mut random, &mut acked);
        assert!(matches!(sent, Err(StoreError::Poisoned { .. })), "{op:?}: {sent:?}");
        let flushed = opened.flusher.flush();
        assert!(matches!(flushed, Err(StoreError::Poisoned { .. })), "{op:?}: {flushed:?}");
        drop(opened);
        assert_holds(&try_open(&dir, FlushMode::Async).unwrap(), &acked);
    }
}

#[test]
fn a_new_file_that_the_system_refuses_costs_no_acknowledged_message() {
    for place in ["commitlog", "consumequeue", "index"] {
        every_turn(Op::Create, place, IO_ERROR);
    }
}

#[test]
fn a_recycled_segment_that_cannot_be_used_gives_way_to_a_new_one() {
    let dir = TempDir::new().unwrap();
    let mut opened = try_open(&dir, FlushMode::Async).unwrap();
    std::fs::create_dir_all(dir.path().join("recycled")).unwrap();
    std::fs::write(dir.path().join("recycled/a"), vec![7; 65_536]).unwrap();
    let fault = arm(dir.path(), Op::Rename, 0, IO_ERROR);
    let mut random = Random::seeded(1);
    let mut acked = Acked::new();
    for _ in 0..20 {
        send(&mut opened, &mut random, &mut acked).unwrap();
    }
    assert!(fault.has_struck());
    drop(fault);
    assert!(!dir.path().join("recycled/a").try_exists().unwrap(), "a new one has taken its place");
    drop(opened);
    assert_holds(&try_open(&dir, FlushMode::Async).unwrap(), &acked);
}
