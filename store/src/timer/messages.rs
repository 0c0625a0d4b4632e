//! `Messages`: the messages of units, for a start that asks of each whether its message is there. Plain state.
//!
//! Invariants:
//! - they are read through the file, those that stand side by side at once: a start may ask for all that wait, and none
//!   of them comes into the process for that.

use troupemq_codec::timer_record::TimerUnit;

use crate::commit_log::scan::{Look, Step, step};
use crate::error::StoreError;
use crate::reader::LogReader;

/// Bytes of the log that are read at once.
const READ_BYTES: usize = 256 << 10;

/// The messages of units, looked at one after the other.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    reader: &'a LogReader,
    /// Bytes of the log from `from` on.
    bytes: Vec<u8>,
    from: u64,
    /// Offset in the topic behind the messages of those units that were not flushed.
    pub(super) next_queue_offset: i64,
}

impl Messages<'_> {
    pub(super) fn of(reader: &LogReader) -> Messages<'_> {
        Messages { reader, bytes: Vec::new(), from: 0, next_queue_offset: 0 }
    }

    /// Whether a unit and its message are there. A unit that was not flushed may have lost its end, which is zero then:
    /// its size is none, or not that of the record. A message that the disk cannot read just now tells nothing.
    pub(super) fn keep(&mut self, unit: &TimerUnit, is_flushed: bool) -> bool {
        let at = unit.log_offset.cast_unsigned();
        let Some(size) = usize::try_from(unit.size).ok().filter(|size| *size > 0) else { return false };
        if at >= self.reader.wrote_to() {
            return false;
        }
        if is_flushed || at < self.reader.min_offset() {
            return true;
        }
        match self.look(at, size) {
            Ok(Some((found, queue_offset))) if found == size => {
                self.next_queue_offset = self.next_queue_offset.max(queue_offset + 1);
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::error!(%error, "the message of a timer cannot be compared with it");
                true
            }
        }
    }

    /// Size and queue offset of the record at this offset, if there is one, which should have `size` bytes.
    fn look(&mut self, log_offset: u64, size: usize) -> Result<Option<(usize, i64)>, StoreError> {
        if let Some(found) = self.find(log_offset) {
            return Ok(Some(found));
        }
        let len = self.reader.rest(log_offset, READ_BYTES.max(size)).map_or(0, |rest| rest.len());
        let read = |len: usize| self.reader.read(log_offset, len);
        // What cannot be read may stand behind the record.
        let bytes = read(len).or_else(|_| read(len.min(size)))?;
        (self.from, self.bytes) = (log_offset, bytes.unwrap_or_default());
        Ok(self.find(log_offset))
    }

    /// The same, if all of it was read.
    fn find(&self, log_offset: u64) -> Option<(usize, i64)> {
        let skip = usize::try_from(log_offset.checked_sub(self.from)?).ok()?;
        match step(self.bytes.get(skip..)?, log_offset, Look::Lengths) {
            Step::Record(record) => Some((record.total_size(), record.queue_offset())),
            Step::SegmentEnd | Step::End(_) => None,
        }
    }
}
