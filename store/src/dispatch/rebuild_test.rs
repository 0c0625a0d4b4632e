//! Queues made again from a log that has more to say than one clean row of messages.
//!
//! Invariants:
//! - nothing is flushed or closed in order: each store is opened again as a crash leaves it.

use std::path::Path;
use std::sync::Arc;

use troupemq_codec::message::{NewRecord, sys_flag};

use crate::{AppendBatch, KeyQuery, ManualClock, Opened, StoreConfig, open};

fn open_dir(dir: &Path) -> Opened {
    let config =
        StoreConfig { log_segment_bytes: 65_536, queue_file_bytes: 1200, ..StoreConfig::in_dir(dir) };
    open(config, Arc::new(ManualClock::at(1_000))).unwrap()
}

/// Appends `count` messages to queue 0 of `topic` without telling the queues; answers their log offsets.
fn append(store: &mut Opened, topic: &str, count: usize) -> Vec<u64> {
    let queue = store.queues.open_or_create(topic, 0).unwrap();
    let mut batch = AppendBatch::default();
    for _ in 0..count {
        let start = batch.bytes.len();
        let record =
            NewRecord { topic, body: b"body", properties: &[b"TAGS\x01TagA\x02"], ..NewRecord::PLAIN };
        record.encode(&mut batch.bytes).unwrap();
        batch.push(start, &queue, 1, 2_598_919);
    }
    store.log.append(&mut batch, 1_000).unwrap();
    batch.records.iter().map(|record| record.log_offset).collect()
}

fn log_offsets(store: &Opened, topic: &str) -> Vec<Option<u64>> {
    let queue = store.queues.get(topic, 0).unwrap();
    let units = queue.units(queue.min_offset(), 1000);
    units.map(|unit| (!unit.is_hole()).then_some(unit.log_offset)).collect()
}

fn dispatch_all(store: &mut Opened) {
    let Opened { reader, dispatch, .. } = store;
    reader.walk(0, reader.wrote_to(), |record| dispatch.dispatch_record(record).map(|_| ())).unwrap();
}

#[test]
fn a_topic_that_was_deleted_and_made_again_has_its_new_messages() {
    for loses_queues in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open_dir(dir.path());
        append(&mut store, "T", 90);
        dispatch_all(&mut store);
        store.queues.remove("T").unwrap();
        let wanted: Vec<_> = append(&mut store, "T", 70).into_iter().map(Some).collect();
        drop(store);
        if loses_queues {
            std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
        }
        assert_eq!(log_offsets(&open_dir(dir.path()), "T"), wanted);
    }
}

#[test]
fn a_changed_unit_is_mended_from_the_log() {
    // Still a unit, still in order, but of no record, or of one with another tag.
    for byte in [7, 19] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open_dir(dir.path());
        let wanted: Vec<_> = append(&mut store, "T", 150).into_iter().map(Some).collect();
        dispatch_all(&mut store);
        drop(store);
        let path = dir.path().join("consumequeue/T/0/00000000000000001200");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20 * 7 + byte] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let store = open_dir(dir.path());
        assert_eq!(log_offsets(&store, "T"), wanted);
        let queue = store.queues.get("T", 0).unwrap();
        assert!(queue.units(0, 150).all(|unit| unit.tags_code == 2_598_919), "byte {byte}");
    }
}

fn open_extended(dir: &Path, now_ms: i64) -> Opened {
    let config = StoreConfig { queue_extension_enabled: true, ..StoreConfig::in_dir(dir) };
    open(config, Arc::new(ManualClock::at(now_ms))).unwrap()
}

#[test]
fn a_unit_that_lost_its_end_has_nothing_of_another_message() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_extended(dir.path(), 1_000);
    append(&mut store, "T", 3);
    let queue = store.queues.open_or_create("T", 0).unwrap();
    let mut batch = AppendBatch::default();
    let record =
        NewRecord { topic: "T", body: b"body", properties: &[b"TAGS\x01TagA\x02"], ..NewRecord::PLAIN };
    record.encode(&mut batch.bytes).unwrap();
    batch.push(0, &queue, 1, 2_598_919);
    store.log.append(&mut batch, 2_000).unwrap();
    dispatch_all(&mut store);
    drop(store);
    let path = dir.path().join("consumequeue/T/0/00000000000000000000");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20 * 3 + 14..20 * 4].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let store = open_extended(dir.path(), 3_000);
    let own = store.queues.get("T", 0).unwrap().extension_unit(3).unwrap();
    assert_eq!((own.store_timestamp_ms, own.tags_code), (2_000, 2_598_919));
}

