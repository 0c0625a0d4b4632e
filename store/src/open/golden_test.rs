//! Stores that the Java broker wrote open here, serve every message, and go on.
//!
//! Invariants:
//! - what Java found in a set is what we find;
//! - tests write into copies.

use std::sync::Arc;

use bytes::BytesMut;
use troupemq_codec::message::{NewRecord, RecordView};

use super::*;
use crate::commit_log::batch::AppendBatch;
use crate::testing::{GOLDEN_SETS, GoldenStore, MessageFoundByJava, close_well, sha256_hex};

/// Near the newest store time of the sets.
const NOW_MS: i64 = 1_795_969_000_000;

fn open_dir(dir: &Path) -> Opened {
    open(StoreConfig::in_dir(dir), Arc::new(crate::SystemClock::new())).unwrap()
}

/// Compares positions and every message with what Java found.
fn assert_serves(opened: &Opened, golden: &GoldenStore, set: &str) {
    let found = golden.found();
    assert_eq!(opened.reader.min_offset(), found.commit_log_min_offset, "{set}");
    assert_eq!(opened.reader.wrote_to(), found.commit_log_max_offset, "{set}");
    for java in &found.queues {
        let queue = opened.queues.get(&java.topic, java.queue_id).expect("every queue is found");
        let range = (queue.min_offset(), queue.max_offset(), queue.next_offset());
        assert_eq!(range, (java.min, java.max, java.max), "{set}: {} {}", java.topic, java.queue_id);
    }
    let queues: usize = opened.queues.topics().iter().map(|topic| opened.queues.of_topic(topic).len()).sum();
    assert_eq!(queues, found.queues.len(), "{set}");
    for message in golden.messages() {
        assert_message(opened, &message, set);
    }
}

fn assert_message(opened: &Opened, message: &MessageFoundByJava, set: &str) {
    let what = format!("{set}: {} {} {}", message.topic, message.queue_id, message.queue_offset);
    let queue = opened.queues.get(&message.topic, message.queue_id).expect("every queue is found");
    let unit = queue.unit(message.queue_offset).unwrap_or_else(|| panic!("{what} has no unit"));
    assert_eq!((unit.log_offset, unit.size), (message.log_offset, message.size), "{what}");
    let bytes = opened.reader.slice(unit.log_offset, unit.size as usize).expect("a unit has its record");
    let record = RecordView::parse(&bytes).expect("a unit has a whole record");
    assert_eq!(record.queue_offset(), message.queue_offset, "{what}");
    assert_eq!(record.store_timestamp_ms(), message.store_timestamp, "{what}");
}

fn assert_hashes(opened: &Opened, golden: &GoldenStore) {
    for message in golden.messages() {
        let bytes = opened.reader.slice(message.log_offset, message.size as usize).unwrap();
        assert_eq!(sha256_hex(&bytes), message.record_sha256);
        assert_eq!(sha256_hex(RecordView::parse(&bytes).unwrap().body()), message.stored_body_sha256);
    }
}

/// Appends `count` messages of 1,000 bytes to queue 0 of `topic`, and dispatches them.
fn append(opened: &mut Opened, topic: &str, count: usize) -> Vec<(u64, i64)> {
    let queue = opened.queues.open_or_create(topic, 0).unwrap();
    let mut batch = AppendBatch::default();
    for index in 0..count {
        let body = vec![u8::try_from(index % 251).unwrap(); 1_000];
        push(&mut batch, topic, &body, &queue);
    }
    let appended = opened.log.append(&mut batch, NOW_MS).unwrap();
    assert_eq!((appended.records, appended.to), (count, opened.reader.wrote_to()));
    opened
        .reader
        .walk(appended.from, appended.to, |record| opened.dispatch.dispatch_record(record).map(|_| ()))
        .unwrap();
    batch.records.iter().map(|record| (record.log_offset, record.queue_offset)).collect()
}

