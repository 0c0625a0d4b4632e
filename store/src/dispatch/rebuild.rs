//! Telling queues and index what they miss of the log, after a start.
//!
//! Invariants:
//! - the log is the truth: a queue that lacks units, or has wrong ones, gets them from it;
//! - a lack that reaches back before the given start is made good from the beginning of the log;
//! - a record that no queue can take is passed over, it never stops the start;
//! - a record that the disk cannot read does stop it: its queue would keep a hole, though it may be read the next time.

use std::ops::Range;
use std::sync::Arc;

use troupemq_codec::message::{RecordView, sys_flag};

use super::DispatchWriter;
use crate::commit_log::recover::Damage;
use crate::commit_log::scan::Look;
use crate::consume_queue::{ConsumeQueue, Put, QueueKind, Unit};
use crate::error::StoreError;
use crate::light;
use crate::progress::Progress;
use crate::reader::LogReader;

/// Walks over the log in one start: each but the first two is for a queue that could not be read in the one before.
const WALKS_MAX: usize = 64;

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
    /// What they hold beyond the log is cut. Reads from further back where a queue or the index is behind, and
    /// from the start of what was `lost` where something was. `begins` is told where each walk begins before it does:
    /// one that is cut off leaves queues with units that may be those of deleted topics.
    pub fn rebuild(
        &mut self,
        reader: &LogReader,
        (from, to): (u64, u64),
        lost: &[Damage],
        mut begins: impl FnMut(u64),
    ) -> Result<Rebuilt, StoreError> {
        let log_min = reader.min_offset();
        self.queues.truncate(to)?;
        self.queues.verify(|queue, unit| is_right(reader, queue, unit))?;
        let sure = from.min(self.index_needs(reader, to, lost)?).clamp(log_min, to.max(log_min));
        let is_enough = !self.queues.is_damaged() && self.queues.log_end().is_some();
        let mut from = if is_enough { sure } else { log_min };
        for _ in 0..WALKS_MAX {
            begins(from);
            match self.read(reader, from..to) {
                Ok(_) if std::mem::take(&mut self.has_turned) => {}
                Ok(records) => {
                    self.reached(to);
                    return Ok(Rebuilt { from, records, was_whole: from < sure });
                }
                Err(Left::Failed(error)) => self.queues.give_up_unreadable(error)?,
                Err(Left::Gap) => {
                    debug_assert!(from > log_min, "a walk over the whole log bridges every gap")
                }
            }
            from = log_min;
        }
        Err(StoreError::TooMany { what: "walks over the log, as queues cannot be read", max: WALKS_MAX })
    }

    /// Where the log has to be read from for the index alone.
    fn index_needs(&mut self, reader: &LogReader, log_end: u64, lost: &[Damage]) -> Result<u64, StoreError> {
        let log_min = reader.min_offset();
        let Some(index) = &mut self.index else { return Ok(log_end) };
        // Entries of records that are lost go, and those behind them are made anew.
        index.truncate(lost.first().map_or(log_end, |damage| damage.from))?;
        index.drop_unsound(reader, log_end)?;
        let complete_to = index.complete_to().clamp(log_min, log_end.max(log_min));
        Ok(match index.known_to() {
            // Behind this record, which is indexed: offered again it would bring back a topic that was deleted since.
            Some(known_to) if index.is_behind() => {
                let end = reader.fetch_record(known_to, |record| known_to + record.total_size() as u64)?;
                end.unwrap_or(known_to).max(complete_to)
            }
            None if index.is_behind() => complete_to,
            _ => log_end,
        })
    }

    /// Offers every sound record to queues and index: one that is damaged has no unit, whoever reads it and when.
    fn read(&mut self, reader: &LogReader, log: Range<u64>) -> Result<u64, Left> {
        let is_whole = log.start <= reader.min_offset();
        let mut records = 0;
        let mut progress = Progress::over(log.clone());
        reader.walk_looking(Look::Crc, log, |record| {
            let log_offset = record.log_offset().cast_unsigned();
            progress.tell(log_offset, "queues and index are completed from the log");
            records += 1;
            self.take(record, is_whole)
        })?;
        Ok(records)
    }

    fn take(&mut self, record: &RecordView<'_>, is_whole: bool) -> Result<(), Left> {
        let Some(queue) = self.queue_of(record, (record.topic(), record.queue_id())) else { return Ok(()) };
        let is_batch = record.sys_flag() & sys_flag::INNER_BATCH != 0;
        if is_batch && queue.kind() == QueueKind::Plain && self.queues.turn_to_batch(record.topic())? {
            // What came before it was put into a queue that is gone.
            self.has_turned = true;
            return Ok(self.put_keys_of(record, &queue)?);
        }
        let unit = self.unit(record, record.log_offset().cast_unsigned());
        if sys_flag::is_visible(record.sys_flag()) {
            self.take_unit((&queue, unit), record, is_whole)?;
        }
        for (name, queue_offset) in self.light_places(record) {
            let Some(light) = self.queue_of(record, (name, light::QUEUE_ID)) else { continue };
            self.take_unit((&light, Unit { queue_offset, count: 1, ..unit }), record, is_whole)?;
        }
        self.put_keys_of(record, &queue)?;
        Ok(())
    }

    /// A queue that a record belongs in; none where the name cannot be one.
    fn queue_of(&self, record: &RecordView<'_>, (name, id): (&str, i32)) -> Option<Arc<ConsumeQueue>> {
        let opened = self.queues.open_or_create(name, id).inspect_err(|error| {
            let log_offset = record.log_offset();
            tracing::warn!(%error, log_offset, "record without a queue is passed over");
        });
        opened.ok()
    }

    /// Sees to it that the queue has this unit, which the record asks for.
    fn take_unit(
        &self,
        (queue, unit): (&ConsumeQueue, Unit),
        record: &RecordView<'_>,
        is_whole: bool,
    ) -> Result<(), Left> {
        // A queue does not begin in the middle if its beginning may be in front of the walk.
        let is_headless = unit.queue_offset > queue.max_offset() && queue.max_offset() == 0;
        if is_headless && !is_whole {
            return Err(Left::Gap);
        }
        match self.put(queue, unit, record.bytes())? {
            Put::Appended => return Ok(()),
            Put::Known if agrees(queue, &unit, record.store_timestamp_ms())? => return Ok(()),
            Put::Known => make_room(queue, &unit, is_whole)?,
            Put::Gap { .. } if !is_whole => return Err(Left::Gap),
            Put::Gap { .. } => queue.bridge(unit.queue_offset)?,
        }
        self.put(queue, unit, record.bytes())?;
        Ok(())
    }
}

