//! Files that the system refuses to open or to read: a derived one is put aside and made anew, the log stops the start.
//!
//! Invariants:
//! - each open and each read of a start is refused once, one after the other, until a start meets no refusal;
//! - whatever was refused, the store holds every message, under its offset and its keys.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::crash_test::{Kept, assert_holds, config, copy, fill};
use super::*;
use crate::faults::{Op, arm, arm_once};
use crate::index::KeyQuery;
use crate::inspect::StoreView;
use crate::testing::{Random, Sample};

const IO_ERROR: i32 = 5;
const NO_RIGHT: i32 = 13;

fn settings(dir: &TempDir) -> StoreConfig {
    StoreConfig { queue_extension_enabled: true, queue_extension_file_bytes: 4_096, ..config(dir) }
}

fn try_open(dir: &TempDir) -> Result<Opened, StoreError> {
    open(settings(dir), Arc::new(crate::SystemClock::new()))
}

/// A store with a checkpoint in the middle, closed or killed at the end.
fn prepared(is_closed: bool) -> (TempDir, Vec<Kept>) {
    let dir = TempDir::new().unwrap();
    let mut random = Random::seeded(900);
    let mut opened = try_open(&dir).unwrap();
    let mut kept = fill(&mut opened, &mut random, 200);
    opened.flusher.flush().unwrap();
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    kept.extend(fill(&mut opened, &mut random, 60));
    if is_closed {
        let Opened { log, flusher, dispatch, queues, marks, .. } = opened;
        close(Closing { log, flusher, dispatch, queues, marks }).unwrap();
    }
    (dir, kept)
}

fn assert_whole(opened: &Opened, kept: &[Kept]) {
    assert_holds(opened, kept);
    // All samples have the same keys.
    let query =
        KeyQuery { topic: Sample::TOPIC, key: "KeyA", begin_ms: 0, end_ms: i64::MAX, max: kept.len() + 1 };
    let mut indexed = opened.dispatch.index().query(&query).unwrap();
    indexed.sort_unstable();
    let mut stored: Vec<u64> = kept.iter().map(|one| one.log_offset).collect();
    stored.sort_unstable();
    assert_eq!(indexed, stored);
    for one in kept {
        let queue = opened.queues.get(Sample::TOPIC, one.queue_id).unwrap();
        assert!(queue.extension_unit(one.queue_offset).is_some(), "{one:?} has lost its extension");
    }
}

fn put_aside(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".unreadable") {
            found.push(path);
        } else if path.is_dir() {
            found.extend(put_aside(&path));
        }
    }
    found
}

/// Refuses the first, second, … such operation of a start; answers how many there were, and after how many of them
/// something was put aside.
fn refuse_each(place: &str, op: Op, errno: i32, is_closed: bool) -> (u64, usize) {
    let (original, kept) = prepared(is_closed);
    let (mut aside, mut nth) = (0, 0);
    loop {
        let dir = TempDir::new().unwrap();
        copy(&original.path().join("."), dir.path());
        let fault = arm_once(&dir.path().join(place), op, nth, errno);
        let mut opened = try_open(&dir).unwrap_or_else(|error| panic!("{place} {op:?} {nth}: {error}"));
        let has_struck = fault.has_struck();
        drop(fault);
        assert_whole(&opened, &kept);
        let found = put_aside(dir.path());
        assert!(found.len() <= usize::from(has_struck), "{place} {op:?} {nth}: {found:?}");
        aside += found.len();
        let mut all = kept.clone();
        all.extend(fill(&mut opened, &mut Random::seeded(901), 20));
        drop(opened);
        assert_whole(&try_open(&dir).unwrap(), &all);
        if !has_struck {
            return (nth, aside);
        }
        // Of many, some.
        nth += 1 + nth / 8;
    }
}

#[test]
fn a_queue_that_cannot_be_read_is_made_anew() {
    for is_closed in [true, false] {
        let (opens, aside) = refuse_each("consumequeue", Op::Open, NO_RIGHT, is_closed);
        // Where a unit is compared with the log, what cannot be read now is written again at once.
        assert!(opens > 10 && aside > 10, "{opens} {aside}");
        let (reads, aside) = refuse_each("consumequeue", Op::Read, IO_ERROR, is_closed);
        assert!(reads > 10 && aside > 10, "{reads} {aside}");
    }
}

#[test]
fn an_extension_that_cannot_be_read_is_made_anew_with_its_queue() {
    for is_closed in [true, false] {
        let (opens, aside) = refuse_each("consumequeue_ext", Op::Open, NO_RIGHT, is_closed);
        assert!(opens > 3 && aside > 0, "{opens} {aside}");
        let (reads, _) = refuse_each("consumequeue_ext", Op::Read, IO_ERROR, is_closed);
        assert!(reads > 1, "{reads}");
    }
}

