//! The log: one byte space that all messages of a store share (RocketMQ: `CommitLog`).
//!
//! Invariants:
//! - there is one writer; queue offsets are given out here, in the order of the log;
//! - a record never crosses a segment, and behind the last one eight bytes stay free for the blank;
//! - bytes go to the file by `pwrite` and are read through its map: the system copies a batch into the page
//!   cache for less than a first store to a mapped page costs (`cargo bench --bench pages`), and a disk
//!   that fails is an error, not a signal;
//! - behind the end of the log all is zero, so that nothing there ever looks like the next record;
//! - what is published is final; `wrote_to` moves after the bytes are there;
//! - a write that failed ends all writing.
//!
//! The log knows no topic names, no filters and no consumers.

pub mod batch;
pub mod flusher;
pub mod load;
pub mod recover;
pub mod scan;

use std::ops::Range;
use std::sync::Arc;

use troupemq_codec::message::fill_holes;
use troupemq_codec::message::record::{BLANK_HEAD_BYTES, blank_head};

use crate::commit_log::batch::{AppendBatch, PendingRecord};
use crate::config::FlushMode;
use crate::error::StoreError;
use crate::poison::Poison;
use crate::preparer::Preparer;
use crate::reader::{LogReader, Positions};
use crate::retention::SpaceGuard;
use crate::segment::SegmentWriter;
use crate::segments::Segments;

/// Part of a segment, as a divisor, that may be left when the next one is ordered.
const ORDER_AT: u64 = 2;
/// With synchronous flush the file is filled with zeros up to whole steps of this many bytes: a flush of blocks
/// that were written before needs no change of the file's block list and takes half the time.
const ZERO_STEP_BYTES: u64 = 1 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The write side of the log, owned by one actor.
#[derive(Debug)]
pub struct CommitLog {
    writer: SegmentWriter,
    segments: Arc<Segments>,
    positions: Arc<Positions>,
    preparer: Preparer,
    poison: Poison,
    space: SpaceGuard,
    flush: FlushMode,
    segment_bytes: u64,
    last_store_ms: i64,
    /// With synchronous flush: the blocks before this offset were written before.
    zeroed_to: u64,
}

/// What the log is made of; put together by `open`.
#[derive(Debug)]
pub(crate) struct LogParts {
    pub(crate) writer: SegmentWriter,
    pub(crate) segments: Arc<Segments>,
    pub(crate) positions: Arc<Positions>,
    pub(crate) preparer: Preparer,
    pub(crate) poison: Poison,
    pub(crate) space: SpaceGuard,
    pub(crate) flush: FlushMode,
    pub(crate) last_store_ms: i64,
}

/// The part of the log that a batch takes.
#[derive(Debug)]
pub struct Appended {
    /// Offset of the first record, behind a blank where the segment was full.
    pub from: u64,
    /// Offset behind the last record.
    pub to: u64,
    /// Number of records stored: the first ones of the batch.
    pub records: usize,
    /// Why the rest is not stored.
    pub refused: Option<StoreError>,
}

impl CommitLog {
    pub(crate) fn new(parts: LogParts) -> CommitLog {
        let segment = parts.writer.segment();
        let segment_bytes = segment.end() - segment.start();
        let zeroed_to = parts.writer.position();
        CommitLog {
            writer: parts.writer,
            segments: parts.segments,
            positions: parts.positions,
            preparer: parts.preparer,
            poison: parts.poison,
            space: parts.space,
            flush: parts.flush,
            segment_bytes,
            last_store_ms: parts.last_store_ms,
            zeroed_to,
        }
    }

    /// Stores the records of `batch` and notes in it where they are. An error means that none is stored.
    pub fn append(&mut self, batch: &mut AppendBatch, now_ms: i64) -> Result<Appended, StoreError> {
        self.poison.check()?;
        self.space.check()?;
        // Store times never go back within a log: searches by time rely on it.
        self.last_store_ms = self.last_store_ms.max(now_ms);
        let mut next = 0;
        while next < batch.records.len() {
            let fitting = self.fitting(batch, next);
            let step = if fitting > next {
                self.place(batch, next..fitting)
            } else {
                self.next_segment(batch, next)
            };
            match step {
                Ok(()) => next = fitting,
                Err(error) if next == 0 => return Err(error),
                Err(error) => return Ok(self.appended(batch, next, Some(error))),
            }
        }
        Ok(self.appended(batch, next, None))
    }

    /// Offset behind the last byte.
    pub fn wrote_to(&self) -> u64 {
        self.positions.wrote_to()
    }