#[test]
fn a_unit_that_lost_its_end_hides_no_extension_that_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let open_small = || {
        let (queue_extension_enabled, queue_extension_file_bytes) = (true, 4096);
        let base = StoreConfig::in_dir(dir.path());
        let config = StoreConfig { queue_extension_enabled, queue_extension_file_bytes, ..base };
        open(config, Arc::new(ManualClock::at(1_000))).unwrap()
    };
    let put = |store: &mut Opened, stored_ms: std::ops::Range<i64>| {
        let (from, queue) = (store.log.wrote_to(), store.queues.open_or_create("T", 0).unwrap());
        for now_ms in stored_ms {
            let mut batch = AppendBatch::default();
            NewRecord { topic: "T", body: b"x", ..NewRecord::PLAIN }.encode(&mut batch.bytes).unwrap();
            batch.push(0, &queue, 1, 0);
            store.log.append(&mut batch, now_ms).unwrap();
        }
        let Opened { reader, dispatch, .. } = store;
        reader.walk(from, reader.wrote_to(), |record| dispatch.dispatch_record(record).map(|_| ())).unwrap();
    };
    let mut store = open_small();
    put(&mut store, 1_000..1_300);
    store.flusher.flush().unwrap();
    store.marks.save(&store.flusher.watch(), &store.queues, store.dispatch.flusher()).unwrap();
    drop(store);
    let queue = dir.path().join("consumequeue/T/0/00000000000000000000");
    let mut bytes = std::fs::read(&queue).unwrap();
    bytes[20 * 299 + 16..20 * 300].fill(0);
    std::fs::write(&queue, bytes).unwrap();
    // Some hundred units point into the second file.
    let second = dir.path().join("consumequeue_ext/T/0/00000000000000004096");
    std::fs::OpenOptions::new().write(true).open(second).unwrap().set_len(2048).unwrap();
    let mut store = open_small();
    put(&mut store, 1_300..1_600);
    let queue = store.queues.get("T", 0).unwrap();
    let stored =
        queue.units(0, 1000).map(|unit| queue.extension_unit(unit.queue_offset).unwrap().store_timestamp_ms);
    assert!(stored.eq(1_000..1_600), "each has its own");
}

#[test]
fn a_queue_that_ends_with_holes_is_made_again_when_its_extension_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_extended(dir.path(), 1_000);
    append(&mut store, "T", 3);
    dispatch_all(&mut store);
    store.queues.get("T", 0).unwrap().bridge(5).unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("consumequeue_ext")).unwrap();
    let store = open_extended(dir.path(), 2_000);
    let queue = store.queues.get("T", 0).unwrap();
    let own = queue.units(0, 10).map(|unit| queue.extension_unit(unit.queue_offset).map(|own| own.tags_code));
    assert_eq!(own.collect::<Vec<_>>(), [Some(2_598_919); 3]);
}

#[test]
fn lost_messages_leave_holes_that_later_starts_understand() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_dir(dir.path());
    let mut wanted: Vec<_> = append(&mut store, "T", 3).into_iter().map(Some).collect();
    store.queues.get("T", 0).unwrap().assign_next_offset(100);
    wanted.extend([None; 97]);
    wanted.extend(append(&mut store, "T", 2).into_iter().map(Some));
    drop(store);
    for _ in 0..2 {
        let store = open_dir(dir.path());
        assert_eq!(log_offsets(&store, "T"), wanted);
        assert_eq!(store.queues.get("T", 0).unwrap().next_offset(), 102);
    }
}

#[test]
fn a_queue_whose_first_messages_are_gone_begins_with_filler() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_dir(dir.path());
    store.queues.open_or_create("T", 0).unwrap().assign_next_offset(1_000);
    let wanted: Vec<_> = append(&mut store, "T", 2).into_iter().map(Some).collect();
    drop(store);
    for _ in 0..2 {
        let store = open_dir(dir.path());
        let queue = store.queues.get("T", 0).unwrap();
        assert_eq!((queue.min_offset(), queue.max_offset()), (1_000, 1_002));
        assert_eq!(log_offsets(&store, "T"), wanted);
    }
}

/// A half message is found by its keys, what says that one was rolled back is not.
#[test]
fn half_and_rolled_back_messages_get_no_unit_and_only_the_rolled_back_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_dir(dir.path());
    let queue = store.queues.open_or_create("T", 0).unwrap();
    let mut batch = AppendBatch::default();
    let states =
        [0, sys_flag::TRANSACTION_PREPARED, sys_flag::TRANSACTION_COMMIT, sys_flag::TRANSACTION_ROLLBACK];
    for sys_flag in states {
        let start = batch.bytes.len();
        let record = NewRecord { topic: "T", sys_flag, properties: &[b"KEYS\x01K\x02"], ..NewRecord::PLAIN };
        record.encode(&mut batch.bytes).unwrap();
        batch.push(start, &queue, u16::from(sys_flag::is_visible(sys_flag)), 0);
    }
    store.log.append(&mut batch, 1_000).unwrap();
    let [plain, half, committed, _rolled_back] = [0, 1, 2, 3].map(|at: usize| batch.records[at].log_offset);
    let query = KeyQuery { topic: "T", key: "K", begin_ms: 0, end_ms: i64::MAX, max: 10 };
    for _ in 0..2 {
        dispatch_all(&mut store);
        assert_eq!(log_offsets(&store, "T"), [Some(plain), Some(committed)]);
        assert_eq!(store.dispatch.index().query(&query).unwrap(), [plain, half, committed]);
    }
}
