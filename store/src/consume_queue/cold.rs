//! Units that are on the disk only: whether reading them would wait, and reading them where waiting is allowed.
//!
//! Invariants:
//! - nothing is read to answer whether something is in memory;
//! - what was fetched without an error can be read through the map.

use std::sync::atomic::Ordering;

use super::batch::try_search;
use super::extension::QueueExtension;
use super::recover::Found;
use super::{ConsumeQueue, QueueKind};
use crate::error::StoreError;

/// Units at the end of a batch queue that are taken for being in memory if this process has written them.
const NEAR_END: i64 = 4096;
/// Bytes of units that are fetched at least: who reads on finds them in memory.
const FETCH_MIN_BYTES: u64 = 64 << 10;

impl ConsumeQueue {
    /// Whether reading at most `count` units from the message `from` on waits for no disk, as far as was seen in the
    /// last seconds: `now_s` is the time of any clock.
    pub fn was_resident(&self, from: i64, count: usize, now_s: u32) -> bool {
        if self.is_fresh(from) {
            return true;
        }
        let end = self.end.load(Ordering::Acquire);
        // The unit of a batch queue is searched, so all of them are in memory, or a reader from the disk searches.
        let (first, to) = match self.kind() {
            QueueKind::Plain => self.range(from, count),
            QueueKind::Batch => (0, end),
        };
        let list = self.files.list();
        let mut touched = list.iter().filter(|file| file.start() < to && first < file.end());
        let are_there = touched.all(|file| file.was_resident((first, to), end, now_s));
        are_there && self.extension.get().is_none_or(|extension| extension.was_resident(now_s))
    }

    /// Whether this process has written the units from the message `from` on, and the disk may not have them yet: the
    /// system gives up no such page.
    fn is_fresh(&self, from: i64) -> bool {
        match self.kind() {
            QueueKind::Plain => self.range(from, 0).0 >= self.flushed.load(Ordering::Relaxed),
            // Where it stands is searched; what was written last is most likely there.
            QueueKind::Batch => {
                from >= self.own_from.load(Ordering::Acquire) && from >= self.max_offset() - NEAR_END
            }
        }
    }

    /// Brings at most `count` units from the message `from` on into memory, and some more, on a thread that may wait.
    ///
    /// # Errors
    /// If the disk cannot read them: then nobody may read them through the map.
    pub fn fetch(&self, from: i64, count: usize) -> Result<(), StoreError> {
        let end = self.end.load(Ordering::Acquire);
        let (first, to) = match self.kind() {
            QueueKind::Plain => self.range(from, count),
            QueueKind::Batch => {
                let first = self.search_on_disk(from)?;
                (first, first.saturating_add(self.kind().unit_bytes().saturating_mul(count as u64)))
            }
        };
        let to = to.max(first.saturating_add(FETCH_MIN_BYTES)).min(end);
        let list = self.files.list();
        let mut touched = list.iter().filter(|file| file.start() < to && first < file.end());
        touched.try_for_each(|file| file.fetch((first, to)))?;
        match self.extension.get() {
            Some(extension) if first < to => self.fetch_extension(extension, (first, to)),
            _ => Ok(()),
        }
    }

    /// Brings into memory what the extension keeps of the units from byte position `first` to `to`.
    fn fetch_extension(&self, extension: &QueueExtension, (first, to): (u64, u64)) -> Result<(), StoreError> {
        let [from, last] =
            [first, to - self.kind().unit_bytes()].map(|position| match self.peek(position)? {
                Found::Unit(unit) => Ok(unit.tags_code),
                Found::Nothing | Found::PreBlank => Ok(0),
            });
        extension.fetch(from?, last?)
    }

    /// Byte positions of `count` units of a plain queue.
    pub(super) fn range(&self, from: i64, count: usize) -> (u64, u64) {
        let unit_bytes = self.kind().unit_bytes();
        let first = u64::try_from(from).unwrap_or(0).saturating_mul(unit_bytes);
        (first, first.saturating_add(unit_bytes.saturating_mul(count as u64)))
    }

