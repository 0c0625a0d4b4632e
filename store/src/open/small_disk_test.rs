//! A real file system that somebody else fills: nothing ends the process, writers are told, and it heals.
//!
//! Invariants:
//! - needs the right to mount a file system in memory; where that is missing the test says so and tests nothing.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::commit_log::batch::AppendBatch;
use crate::testing::Sample;
use crate::timer::{NewTimer, TIMER_TOPIC, TimerStore};

const DISK_BYTES: u64 = 8 << 20;

/// A small file system, gone when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = TempDir::new().unwrap();
        let size = format!("size={DISK_BYTES}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "troupemq-test"])
            .arg(dir.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk(dir)),
            Ok(output) => {
                eprintln!("not tested: mount says {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("not tested: mount cannot be run: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all that is free, as another process does.
    fn fill(&self) {
        let mut more = 1_usize << 20;
        let path = self.path().join("other");
        while more > 0 {
            let mut had = std::fs::read(&path).unwrap_or_default();
            had.resize(had.len() + more, 1);
            if std::fs::write(&path, &had).is_err() {
                had.truncate(had.len() - more);
                // What did not fit is cut off again, so that not a page is left.
                let _full = std::fs::write(&path, &had);
                more /= 2;
            }
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.path().join("other")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "the test's file system stays mounted");
    }
}

fn config(disk: &SmallDisk) -> StoreConfig {
    StoreConfig {
        log_segment_bytes: 1 << 20,
        queue_file_bytes: 100_000,
        index_slots_max: 500,
        index_entries_max: 20_000,
        disk_free_floor_bytes: 0,
        disk_full_percent: 100,
        ..StoreConfig::in_dir(disk.path().join("store"))
    }
}

fn send(opened: &mut Opened, topic: &str, queue_id: i32) -> Result<(), StoreError> {
    let queue = opened.queues.open_or_create(topic, queue_id)?;
    let mut batch = AppendBatch::default();
    Sample { queue_id, fill: 7, body_bytes: 100 }.push(&mut batch, &queue);
    let appended = opened.log.append(&mut batch, 1_000)?;
    opened.dispatch.dispatch(&batch, &appended)
}

#[test]
fn a_disk_that_another_process_fills_refuses_writes_and_ends_no_process() {
    let Some(disk) = SmallDisk::mount() else { return };
    let mut opened = open(config(&disk), Arc::new(crate::SystemClock::new())).unwrap();
    for queue_id in 0..4 {
        send(&mut opened, Sample::TOPIC, queue_id).unwrap();
    }
    disk.fill();
    // The log has its segment, queues and index run out of their blocks.
    let mut stored = 4;
    let refused = loop {
        match send(&mut opened, Sample::TOPIC, stored % 4) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 5_000, "the disk was not full");
    };
    assert!(refused.is_out_of_space(), "{refused}");
    assert!(opened.space.check().is_err() && opened.poison.cause().is_none());
    assert!(opened.dispatch.catch_up(&opened.reader).is_err());
    disk.free();
    opened.dispatch.catch_up(&opened.reader).unwrap();
    for queue_id in 0..4 {
        send(&mut opened, Sample::TOPIC, queue_id).unwrap();
    }
    let of = |opened: &Opened| -> i64 {
        (0..4).map(|queue_id| opened.queues.get(Sample::TOPIC, queue_id).unwrap().max_offset()).sum()
    };
    // The one that was refused is in the log, and got its unit later.
    assert_eq!(of(&opened), i64::from(stored) + 1 + 4);
    let before = of(&opened);
    drop(opened);
    assert_eq!(of(&open(config(&disk), Arc::new(crate::SystemClock::new())).unwrap()), before);
}

#[test]
fn timers_are_refused_on_a_full_disk_and_entered_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let config = StoreConfig { timer_log_file_bytes: 1 << 20, ..config(&disk) };
    let mut opened = open(config, Arc::new(crate::SystemClock::new())).unwrap();
    send(&mut opened, TIMER_TOPIC, 0).unwrap();
    let mut timers = TimerStore::open(&opened.config, &opened.queues, &opened.reader, 1_000_000).unwrap();
    disk.fill();
    let timer = |number: i64| NewTimer {
        queue_offset: number,
        log_offset: 0,
        size: 100,
        stored_ms: 1_000_000,
        due_ms: 1_000_000 + number * 60_000,
        is_delete: false,
        topic_hash: 0,
    };
    let mut entered = 0;
    let refused = loop {
        match timers.put(&timer(entered), 1_000_000) {
            Ok(_) => entered += 1,
            Err(error) => break error,
        }
        assert!(entered < 5_000, "the disk was not full");
    };
    assert!(refused.is_out_of_space(), "{refused}");
    disk.free();
    for number in entered..entered + 200 {
        timers.put(&timer(number), 1_000_000).unwrap();
    }
    assert_eq!(timers.pending(), entered + 200);
}