/// Whether the queue has this unit in its place, and nothing of another message in its extension.
fn agrees(queue: &ConsumeQueue, wanted: &Unit, stored_ms: i64) -> Result<bool, StoreError> {
    queue.ready(wanted.queue_offset)?;
    let is_there = queue.unit(wanted.queue_offset).is_some_and(|unit| {
        let is_same_place = (unit.log_offset, unit.size) == (wanted.log_offset, wanted.size);
        // The delay levels may have changed since; a time of delivery that was given holds.
        is_same_place && (queue.is_schedule() || unit.tags_code == wanted.tags_code)
    });
    // A unit that lost its end points to the first one of the extension.
    let has_own = || {
        let own = queue.extension_unit(wanted.queue_offset);
        own.is_none_or(|own| own.store_timestamp_ms == stored_ms)
    };
    Ok(is_there && has_own())
}

/// Takes out what the queue has in place of a unit: a damaged one, or the units of a topic that was deleted and made
/// again. The units behind it follow, as the walk goes on to the end.
fn make_room(queue: &ConsumeQueue, unit: &Unit, is_whole: bool) -> Result<(), Left> {
    if unit.queue_offset >= queue.min_offset() {
        queue.cut_from(unit.queue_offset)?;
    } else if is_whole {
        queue.reset()?;
    } else {
        return Err(Left::Gap);
    }
    Ok(())
}

/// Whether the log has the record that the unit speaks of, and the extension nothing of another message in its place:
/// a unit that lost its end points to the first one of the extension, and would hide that those in front of it have
/// lost theirs.
fn is_right(reader: &LogReader, queue: &ConsumeQueue, unit: &Unit) -> bool {
    if unit.log_offset < reader.min_offset() || unit.is_hole() {
        return true;
    }
    let fits = |record: &RecordView<'_>| {
        queue.is_of(unit, record) && !queue.has_foreign_extension(unit, record.store_timestamp_ms())
    };
    match reader.fetch_record(unit.log_offset, fits) {
        Ok(is_of) => is_of.unwrap_or(false),
        Err(error) => {
            tracing::error!(%error, "the last message of a queue cannot be compared with its unit");
            true
        }
    }
}