#[test]
fn an_index_that_cannot_be_read_is_made_anew() {
    for (errno, is_closed) in [(IO_ERROR, true), (NO_RIGHT, false)] {
        let (opens, aside) = refuse_each("index", Op::Open, errno, is_closed);
        assert!(opens > 2 && aside as u64 == opens, "{opens} {aside}");
    }
    for is_closed in [true, false] {
        let (reads, aside) = refuse_each("index", Op::Read, IO_ERROR, is_closed);
        assert!(reads > 3 && aside > 0, "{reads} {aside}");
    }
}

#[test]
fn what_a_query_cannot_read_of_the_index_is_an_error_that_names_file_and_place() {
    let (dir, kept) = prepared(true);
    let opened = try_open(&dir).unwrap();
    let query = KeyQuery { topic: Sample::TOPIC, key: "KeyA", begin_ms: 0, end_ms: i64::MAX, max: 1_000 };
    let index = dir.path().join("index");
    let refused = arm(&index, Op::Read, 1, IO_ERROR);
    let told = opened.dispatch.index().query(&query).unwrap_err().to_string();
    assert!(told.contains(&index.display().to_string()) && told.contains(", at byte "), "{told}");
    drop(refused);
    assert_whole(&opened, &kept);
}

#[test]
fn a_checkpoint_that_cannot_be_read_counts_as_missing() {
    for (errno, is_closed) in [(IO_ERROR, true), (NO_RIGHT, false)] {
        assert_eq!(refuse_each("checkpoint", Op::Read, errno, is_closed), (1, 1));
    }
}

#[test]
fn a_log_that_cannot_be_opened_stops_the_start_and_is_named() {
    let (dir, _) = prepared(true);
    let _refused = arm(&dir.path().join("commitlog"), Op::Open, 1, IO_ERROR);
    let error = try_open(&dir).unwrap_err().to_string();
    assert!(error.contains("commitlog/00000000000000000000") && error.contains("os error 5"), "{error}");
    assert!(put_aside(dir.path()).is_empty());
}

/// Nothing of it is put aside, cut or passed over: it may be acknowledged, and readable the next time.
#[test]
fn a_log_that_cannot_be_read_stops_the_start_and_is_named_with_its_place() {
    for is_closed in [true, false] {
        let (original, kept) = prepared(is_closed);
        let (mut refusals, mut nth) = (0, 0);
        loop {
            let dir = TempDir::new().unwrap();
            copy(&original.path().join("."), dir.path());
            let fault = arm_once(&dir.path().join("commitlog"), Op::Read, nth, IO_ERROR);
            let opened = try_open(&dir);
            let has_struck = fault.has_struck();
            drop(fault);
            match opened {
                // What only compares a derived file with the log can do without.
                Ok(opened) => assert_whole(&opened, &kept),
                Err(error) => {
                    refusals += 1;
                    let told = error.to_string();
                    assert!(told.contains("cannot read") && told.contains("commitlog/0"), "{told}");
                    assert!(told.contains(", at byte "), "{told}");
                }
            }
            assert!(put_aside(dir.path()).is_empty());
            assert_whole(&try_open(&dir).unwrap(), &kept);
            if !has_struck {
                break;
            }
            nth += 1 + nth / 8;
        }
        assert!(refusals > 0, "{is_closed}");
    }
}

#[test]
fn a_check_of_a_store_that_cannot_be_read_says_where() {
    for (place, nth) in [("commitlog", 3), ("index", 1)] {
        let (dir, _) = prepared(true);
        let view = StoreView::open(dir.path()).unwrap().with_settings(&settings(&dir));
        let _refused = arm(&dir.path().join(place), Op::Read, nth, IO_ERROR);
        let told = view.check(&mut |_| ()).unwrap_err().to_string();
        assert!(told.contains(place) && told.contains(", at byte "), "{told}");
    }
}

#[test]
fn a_lack_of_descriptors_is_laid_on_no_file() {
    const TOO_MANY_OPEN: i32 = 24;
    let (dir, kept) = prepared(false);
    for place in ["consumequeue", "index"] {
        let refused = arm(&dir.path().join(place), Op::Open, 2, TOO_MANY_OPEN);
        let error = try_open(&dir).unwrap_err().to_string();
        drop(refused);
        assert!(error.contains(place) && error.contains("os error 24"), "{error}");
        assert!(put_aside(dir.path()).is_empty());
    }
    assert_whole(&try_open(&dir).unwrap(), &kept);
}
