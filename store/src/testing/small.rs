//! Stores of small files, so that a few hundred messages fill several of each kind.
//!
//! Invariants:
//! - no disk is too full for them.

use std::path::PathBuf;

use super::Sample;
use crate::commit_log::batch::AppendBatch;
use crate::{Closing, Opened, StoreConfig, close};

/// Settings of a store of segments of 64 KiB and queue files of 60 units, which keeps no segment for later.
pub fn small_files(dir: impl Into<PathBuf>) -> StoreConfig {
    StoreConfig {
        log_segment_bytes: 65_536,
        queue_file_bytes: 1_200,
        index_slots_max: 500,
        index_entries_max: 1_200,
        recycled_max: 0,
        disk_free_floor_bytes: 0,
        disk_full_percent: 100,
        disk_clean_percent: 99,
        disk_used_max_percent: 95,
        ..StoreConfig::in_dir(dir)
    }
}

impl Sample {
    /// Stores the message in its queue of a topic, in a batch of its own.
    ///
    /// # Panics
    /// If the store does not take it.
    pub fn store(&self, opened: &mut Opened, topic: &str, store_timestamp_ms: i64) {
        let queue = opened.queues.open_or_create(topic, self.queue_id).expect("a good name");
        let mut batch = AppendBatch::default();
        self.push_to(topic, &mut batch, &queue);
        let appended = opened.log.append(&mut batch, store_timestamp_ms).expect("there is room");
        opened.dispatch.dispatch(&batch, &appended).expect("there is room");
    }
}

/// Closes a store in good order.
///
/// # Panics
/// If the disk does not take what is left to write.
pub fn close_well(opened: Opened) {
    let Opened { log, flusher, dispatch, queues, marks, .. } = opened;
    close(Closing { log, flusher, dispatch, queues, marks }).expect("the disk takes what is left");
}
