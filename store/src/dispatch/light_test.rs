//! Light queues as they are written, and made again from the log.
//!
//! Invariants:
//! - nothing is flushed or closed in order: each store is opened again as a crash leaves it.

use std::path::Path;
use std::sync::Arc;

use troupemq_codec::message::NewRecord;

use crate::{AppendBatch, LightPlace, ManualClock, Numbers, Opened, StoreConfig, open};

fn open_dir(dir: &Path, with_light_queues: bool) -> Opened {
    let config = StoreConfig {
        log_segment_bytes: 65_536,
        queue_file_bytes: 1200,
        light_queues_enabled: with_light_queues,
        multi_dispatch_enabled: with_light_queues,
        ..StoreConfig::in_dir(dir)
    };
    open(config, Arc::new(ManualClock::at(1_000))).unwrap()
}

/// Appends and dispatches one message for each list of names.
fn append(store: &mut Opened, lists: &[&str]) {
    let mut batch = AppendBatch::default();
    let queue = store.queues.open_or_create("T", 2).unwrap();
    for list in lists {
        let start = batch.bytes.len();
        let text = format!("INNER_MULTI_DISPATCH\u{1}{list}\u{2}TAGS\u{1}TagA\u{2}");
        let properties: &[&[u8]] = &[text.as_bytes()];
        let record = NewRecord { topic: "T", queue_id: 2, body: b"body", properties, ..NewRecord::PLAIN };
        record.encode(&mut batch.bytes).unwrap();
        batch.push(start, &queue, 1, 2_598_919);
        let place = |name| LightPlace::of(store.queues.open_light(name).unwrap());
        batch.number_last(Numbers::Light(list.split(',').map(place).collect()), text.len());
    }
    let appended = store.log.append(&mut batch, 1_000).unwrap();
    store.dispatch.dispatch(&batch, &appended).unwrap();
}

/// The log offsets of the units of a light queue, and the offset that the next one gets.
fn units(store: &Opened, name: &str) -> (Vec<u64>, i64) {
    let queue = store.queues.get(name, 0).expect("a light queue");
    let units = queue.units(0, 1000).inspect(|unit| assert_eq!(unit.tags_code, 2_598_919));
    (units.map(|unit| unit.log_offset).collect(), queue.next_offset())
}

/// 4.21
#[test]
fn light_queues_are_made_again_from_the_log_as_they_were_whatever_is_left_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_dir(dir.path(), true);
    append(&mut store, &["%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b,%LMQ%b"]);
    append(&mut store, &["%LMQ%a"]);
    let (main, next) = {
        let queue = store.queues.get("T", 2).unwrap();
        (queue.units(0, 10).map(|unit| unit.log_offset).collect::<Vec<_>>(), queue.next_offset())
    };
    assert_eq!(next, 4);
    let wanted = [(vec![main[0], main[1], main[3]], 3), (vec![main[1], main[2]], 2)];
    let light = |store: &Opened| ["%LMQ%a", "%LMQ%b"].map(|name| units(store, name));
    assert_eq!(light(&store), wanted);
    drop(store);
    for lost in [None, Some("consumequeue/%LMQ%b"), Some("consumequeue")] {
        if let Some(lost) = lost {
            std::fs::remove_dir_all(dir.path().join(lost)).unwrap();
        }
        assert_eq!(light(&open_dir(dir.path(), true)), wanted, "without {lost:?}");
    }
    let mut store = open_dir(dir.path(), true);
    append(&mut store, &["%LMQ%b"]);
    assert_eq!(units(&store, "%LMQ%b").1, 3, "it goes on behind what was there");
}

#[test]
fn a_light_queue_that_was_deleted_begins_anew_and_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_dir(dir.path(), true);
    append(&mut store, &["%LMQ%a"; 90]);
    store.queues.remove("%LMQ%a").unwrap();
    append(&mut store, &["%LMQ%a"; 70]);
    let wanted = units(&store, "%LMQ%a");
    assert_eq!((wanted.0.len(), wanted.1), (70, 70));
    drop(store);
    assert_eq!(units(&open_dir(dir.path(), true), "%LMQ%a"), wanted);
}

#[test]
fn without_the_setting_no_light_queue_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_dir(dir.path(), true);
    append(&mut store, &["%LMQ%a"]);
    drop(store);
    std::fs::remove_dir_all(dir.path().join("consumequeue/%LMQ%a")).unwrap();
    assert!(open_dir(dir.path(), false).queues.get("%LMQ%a", 0).is_none());
    assert_eq!(units(&open_dir(dir.path(), true), "%LMQ%a").1, 1);
}

/// 3.12 #114: no more than `maxLmqConsumeQueueNum`.
#[test]
fn there_are_no_more_light_queues_than_the_setting_allows() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { light_queues_max: 2, ..StoreConfig::in_dir(dir.path()) };
    let store = open(config, Arc::new(ManualClock::at(1_000))).unwrap();
    for name in ["%LMQ%a", "%LMQ%b", "%LMQ%a"] {
        store.queues.open_light(name).unwrap();
    }
    let error = store.queues.open_light("%LMQ%c").unwrap_err().to_string();
    assert_eq!(error, "there are 2 light queues (maxLmqConsumeQueueNum), and may not be more");
    store.queues.remove("%LMQ%a").unwrap();
    store.queues.open_light("%LMQ%c").unwrap();
}
