//! Messages without keys leave no trace in the index: what a start after a kill reads for it.
//!
//! Invariants:
//! - the part of the log that is read is told by the report of the start.

use tempfile::TempDir;
use troupemq_codec::message::NewRecord;

use super::crash_test::open_one;
use super::*;
use crate::commit_log::batch::AppendBatch;
use crate::index::KeyQuery;
use crate::testing::small_files;

const TOPIC: &str = "T";

/// Stores messages of some 300 bytes; those that `has_key` accepts have their number for a key.
fn fill(opened: &mut Opened, numbers: std::ops::Range<u64>, has_key: impl Fn(u64) -> bool) {
    let queue = opened.queues.open_or_create(TOPIC, 0).unwrap();
    for number in numbers {
        let keys = format!("KEYS\u{1}k{number}\u{2}");
        let properties: &[&[u8]] = if has_key(number) { &[keys.as_bytes()] } else { &[] };
        let mut batch = AppendBatch::default();
        NewRecord { topic: TOPIC, body: &[7; 200], properties, ..NewRecord::PLAIN }
            .encode(&mut batch.bytes)
            .unwrap();
        batch.push(0, &queue, 1, 0);
        let appended = opened.log.append(&mut batch, 1).unwrap();
        opened.dispatch.dispatch(&batch, &appended).unwrap();
    }
}

/// A store that was killed 10 messages behind a checkpoint; where that was.
fn killed(dir: &TempDir, count: u64, has_key: impl Fn(u64) -> bool) -> u64 {
    let mut opened = open_one(small_files(dir.path()));
    fill(&mut opened, 0..count, &has_key);
    opened.flusher.flush().unwrap();
    opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher()).unwrap();
    let saved_to = opened.marks.saved_to();
    fill(&mut opened, count..count + 10, &has_key);
    saved_to
}

fn assert_finds(opened: &Opened, count: u64, has_key: impl Fn(u64) -> bool) {
    for number in 0..count {
        let key = format!("k{number}");
        let query = KeyQuery { topic: TOPIC, key: &key, begin_ms: 0, end_ms: i64::MAX, max: 64 };
        let found = opened.dispatch.index().query(&query).unwrap().len();
        assert_eq!(found, usize::from(has_key(number)), "{key}");
    }
}

#[test]
fn after_a_kill_no_more_is_read_for_the_index_than_behind_the_checkpoint() {
    let patterns: [fn(u64) -> bool; 4] =
        [|_| false, |number| number < 5, |number| number % 700 == 3, |number| number >= 1_000];
    for (at, has_key) in patterns.into_iter().enumerate() {
        let dir = TempDir::new().unwrap();
        let saved_to = killed(&dir, 1_000, has_key);
        let opened = open_one(small_files(dir.path()));
        let report = opened.report;
        assert!(!report.was_closed && !report.was_rebuilt, "{at}");
        assert_eq!((report.replayed_from, report.replayed), (saved_to, 10), "{at}");
        assert_finds(&opened, 1_010, has_key);
    }
}

/// The last record that the index knows may be the one whose entries a kill has left incomplete.
#[test]
fn after_a_kill_amid_keys_the_log_is_read_from_the_last_record_that_is_sure() {
    let dir = TempDir::new().unwrap();
    let saved_to = killed(&dir, 1_000, |_| true);
    let opened = open_one(small_files(dir.path()));
    assert!(opened.report.replayed <= 11 && opened.report.replayed_from <= saved_to, "{:?}", opened.report);
    assert_finds(&opened, 1_010, |_| true);
}

#[test]
fn an_index_that_lost_a_file_is_made_again_whatever_the_checkpoint_says() {
    let has_key = |number: u64| number % 100 == 7;
    for lost in ["the folder", "the file"] {
        let dir = TempDir::new().unwrap();
        killed(&dir, 1_000, has_key);
        let index = dir.path().join("index");
        match lost {
            "the folder" => std::fs::remove_dir_all(&index).unwrap(),
            _ => {
                let file = std::fs::read_dir(&index).unwrap().next().unwrap().unwrap();
                std::fs::remove_file(file.path()).unwrap();
            }
        }
        let opened = open_one(small_files(dir.path()));
        assert_eq!(opened.report.replayed, 1_010, "{lost}");
        assert_finds(&opened, 1_010, has_key);
    }
}
