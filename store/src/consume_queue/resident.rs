//! Whether units can be read without waiting for the disk, and fetching those that cannot.
//!
//! Invariants:
//! - units that came a moment ago are in memory: the system is not asked for them;
//! - of older ones, a file that is not mapped counts as not in memory: to map it may wait too.
//!
//! Deliberately absent: the extension, which the system is not asked for; what is fetched has its units of it too.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::files::QueueFile;
use super::{ConsumeQueue, QueueKind, Unit};

/// Units at the end of a queue that came a moment ago if the last one did: 400 KB.
const NEAR_UNITS: i64 = 20_000;

/// A unit that is not in memory.
struct OnDisk;

impl ConsumeQueue {
    /// Whether the units from the message `from` on, at most `max`, can be read without waiting for the disk. What was
    /// written to the log from `hot_from` on came a moment ago.
    pub fn is_resident(&self, from: i64, max: usize, hot_from: u64) -> bool {
        self.is_hot(from, hot_from) || self.is_in_memory(from, max)
    }

    /// Brings the same units into memory; waits for the disk.
    pub fn fetch(&self, from: i64, max: usize) {
        self.units(from, max).each_while(|unit| {
            black_box(unit);
            true
        });
    }

    fn is_hot(&self, from: i64, hot_from: u64) -> bool {
        from >= self.own_from.load(Ordering::Acquire)
            && self.max_offset().saturating_sub(from) <= NEAR_UNITS
            && self.log_end() >= hot_from
    }

    /// Asks the system.
    fn is_in_memory(&self, from: i64, max: usize) -> bool {
        if !(self.min_offset()..self.max_offset()).contains(&from) {
            // There is nothing to wait for.
            return true;
        }
        let start = match self.kind() {
            QueueKind::Plain => Ok(self.position_of(from)),
            QueueKind::Batch => self.search_batch(from, |position| self.unit_in_memory(position)),
        };
        match start {
            Ok(start) => start.is_none_or(|start| self.holds(start, max)),
            Err(OnDisk) => false,
        }
    }

    /// Whether `max` units from a byte position on are in memory.
    fn holds(&self, start: u64, max: usize) -> bool {
        let bytes = (max as u64).saturating_mul(self.kind().unit_bytes());
        let end = start.saturating_add(bytes).min(self.end.load(Ordering::Acquire));
        let list = self.files.list();
        let mut files = list.iter().filter(|file| file.start() < end && file.end() > start);
        files.all(|file| holds(file, file.at(start.max(file.start()))..file.at(end.min(file.end()))))
    }

    fn unit_in_memory(&self, position: u64) -> Result<Option<Unit>, OnDisk> {
        let Some(file) = self.files.at(position) else { return Ok(None) };
        let unit = file.at(position)..file.at(position + self.kind().unit_bytes());
        if holds(&file, unit) { Ok(self.unit_in(&file, position)) } else { Err(OnDisk) }
    }
}

fn holds(file: &QueueFile, range: Range<usize>) -> bool {
    file.mapped().is_some_and(|map| map.is_resident(range))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::super::{Put, QueueTable, Trust};
    use super::*;
    use crate::StoreConfig;

    /// Units of each file: whole pages of them.
    const IN_FILE: i64 = 2_048;

    fn table(dir: &Path) -> QueueTable {
        let bytes = |kind: QueueKind| IN_FILE.cast_unsigned() * kind.unit_bytes();
        let config = StoreConfig {
            queue_file_bytes: bytes(QueueKind::Plain),
            batch_queue_file_bytes: bytes(QueueKind::Batch),
            ..StoreConfig::in_dir(dir)
        };
        QueueTable::load(&config).unwrap()
    }

    /// A queue of three files, as a new start finds it.
    fn reopened(dir: &Path, is_batch: bool) -> Arc<ConsumeQueue> {
        let written = table(dir);
        if is_batch {
            written.declare_batch("T");
        }
        let queue = written.open_or_create("T", 0).unwrap();
        for queue_offset in 0..IN_FILE * 5 / 2 {
            let log_offset = queue_offset.cast_unsigned() * 100;
            let unit = Unit { queue_offset, log_offset, size: 100, tags_code: 0, count: 1 };
            assert_eq!(queue.put(&unit, 0).unwrap(), Put::Appended);
        }
        assert!(queue.is_hot(0, 0), "they came a moment ago");
        assert!(!queue.is_hot(0, queue.log_end() + 1), "much has come to other queues since");
        written.flush().unwrap();
        let found = table(dir);
        found.recover(Trust::Clean).unwrap();
        found.get("T", 0).unwrap()
    }

    /// Asks the system to forget the content of a file, as it does when it needs the memory.
    fn evict(file: &QueueFile) {
        file.flush().unwrap();
        file.drop_pages(file.end());
        let disk = file.open().unwrap();
        rustix::fs::fadvise(&disk, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    #[test]
    fn units_that_are_not_in_memory_are_told_until_they_are_fetched() {
        for is_batch in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let queue = reopened(dir.path(), is_batch);
            let from = IN_FILE - 50;
            let is_there = |max| queue.is_resident(from, max, 0);
            assert!(!is_there(1) && !is_there(100), "no file is mapped");
            queue.fetch(from, 100);
            assert!(is_there(1) && is_there(100));
            let readable = [-1, IN_FILE * 5 / 2].map(|from| queue.is_resident(from, 100, 0));
            assert_eq!(readable, [true; 2], "there is nothing to wait for");
            evict(&queue.files.list()[1]);
            if is_there(100) {
                eprintln!("not looked at: this file system keeps in memory what is not needed");
                continue;
            }
            assert!(is_batch || is_there(1), "the first file stayed");
            queue.fetch(from, 100);
            assert!(is_there(1) && is_there(100));
        }
    }

    #[test]
    fn a_queue_is_hot_near_its_end_only() {
        let dir = tempfile::tempdir().unwrap();
        let queue = table(dir.path()).open_or_create("T", 0).unwrap();
        queue.max_offset.store(NEAR_UNITS + 10, Ordering::Release);
        assert_eq!([9, 10, 11].map(|from| queue.is_hot(from, 0)), [false, true, true]);
        queue.own_from.store(11, Ordering::Release);
        assert_eq!([9, 10, 11].map(|from| queue.is_hot(from, 0)), [false, false, true]);
    }
}
