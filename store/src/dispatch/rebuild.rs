//! Telling queues and index what they miss of the log, after a start.
//!
//! Invariants:
//! - the log is the truth: a queue that lacks units, or has wrong ones, gets them from it;
//! - a lack that reaches back before the given start is made good from the beginning of the log;
//! - a record that no queue can take is passed over, it never stops the start.

use troupemq_codec::message::{RecordView, sys_flag};

use super::{DispatchWriter, SCHEDULE_TOPIC};
use crate::consume_queue::{ConsumeQueue, Put, Unit};
use crate::error::StoreError;
use crate::reader::LogReader;

/// Front of the names of queues that hold messages of other topics.
const LIGHT_QUEUE_PREFIX: &str = "%LMQ%";

/// What was read from the log to complete queues and index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// Where reading began.
    pub from: u64,
    /// Records read.
    pub records: u64,
    /// Whether units were missing from before the given start, so that the whole log was read.
    pub was_whole: bool,
}

/// Why a walk over the log was left.
enum Left {
    /// A queue lacks units from before the walk.
    Gap,
    Failed(StoreError),
}

impl From<StoreError> for Left {
    fn from(error: StoreError) -> Left {
        Left::Failed(error)
    }
}

impl DispatchWriter {
    /// Completes queues and index with the log from `from` (start of a record or segment) to its end `to`.
    /// What they hold beyond the log is cut. Reads from further back where a queue or the index is behind.
    pub fn rebuild(&mut self, reader: &LogReader, from: u64, to: u64) -> Result<Rebuilt, StoreError> {
        let log_min = reader.min_offset();
        self.queues.truncate(to)?;
        self.queues.verify(|queue, unit| is_right(reader, queue, unit))?;
        self.queues.drop_unextended()?;
        let from = from.min(self.index_needs(log_min, to)?).clamp(log_min, to.max(log_min));
        let whole = Rebuilt { from: log_min, records: 0, was_whole: from > log_min };
        if !self.queues.is_damaged() && self.queues.log_end().is_some() {
            match self.read(reader, from, to) {
                Ok(records) => {
                    self.reached(to);
                    return Ok(Rebuilt { from, records, was_whole: false });
                }
                Err(Left::Failed(error)) => return Err(error),
                Err(Left::Gap) => {}
            }
        }
        match self.read(reader, log_min, to) {
            Ok(records) => {
                self.reached(to);
                Ok(Rebuilt { records, ..whole })
            }
            Err(Left::Failed(error)) => Err(error),
            Err(Left::Gap) => unreachable!("a walk over the whole log bridges every gap"),
        }
    }

    /// Where the log has to be read from for the index alone.
    fn index_needs(&mut self, log_min: u64, log_end: u64) -> Result<u64, StoreError> {
        let Some(index) = &mut self.index else { return Ok(log_end) };
        index.truncate(log_end)?;
        Ok(match index.known_to() {
            // The record at this offset begins there, and it is indexed: reading it again is harmless.
            Some(known_to) if index.is_behind() => known_to,
            None if index.is_behind() => log_min,
            _ => log_end,
        })
    }

    fn read(&mut self, reader: &LogReader, from: u64, to: u64) -> Result<u64, Left> {
        let is_whole = from <= reader.min_offset();
        let mut records = 0;
        reader.walk(from, to, |record| {
            records += 1;
            self.take(record, is_whole)
        })?;
        Ok(records)
    }

    fn take(&mut self, record: &RecordView<'_>, is_whole: bool) -> Result<(), Left> {
        let queue = match self.queues.open_or_create(record.topic(), record.queue_id()) {
            Ok(queue) => queue,
            Err(error) => {
                tracing::warn!(%error, log_offset = record.log_offset(), "record without a queue is passed over");
                return Ok(());
            }
        };
        // A queue does not begin in the middle if its beginning may be in front of the walk.
        let is_headless = record.queue_offset() > queue.max_offset() && queue.max_offset() == 0;
        if is_headless && !is_whole {
            return Err(Left::Gap);
        }
        match self.dispatch_record(record)? {
            Put::Appended => Ok(()),
            Put::Known if self.agrees(&queue, record) => Ok(()),
            Put::Known => self.mend(&queue, record, is_whole),
            Put::Gap { .. } if !is_whole => Err(Left::Gap),
            Put::Gap { .. } => {
                queue.bridge(record.queue_offset())?;
                self.dispatch_record(record)?;
                Ok(())
            }
        }
    }
}

impl DispatchWriter {
    /// Whether the unit of the record is what the record asks for.
    fn agrees(&self, queue: &ConsumeQueue, record: &RecordView<'_>) -> bool {
        if !sys_flag::is_visible(record.sys_flag()) {
            return true;
        }
        let wanted = self.unit(record, record.log_offset().cast_unsigned());
        queue.unit(record.queue_offset()).is_some_and(|unit| {
            // The delay levels may have changed since; a time of delivery that was given holds.
            let is_tagged = record.topic() != SCHEDULE_TOPIC;
            let is_same_place = (unit.log_offset, unit.size) == (wanted.log_offset, wanted.size);
            is_same_place && (!is_tagged || unit.tags_code == wanted.tags_code)
        })
    }

    /// Puts the record into a queue that has something else in its place: a damaged unit, or the units of a
    /// topic that was deleted and made again. The units behind it follow, as the walk goes on to the end.
    fn mend(&mut self, queue: &ConsumeQueue, record: &RecordView<'_>, is_whole: bool) -> Result<(), Left> {
        if record.queue_offset() < queue.min_offset() {
            if !is_whole {
                return Err(Left::Gap);
            }
            queue.reset()?;
        } else {
            queue.cut_from(record.queue_offset())?;
        }
        self.dispatch_record(record)?;
        Ok(())
    }
}

/// Whether the log has the record that the unit speaks of.
fn is_right(reader: &LogReader, queue: &ConsumeQueue, unit: &Unit) -> bool {
    if unit.log_offset < reader.min_offset()
        || unit.is_hole()
        || queue.topic().starts_with(LIGHT_QUEUE_PREFIX)
    {
        return true;
    }
    let agrees = |record: &RecordView<'_>| {
        record.total_size() as u64 == u64::from(unit.size)
            && record.queue_offset() == unit.queue_offset
            && record.queue_id() == queue.queue_id()
            && record.topic() == queue.topic().as_str()
    };
    reader.record_at(unit.log_offset, agrees).unwrap_or(false)
}
