//! Appending units to a queue; the dispatcher alone does it.
//!
//! Invariants:
//! - units leave no gap: a unit behind the end is an error, one before the end is there already;
//! - in front of the first message of a plain queue whose older messages are gone stands filler, never behind;
//! - the offset is published after the unit is complete.

use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::files::QueueFile;
use super::unit::{BatchUnit, PlainUnit, UNIT_BYTES};
use super::{ConsumeQueue, QueueKind, Unit};
use crate::error::StoreError;
use crate::faults;
use crate::mmap::WordMap;

/// Words of 32 bits of a plain unit.
const UNIT_WORDS: usize = UNIT_BYTES / 4;

/// Most lost messages that are bridged by holes.
pub(super) const HOLES_MAX: i64 = 1_000_000;

/// What became of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It stands at the end of the queue.
    Appended,
    /// The queue had it already.
    Known,
    /// Units between the end of the queue and this one are missing.
    Gap {
        /// Offset the queue expects next.
        expected: i64,
    },
}

impl ConsumeQueue {
    /// Appends `unit`, stored at `store_timestamp_ms` (which batch queues keep).
    pub(crate) fn put(&self, unit: &Unit, store_timestamp_ms: i64) -> Result<Put, StoreError> {
        let expected = self.max_offset.load(Ordering::Relaxed);
        if unit.queue_offset != expected {
            if unit.queue_offset < expected {
                return Ok(Put::Known);
            }
            if expected != 0 || !self.files.list().is_empty() {
                return Ok(Put::Gap { expected });
            }
        }
        if self.is_removed() {
            return Ok(Put::Known);
        }
        let position = self.end.load(Ordering::Relaxed);
        let files = self.files.list();
        match files.last() {
            Some(file) if position < file.end() => self.write(file, position, unit, store_timestamp_ms)?,
            _ => {
                let (file, position) = self.next_file(position, unit)?;
                self.write(&file, position, unit, store_timestamp_ms)?;
            }
        }
        Ok(Put::Appended)
    }

    /// Appends units of a plain queue, in their order, and publishes them together. Stops at a gap; what stands before
    /// it is published, as it is before an error.
    pub(crate) fn put_all(&self, units: impl Iterator<Item = Unit>) -> Result<Put, StoreError> {
        let mut units = units.peekable();
        while let Some(next) = units.peek() {
            let files = self.files.list();
            let position = self.end.load(Ordering::Relaxed);
            let is_next = next.queue_offset == self.max_offset.load(Ordering::Relaxed);
            match files.last() {
                Some(file) if is_next && position < file.end() && !self.is_removed() => {
                    self.write_run(file, position, &mut units)?;
                }
                _ => match self.put(next, 0)? {
                    gap @ Put::Gap { .. } => return Ok(gap),
                    Put::Appended | Put::Known => drop(units.next()),
                },
            }
        }
        Ok(Put::Appended)
    }