    /// Largest body-to-end record the segments can hold.
    pub fn record_max_bytes(&self) -> u64 {
        self.segment_bytes - BLANK_HEAD_BYTES as u64
    }

    /// A reader of this log.
    pub fn reader(&self) -> LogReader {
        LogReader::new(Arc::clone(&self.segments), Arc::clone(&self.positions), self.segment_bytes)
    }

    /// Ends writing in good order: no unused segment is left behind.
    pub fn close(self) {
        drop(self.preparer);
    }

    fn appended(&self, batch: &AppendBatch, records: usize, refused: Option<StoreError>) -> Appended {
        let end = self.writer.position();
        let from = if records == 0 { None } else { batch.records.first() };
        Appended { from: from.map_or(end, |record| record.log_offset), to: end, records, refused }
    }

    /// Index behind the last record from `next` on that fits into the segment.
    fn fitting(&self, batch: &AppendBatch, next: usize) -> usize {
        let room = self.writer.remaining();
        let base = batch.records[next].start as usize;
        let fits = |end: usize| end - base + BLANK_HEAD_BYTES <= room;
        if fits(batch.bytes.len()) {
            return batch.records.len();
        }
        next + batch.records[next..].iter().take_while(|record| fits(record.end())).count()
    }

    /// Gives the records their offsets and stores them.
    fn place(&mut self, batch: &mut AppendBatch, range: Range<usize>) -> Result<(), StoreError> {
        let at = self.writer.position();
        let records = &mut batch.records[range];
        let from = records.first().map_or(0, |record| record.start as usize);
        let to = records.last().map_or(from, |record| record.end());
        for record in records {
            let (start, end) = (record.start as usize, record.end());
            record.queue_offset = take_offset(record);
            record.log_offset = at + (start - from) as u64;
            let log_offset = i64::try_from(record.log_offset).expect("a log ends far below 2^63");
            fill_holes(&mut batch.bytes[start..end], record.queue_offset, log_offset, self.last_store_ms);
        }
        self.write(&batch.bytes[from..to])?;
        self.publish(at + (to - from) as u64);
        Ok(())
    }

    /// Writes `bytes` at the position.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let wrote = self.writer.write(bytes).and_then(|()| match self.flush {
            FlushMode::Async => Ok(()),
            FlushMode::Sync => self.zero_ahead(self.writer.position() + bytes.len() as u64),
        });
        wrote.map_err(|error| self.poison.set(error))
    }

    /// Fills the file with zeros from `end` to the next step, unless it is zeroed that far.
    fn zero_ahead(&mut self, end: u64) -> Result<(), StoreError> {
        if end <= self.zeroed_to {
            return Ok(());
        }
        let segment = self.writer.segment();
        self.zeroed_to = (end.next_multiple_of(ZERO_STEP_BYTES)).min(segment.end());
        let mut at = end;
        while at < self.zeroed_to {
            let step = (self.zeroed_to - at).min(ZEROS.len() as u64);
            self.writer.write_at(&ZEROS[..usize::try_from(step).expect("a step is short")], at)?;
            at += step;
        }
        Ok(())
    }

    fn publish(&mut self, to: u64) {
        self.writer.publish(to);
        self.positions.set_store_ms(self.last_store_ms);
        self.positions.set_wrote_to(to);
        // A hardly used store has one segment on the disk, not two.
        if self.writer.remaining() as u64 <= self.segment_bytes / ORDER_AT {
            self.preparer.order(self.writer.segment().end());
        }
    }

    /// Closes the segment with a blank and goes on in the next one.
    fn next_segment(&mut self, batch: &AppendBatch, next: usize) -> Result<(), StoreError> {
        let len = u64::from(batch.records[next].len);
        if len > self.record_max_bytes() {
            return Err(StoreError::TooLong { what: "record", len, max: self.record_max_bytes() });
        }
        let end = self.writer.segment().end();
        // First the new segment, then the blank: without room for more, the log stays as it is.
        let writer = self.preparer.take(end)?;
        let remaining = self.writer.remaining();
        if remaining > 0 {
            let word = u32::try_from(remaining).expect("a segment is shorter than 2 GiB");
            let head = blank_head(word);
            self.write(&head[..head.len().min(remaining)])?;
        }
        self.writer.publish(end);
        self.segments.push(Arc::clone(writer.segment()));
        self.writer = writer;
        self.publish(end);
        Ok(())
    }
}

/// Takes the record's number out of its queue. A record without a unit takes none; Java stores 0 for it.
fn take_offset(record: &PendingRecord) -> i64 {
    if record.advance == 0 {
        return 0;
    }
    let offset = record.queue.next_offset();
    record.queue.assign_next_offset(offset + i64::from(record.advance));
    offset
}