    /// Byte position of the unit of a batch queue that holds the message with this offset, searched through the files.
    pub(super) fn search_on_disk(&self, queue_offset: i64) -> Result<u64, StoreError> {
        let unit_bytes = self.kind().unit_bytes();
        let first = self.first_byte().unwrap_or(0) / unit_bytes;
        let end = self.end.load(Ordering::Acquire) / unit_bytes;
        let is_behind = |index: u64| match self.peek(index * unit_bytes)? {
            Found::Unit(unit) => Ok(unit.queue_offset > queue_offset),
            Found::Nothing | Found::PreBlank => Ok(true),
        };
        let behind = try_search(first, end, is_behind)?;
        Ok(behind.saturating_sub(1).max(first) * unit_bytes)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::config::StoreConfig;
    use crate::consume_queue::{QueueTable, Trust, Unit};
    use crate::faults::{self, Op};
    use crate::paths::Paths;
    use crate::testing::{evict, until};

    const FILE_UNITS: u64 = 5000;

    fn table(dir: &Path) -> QueueTable {
        let config = StoreConfig {
            queue_file_bytes: FILE_UNITS * 20,
            batch_queue_file_bytes: FILE_UNITS * 46,
            ..StoreConfig::in_dir(dir)
        };
        QueueTable::load(&config).unwrap()
    }

    fn fill(queue: &ConsumeQueue) {
        for queue_offset in 0..12_000_i64 {
            let log_offset = queue_offset.cast_unsigned() * 100;
            let unit = Unit { queue_offset, log_offset, size: 100, tags_code: 0, count: 1 };
            queue.put(&unit, 0).unwrap();
        }
    }

    /// A queue of three files that a start has found and the system has forgotten.
    pub(crate) fn forgotten(dir: &Path, kind: QueueKind) -> Arc<ConsumeQueue> {
        let new = table(dir);
        if kind == QueueKind::Batch {
            new.declare_batch("T");
        }
        let queue = new.open_or_create("T", 1).unwrap();
        fill(&queue);
        drop((new, queue));
        evicted(dir, kind);
        let table = table(dir);
        table.recover(Trust::Clean).unwrap();
        table.get("T", 1).unwrap()
    }

    /// Has the system forget the files of the queue, if it does that.
    pub(crate) fn evicted(dir: &Path, kind: QueueKind) {
        evict(&kind.folder(&Paths::below(dir)).join("T/1"));
    }

    /// Fetches units until they are found in memory: the system may take a page at any time.
    fn until_fetched(queue: &ConsumeQueue, (from, count): (i64, usize)) {
        until("what was fetched is in memory", || {
            queue.fetch(from, count).unwrap();
            queue.was_resident(from, count, 0)
        });
    }

    #[test]
    fn units_that_were_fetched_are_in_memory() {
        for kind in [QueueKind::Plain, QueueKind::Batch] {
            let dir = tempfile::tempdir().unwrap();
            let queue = forgotten(dir.path(), kind);
            let fault = faults::arm(dir.path(), Op::Read, u64::MAX, 5);
            queue.fetch(4990, 20).unwrap();
            assert!(fault.seen() >= 2, "{kind:?}: of two files");
            drop(fault);
            // A batch queue is all in memory, or a reader that may wait searches.
            if kind == QueueKind::Plain {
                until_fetched(&queue, (4990, 20));
            }
            let read: Vec<i64> = queue.units(4990, 20).map(|unit| unit.queue_offset).collect();
            assert_eq!(read, (4990..5010).collect::<Vec<_>>());
        }
    }

    #[test]
    fn units_that_this_process_has_written_are_asked_about_once_the_disk_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let queue = table(dir.path()).open_or_create("T", 1).unwrap();
        fill(&queue);
        assert!(queue.is_fresh(11_000) && queue.was_resident(11_000, 20, 0));
        let end = queue.unflushed().expect("nothing was flushed");
        queue.flush(end).unwrap();
        queue.flushed(end);
        // Whether they are there is up to the system from here on, which may fetch them again whenever it was asked.
        assert!(!queue.is_fresh(11_000));
        evicted(dir.path(), QueueKind::Plain);
        queue.fetch(11_000, 20).unwrap();
        assert!(queue.was_resident(11_000, 20, 0));
    }

    #[test]
    fn what_is_asked_about_beyond_the_end_needs_no_disk() {
        let dir = tempfile::tempdir().unwrap();
        let queue = forgotten(dir.path(), QueueKind::Plain);
        until_fetched(&queue, (11_999, 1000));
        for from in [12_000, 99_999, -1] {
            queue.fetch(from, 32).unwrap();
        }
        let _not_there = faults::forget(dir.path());
        assert!(!queue.was_resident(11_999, 1000, 0));
        assert!(queue.was_resident(12_000, 32, 0) && queue.was_resident(i64::MAX, 32, 0));
    }

    #[test]
    fn what_the_disk_cannot_read_is_an_error_with_the_file() {
        for kind in [QueueKind::Plain, QueueKind::Batch] {
            let dir = tempfile::tempdir().unwrap();
            let queue = forgotten(dir.path(), kind);
            let _broken = faults::arm(dir.path(), Op::Read, 0, 5);
            let told = queue.fetch(7000, 32).unwrap_err().to_string();
            let folder =
                format!("cannot read {}", kind.folder(&Paths::below(dir.path())).join("T/1").display());
            assert!(told.starts_with(&folder), "{told}");
        }
    }
}