    /// Writes units that follow one on another, as far as they do and `file` has room, and publishes them.
    #[inline]
    fn write_run(
        &self,
        file: &QueueFile,
        mut position: u64,
        units: &mut Peekable<impl Iterator<Item = Unit>>,
    ) -> Result<(), StoreError> {
        let mut last = None;
        let mut outcome = Ok(());
        while let Some(unit) = units.next_if(|unit| {
            position < file.end() && last.is_none_or(|last: Unit| unit.queue_offset == last.next_offset())
        }) {
            match file.writable(position, UNIT_BYTES as u64) {
                Ok(map) => write_plain(file, map, position, &unit),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            position += UNIT_BYTES as u64;
            last = Some(unit);
        }
        if let Some(last) = last {
            self.publish_to(position, &last);
        }
        outcome
    }

    /// Everything before `position` is written, `last` last.
    #[inline]
    fn publish_to(&self, position: u64, last: &Unit) {
        self.end.store(position, Ordering::Release);
        self.log_end.store(last.log_end(), Ordering::Release);
        self.max_offset.store(last.next_offset(), Ordering::Release);
    }

    /// Forgets all units, so that the queue begins anew with whatever comes. For recovery alone.
    pub(crate) fn reset(&self) -> Result<(), StoreError> {
        let last_file = self.files.list().last().map_or(0, |last| self.offset_at(last.start()));
        self.given_up_at.fetch_max(last_file.max(self.max_offset()), Ordering::Relaxed);
        self.files.retain(|_| false)?;
        self.min_log.store(0, Ordering::Relaxed);
        self.own_from.store(0, Ordering::Release);
        self.end.store(0, Ordering::Release);
        self.log_end.store(0, Ordering::Release);
        self.max_offset.store(0, Ordering::Release);
        self.min_offset.store(0, Ordering::Release);
        Ok(())
    }

    /// Lets a queue without a file go on at an offset, which its file keeps. For recovery alone.
    pub(crate) fn begin_at(&self, queue_offset: i64) -> Result<(), StoreError> {
        if self.kind() == QueueKind::Batch {
            return self.put(&Unit::hole(queue_offset - 1, 0), 0).map(|_| ());
        }
        let (file, position) = self.file_from(queue_offset)?;
        self.publish_end(position)?;
        self.flushed.store(file.start(), Ordering::Relaxed);
        Ok(())
    }

    /// Makes room for a unit whose predecessors the log has lost: a queue without a readable message starts
    /// anew at its offset, any other gets holes. For recovery alone.
    pub(crate) fn bridge(&self, to: i64) -> Result<(), StoreError> {
        let expected = self.max_offset.load(Ordering::Relaxed);
        let lost = to - expected;
        let keeps = self.min_offset() < expected && lost <= HOLES_MAX;
        tracing::warn!(topic = %self.topic, queue_id = self.queue_id, lost, keeps, "messages are lost");
        if !keeps {
            return self.reset();
        }
        let each_max = match self.kind() {
            QueueKind::Plain => 1,
            QueueKind::Batch => i16::MAX.cast_unsigned(),
        };
        let mut at = expected;
        while at < to {
            let count = u16::try_from(to - at).unwrap_or(each_max).min(each_max);
            let hole = Unit { count, ..Unit::hole(at, self.log_end()) };
            self.put(&hole, 0)?;
            at = hole.next_offset();
        }
        Ok(())
    }

    /// Writes the unit and publishes it.
    #[inline]
    fn write(
        &self,
        file: &QueueFile,
        position: u64,
        unit: &Unit,
        store_timestamp_ms: i64,
    ) -> Result<(), StoreError> {
        let map = file.writable(position, self.kind().unit_bytes())?;
        match self.kind() {
            QueueKind::Plain => write_plain(file, map, position, unit),
            QueueKind::Batch => {
                let batch = BatchUnit {
                    log_offset: unit.log_offset.cast_signed(),
                    size: unit.size.cast_signed(),
                    tags_code: unit.tags_code,
                    store_timestamp_ms,
                    first_offset: unit.queue_offset,
                    count: unit.count.cast_signed(),
                };
                faults::store(file.path(), || map.write(file.at(position), &batch.bytes()));
            }
        }
        self.publish_to(position + self.kind().unit_bytes(), unit);
        Ok(())
    }

    /// Creates the file the unit goes to, and the position in it.
    #[cold]
    fn next_file(&self, position: u64, unit: &Unit) -> Result<(Arc<QueueFile>, u64), StoreError> {
        let bytes = self.folder.file_bytes();
        if !self.files.list().is_empty() || unit.queue_offset == 0 {
            return Ok((self.files.append(&self.dir(), position, bytes)?, position));
        }
        if self.kind() == QueueKind::Batch {
            self.min_offset.store(unit.queue_offset, Ordering::Release);
            return Ok((self.files.append(&self.dir(), 0, bytes)?, 0));
        }
        self.file_from(unit.queue_offset)
    }

    /// Creates the first file of a plain queue that begins with this offset, which becomes the minimum. Before it
    /// stands filler.
    fn file_from(&self, queue_offset: i64) -> Result<(Arc<QueueFile>, u64), StoreError> {
        let bytes = self.folder.file_bytes();
        let position = queue_offset.cast_unsigned() * UNIT_BYTES as u64;
        let start = position - position % bytes;
        let file = self.files.append(&self.dir(), start, bytes)?;
        let map = file.writable(start, position - start)?;
        let words = PlainUnit::PRE_BLANK.words();
        for at in (0..file.at(position)).step_by(4) {
            map.word(at).store(words[at / 4 % words.len()].to_be(), Ordering::Relaxed);
        }
        self.min_offset.store(queue_offset, Ordering::Release);
        Ok((file, position))
    }
}

/// Writes a unit of a plain queue to its place.
#[inline]
fn write_plain(file: &QueueFile, map: &WordMap, position: u64, unit: &Unit) {
    let (log_offset, size) = (unit.log_offset.cast_signed(), unit.size.cast_signed());
    let plain = PlainUnit { log_offset, size, tags_code: unit.tags_code };
    faults::store(file.path(), || {
        for (place, word) in map.words(file.at(position), UNIT_WORDS).iter().zip(plain.words()) {
            place.store(word.to_be(), Ordering::Relaxed);
        }
    });
}