fn push(batch: &mut AppendBatch, topic: &str, body: &[u8], queue: &Arc<crate::ConsumeQueue>) {
    let record = NewRecord {
        born_timestamp_ms: NOW_MS,
        topic,
        body,
        properties: &[b"TAGS\x01TagA\x02"],
        ..NewRecord::PLAIN
    };
    let start = batch.bytes.len();
    let mut encoded = BytesMut::new();
    record.encode(&mut encoded).unwrap();
    batch.bytes.extend_from_slice(&encoded);
    batch.push(start, queue, 1, 0);
}

#[test]
fn every_store_of_java_opens_with_the_numbers_java_finds() {
    for set in GOLDEN_SETS {
        let golden = GoldenStore::unpack(set);
        let opened = open_dir(&golden.dir());
        assert_serves(&opened, &golden, set);
        assert_hashes(&opened, &golden);
        let was_closed = !golden.manifest()["found"]["abortFilePresentBeforeLoad"].as_bool().unwrap();
        assert_eq!(opened.report.was_closed, was_closed, "{set}");
    }
}

#[test]
fn a_store_of_java_goes_on_and_opens_again() {
    for set in GOLDEN_SETS {
        let golden = GoldenStore::unpack(set);
        let mut opened = open_dir(&golden.dir());
        let first = append(&mut opened, "GoldNew", 100);
        assert_eq!(first[0].1, 0);
        close_well(opened);
        assert!(!golden.dir().join("abort").try_exists().unwrap());

        let mut again = open_dir(&golden.dir());
        assert_eq!((again.report.was_closed, again.report.replayed), (true, 0), "{set}");
        let second = append(&mut again, "GoldNew", 100);
        let queue = again.queues.get("GoldNew", 0).unwrap();
        for (index, (log_offset, queue_offset)) in first.iter().chain(&second).enumerate() {
            assert_eq!(*queue_offset, i64::try_from(index).unwrap());
            let unit = queue.unit(*queue_offset).unwrap();
            assert_eq!(unit.log_offset, *log_offset);
            let body = again.reader.record_at(*log_offset, |record| record.body().to_vec()).unwrap();
            assert_eq!(body, vec![u8::try_from(index % 100 % 251).unwrap(); 1_000]);
        }
        for message in golden.messages() {
            assert_message(&again, &message, set);
        }
    }
}

#[test]
fn a_killed_store_replays_and_opens_again_after_a_second_kill() {
    for set in GOLDEN_SETS {
        let golden = GoldenStore::unpack(set);
        let mut opened = open_dir(&golden.dir());
        append(&mut opened, "GoldNew", 200);
        let end = opened.reader.wrote_to();
        drop(opened);
        let again = open_dir(&golden.dir());
        assert!(!again.report.was_closed);
        assert_eq!(again.reader.wrote_to(), end, "{set}");
        assert_eq!(again.queues.get("GoldNew", 0).unwrap().max_offset(), 200);
        for message in golden.messages() {
            assert_message(&again, &message, set);
        }
    }
}

#[test]
fn missing_queue_folders_are_built_again_from_the_log() {
    for set in GOLDEN_SETS {
        let golden = GoldenStore::unpack(set);
        for folder in ["consumequeue", "batchconsumequeue", "index"] {
            let _gone = std::fs::remove_dir_all(golden.dir().join(folder));
        }
        let opened = open_dir(&golden.dir());
        assert_eq!(opened.report.log_end, golden.found().commit_log_max_offset);
        for java in &golden.found().queues {
            let queue = opened.queues.get(&java.topic, java.queue_id).expect("every queue is built");
            assert_eq!((queue.min_offset(), queue.max_offset()), (java.min, java.max), "{set}");
            assert_eq!(queue.kind() == crate::QueueKind::Batch, java.kind == "BatchCQ", "{set}");
        }
    }
}

#[test]
fn one_missing_queue_is_noticed_after_a_clean_stop() {
    let golden = GoldenStore::unpack("plain-clean");
    close_well(open_dir(&golden.dir()));
    std::fs::remove_dir_all(golden.dir().join("consumequeue/GoldPlainA/1")).unwrap();
    let opened = open_dir(&golden.dir());
    assert!(opened.report.was_rebuilt);
    assert_serves(&opened, &golden, "plain-clean");
}
