//! How much of the process timers take that only wait.
//!
//! Invariants:
//! - whoever looks at many of them, at a start or while they wait, leaves little of their files in the process.

use std::sync::Arc;

use troupemq_codec::message::NewRecord;

use super::timer_test::NOW_MS;
use super::*;
use crate::testing::mapped_bytes;
use crate::{AppendBatch, ManualClock, Opened, StoreConfig, open};

/// Timers that wait: their units are some 3 MiB, their messages some 20 MiB.
const TIMERS: usize = 60_000;
const SLOT_MS: i64 = NOW_MS + 3_600_000;
const MIB: u64 = 1 << 20;

/// Stores the timers; answers how many are on the wheel.
fn enter_all(store: &mut Opened, timers: &mut TimerStore) -> usize {
    let queue = store.queues.open_or_create(TIMER_TOPIC, 0).unwrap();
    let record = NewRecord { topic: TIMER_TOPIC, body: &[7; 250], properties: &[], ..NewRecord::PLAIN };
    for _ in 0..TIMERS / 1000 {
        let mut batch = AppendBatch::default();
        for _ in 0..1000 {
            let start = batch.bytes.len();
            record.encode(&mut batch.bytes).unwrap();
            batch.push(start, &queue, 1, 0);
        }
        let appended = store.log.append(&mut batch, NOW_MS).unwrap();
        store.dispatch.dispatch(&batch, &appended).unwrap();
        for record in &batch.records {
            let (log_offset, queue_offset, size) = (record.log_offset, record.queue_offset, record.len);
            let (stored_ms, due_ms, is_delete, topic_hash) = (NOW_MS, SLOT_MS, false, 7);
            let timer = NewTimer { queue_offset, log_offset, size, stored_ms, due_ms, is_delete, topic_hash };
            timers.put(&timer, NOW_MS).unwrap();
            timers.entered(queue_offset + 1);
        }
    }
    counted(timers)
}

fn counted(timers: &TimerStore) -> usize {
    let mut count = 0;
    timers.slot(SLOT_MS).unwrap().each(|_| count += 1).unwrap();
    count
}

#[test]
fn timers_that_wait_are_not_in_the_process_whoever_looks_at_them() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { log_segment_bytes: 32 << 20, ..StoreConfig::in_dir(dir.path()) };
    let open_both = || {
        let store = open(config.clone(), Arc::new(ManualClock::at(NOW_MS))).unwrap();
        let timers = TimerStore::open(&config, &store.queues, &store.reader, NOW_MS).unwrap();
        (store, timers)
    };
    let of = |files: &str| mapped_bytes(&dir.path().join(files));
    let (mut store, mut timers) = open_both();
    assert_eq!(enter_all(&mut store, &mut timers), TIMERS);
    assert!(of("timerlog") < 2 * MIB, "{} bytes after a look", of("timerlog"));
    assert_eq!(timers.view().oldest().unwrap(), Some((0, SLOT_MS)));
    assert!(of("timerlog") < 2 * MIB, "{} bytes after another", of("timerlog"));
    // Nothing was flushed: each unit is compared with its message.
    drop((store, timers));
    let (_store, timers) = open_both();
    assert_eq!((timers.next_queue_offset(), timers.pending()), (60_000, 60_000));
    let (log, units) = (of("commitlog"), of("timerlog"));
    assert!(log < MIB && units < 2 * MIB, "{log} bytes of messages, {units} of units after a start");
    assert_eq!(counted(&timers), TIMERS);
}
