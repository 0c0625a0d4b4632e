//! Units read through the files of a queue, by those who own what they speak of and by those who look something up.
//!
//! Invariants:
//! - they are those that `units` gives, and no page is touched through the map: what the disk cannot read is an error,
//!   and never the end of the process;
//! - what does not wait for the disk never does: where it is not known to be in memory, it is `Cold`.

use std::sync::atomic::Ordering;

use super::extension::is_address;
use super::files::QueueFile;
use super::unit::{BATCH_UNIT_BYTES, BatchUnit, PlainUnit, UNIT_BYTES, Unit};
use super::{ConsumeQueue, QueueKind};
use crate::error::StoreError;
use crate::no_wait::Cold;

impl ConsumeQueue {
    /// The units from the message `from` on, at most `max`; nothing if `from` cannot be read. Waits for the disk.
    ///
    /// # Errors
    /// If it cannot read them.
    pub fn read(&self, from: i64, max: usize) -> Result<Vec<Unit>, StoreError> {
        let first = match self.kind() {
            QueueKind::Plain => None,
            QueueKind::Batch => Some(self.search_on_disk(from)?),
        };
        let read = |file: &QueueFile, bytes: &mut [u8], at| file.read(&file.open()?, bytes, at);
        let mut units = self.read_by((from, first), max, read)?;
        for unit in units.iter_mut().filter(|unit| is_address(unit.tags_code)) {
            unit.tags_code = self.tags_in_extension(unit.tags_code);
        }
        Ok(units)
    }

    /// The unit that holds the message with this offset. Waits for the disk.
    ///
    /// # Errors
    /// If it cannot read it.
    pub fn read_unit(&self, queue_offset: i64) -> Result<Option<Unit>, StoreError> {
        Ok(self.read(queue_offset, 1)?.pop())
    }

    /// The same as [`ConsumeQueue::read`] if that waits for no disk. A batch queue has to be searched, which may.
    ///
    /// # Errors
    /// If it is not known to be in memory.
    pub fn read_now(&self, from: i64, max: usize) -> Result<Vec<Unit>, Cold> {
        if self.kind() == QueueKind::Batch {
            return Err(Cold);
        }
        let units = self.read_by((from, None), max, QueueFile::read_now)?;
        if units.iter().any(|unit| is_address(unit.tags_code)) { Err(Cold) } else { Ok(units) }
    }

    /// The units from a message on, which is at byte position `first` if that does not follow from its offset.
    fn read_by<E>(
        &self,
        (from, first): (i64, Option<u64>),
        max: usize,
        mut read: impl FnMut(&QueueFile, &mut [u8], u64) -> Result<(), E>,
    ) -> Result<Vec<Unit>, E> {
        let below = self.max_offset();
        if from < self.min_offset() || from >= below {
            return Ok(Vec::new());
        }
        let end = self.end.load(Ordering::Acquire);
        let (mut position, to) = match first {
            Some(first) => (first, first.saturating_add(self.kind().unit_bytes().saturating_mul(max as u64))),
            None => self.range(from, max),
        };
        let to = to.min(end);
        let mut units = Vec::new();
        let mut bytes = Vec::new();
        while position < to {
            let Some(file) = self.files.at(position) else { break };
            let len = to.min(file.end()) - position;
            bytes.resize(usize::try_from(len).expect("the size of a queue file fits the address space"), 0);
            read(&file, &mut bytes, file.at(position) as u64)?;
            self.take_units(&bytes, position, &mut units);
            position += len;
        }
        // In front of the first may stand the end of what was searched, behind the last what came meanwhile.
        units.retain(|unit| unit.next_offset() > from && unit.queue_offset < below);
        Ok(units)
    }

    /// Adds the units that these bytes of a file are, which stand at a byte position.
    fn take_units(&self, bytes: &[u8], position: u64, units: &mut Vec<Unit>) {
        match self.kind() {
            QueueKind::Plain => {
                let first = (position / UNIT_BYTES as u64).cast_signed();
                let read = bytes.as_chunks::<UNIT_BYTES>().0.iter().map(PlainUnit::from_bytes);
                units.extend((first..).zip(read).map(|(queue_offset, unit)| unit.at(queue_offset)));
            }
            QueueKind::Batch => {
                let read = bytes.as_chunks::<BATCH_UNIT_BYTES>().0.iter().map(BatchUnit::from_bytes);
                units.extend(read.map(|unit| unit.unit()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cold::tests::{evicted, forgotten};
    use super::*;
    use crate::faults::{self, Op};
    use crate::testing::until;

    fn offsets(units: &[Unit]) -> Vec<i64> {
        units.iter().map(|unit| unit.queue_offset).collect()
    }

    #[test]
    fn units_read_through_the_files_are_those_of_the_map() {
        for kind in [QueueKind::Plain, QueueKind::Batch] {
            let dir = tempfile::tempdir().unwrap();
            let queue = forgotten(dir.path(), kind);
            for (from, max) in
                [(0, 1), (4_990, 20), (11_990, 100), (12_000, 1), (-1, 5), (i64::MAX, 5), (7, 0)]
            {
                let read = queue.read(from, max).unwrap();
                assert_eq!(read, queue.units(from, max).collect::<Vec<_>>(), "{kind:?} {from} {max}");
            }
            assert_eq!(queue.read_unit(7_000).unwrap(), queue.unit(7_000));
        }
    }

    #[test]
    fn what_is_not_in_memory_is_cold_and_in_memory_when_it_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let queue = forgotten(dir.path(), QueueKind::Plain);
        assert_eq!(queue.read_now(4_990, 20), Err(Cold), "to open its file may wait too");
        // The system may take a page at any time, or bring it in.
        until("what was looked at is in memory", || {
            queue.units(4_990, 20).for_each(drop);
            queue.read_now(4_990, 20).is_ok_and(|units| offsets(&units) == (4_990..5_010).collect::<Vec<_>>())
        });
        assert_eq!(queue.read_now(12_000, 20), Ok(Vec::new()));
        evicted(dir.path(), QueueKind::Plain);
        until("what was read is in memory", || {
            assert_eq!(queue.read(4_990, 20).unwrap().len(), 20);
            queue.read_now(4_990, 20).is_ok_and(|units| units.len() == 20)
        });
        let not_there = faults::forget(dir.path());
        assert_eq!(queue.read_now(4_990, 20), Err(Cold));
        assert_eq!((queue.read(4_990, 20).unwrap().len(), not_there.seen()), (20, 2), "of two files");
        drop(not_there);
        let batch = tempfile::tempdir().unwrap();
        let queue = forgotten(batch.path(), QueueKind::Batch);
        queue.units(0, 20).for_each(drop);
        assert_eq!(queue.read_now(0, 20), Err(Cold), "it has to be searched");
    }

    #[test]
    fn what_the_disk_cannot_read_is_an_error_with_file_and_place_for_who_waits_and_cold_for_who_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let queue = forgotten(dir.path(), QueueKind::Plain);
        queue.units(0, 12_000).for_each(drop);
        let broken = faults::arm(dir.path(), Op::Read, 0, 5);
        assert_eq!(queue.read_now(7_000, 1), Err(Cold));
        let told = queue.read(7_000, 1).unwrap_err().to_string();
        assert!(told.contains("T/1/00000000000000100000: ") && told.ends_with(", at byte 40000"), "{told}");
        drop(broken);
        assert_eq!(queue.read_unit(7_000).unwrap().map(|unit| unit.log_offset), Some(700_000));
    }
}
