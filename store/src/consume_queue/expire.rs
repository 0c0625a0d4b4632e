//! Moving the minimum of a queue behind what the log has lost, and deleting files nobody can read any more.
//!
//! Invariants:
//! - the minimum never goes back while the store is open, and never beyond the maximum;
//! - the last file stays: its name keeps the offset of the queue;
//! - the minimum is moved first, the file deleted after.

use std::sync::atomic::Ordering;

use super::ConsumeQueue;
use super::batch::try_search;
use super::extension::is_address;
use super::recover::Found;
use crate::error::StoreError;

impl ConsumeQueue {
    /// Moves the minimum to the first message whose record is not before `log_min`.
    pub(crate) fn correct_min(&self, log_min: u64) -> Result<(), StoreError> {
        if self.min_log.load(Ordering::Relaxed) > log_min {
            return Ok(());
        }
        let Some(position) = self.first_alive(log_min)? else { return Ok(()) };
        let (min, min_log) = match self.peek(position)? {
            Found::Unit(unit) => (unit.queue_offset, unit.log_offset + 1),
            _ => (self.max_offset(), 0),
        };
        self.min_log.store(min_log, Ordering::Relaxed);
        self.min_offset.fetch_max(min, Ordering::AcqRel);
        Ok(())
    }

    /// Moves the minimum and deletes the files whose records are all before `log_min`; tells how many.
    pub(crate) fn expire(&self, log_min: u64) -> Result<usize, StoreError> {
        self.correct_min(log_min)?;
        Ok(self.expire_files(log_min)? + self.expire_extension(log_min)?)
    }

    /// Byte position of the first unit whose record is not before `log_min`, or the end; none in an empty queue.
    fn first_alive(&self, log_min: u64) -> Result<Option<u64>, StoreError> {
        let bytes = self.kind().unit_bytes();
        let Some(first) = self.first_byte().map(|first| first / bytes) else { return Ok(None) };
        let end = self.end.load(Ordering::Acquire) / bytes;
        // What cannot be read is not taken for gone.
        let is_alive = |index: u64| match self.peek(index * bytes)? {
            Found::Unit(unit) => Ok(unit.log_offset >= log_min),
            _ => Ok(false),
        };
        let index = if is_alive(first)? { first } else { try_search(first, end, is_alive)? };
        Ok(Some(index * bytes))
    }

    /// Deletes what the extension holds of messages before `log_min`.
    fn expire_extension(&self, log_min: u64) -> Result<usize, StoreError> {
        let Some(position) = self.first_alive(log_min)? else { return Ok(0) };
        match self.peek(position)? {
            Found::Unit(unit) if is_address(unit.tags_code) => self.extension()?.expire(unit.tags_code),
            _ => Ok(0),
        }
    }

    fn expire_files(&self, log_min: u64) -> Result<usize, StoreError> {
        let bytes = self.kind().unit_bytes();
        let list = self.files.list().to_vec();
        let mut gone_below = 0;
        for pair in list.windows(2) {
            let last_unit = pair[1].start() - bytes;
            match self.peek(last_unit)? {
                Found::Unit(unit) if unit.log_offset >= log_min => break,
                _ => gone_below = pair[1].start(),
            }
        }
        if gone_below == 0 {
            return Ok(0);
        }
        self.files.retain(|file| file.start() >= gone_below)
    }
}
