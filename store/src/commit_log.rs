//! The log: one byte space that all messages of a store share (RocketMQ: `CommitLog`).
//!
//! Invariants:
//! - there is one writer; queue offsets are given out here, in the order of the log;
//! - a record never crosses a segment, and behind the last one eight bytes stay free for the blank;
//! - bytes go to the file by `pwritev` and are read through its map: the system copies a batch into the page
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
pub mod numbering;
pub mod recover;
pub mod scan;

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use troupemq_codec::message::fill_holes;
use troupemq_codec::message::record::{BLANK_HEAD_BYTES, blank_head};

use crate::commit_log::batch::{AppendBatch, PendingRecord};
use crate::config::FlushMode;
use crate::consume_queue::ConsumeQueue;
use crate::error::StoreError;
use crate::poison::Poison;
use crate::preparer::{Prepared, Preparer};
use crate::reader::{LogReader, Positions};
use crate::retention::SpaceGuard;
use crate::segment::SegmentWriter;
use crate::segments::Segments;

/// Zero bytes in a row that properties may hold: one more can fill a sector, and what reads as a sector of zeros counts
/// as lost with the power when the log is recovered.
pub const ZEROS_MAX: usize = 511;

/// Batches that go into one write; the system takes 1024.
const PIECES_MAX: usize = 512;
/// Part of a segment, as a divisor, that may be left when the next one is ordered.
const ORDER_AT: u64 = 2;
/// With synchronous flush the file is filled with zeros up to whole steps of this many bytes where the preparer has
/// not done so: a flush of blocks that were written before needs no change of the file's block list and takes half the
/// time.
const ZERO_STEP_BYTES: u64 = 1 << 20;

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
    /// Bytes that follow the writer's position, have their place and are not written yet.
    placed_bytes: usize,
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
        let zeroed_to = parts.writer.written_to();
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
            placed_bytes: 0,
        }
    }

    /// Stores the records of several batches, those that stand in one segment by one write. One answer for each;
    /// `wrote` is told how far the log is written as soon as it is.
    pub fn append_all<'a>(
        &mut self,
        batches: impl ExactSizeIterator<Item = &'a mut AppendBatch>,
        now_ms: i64,
        mut wrote: impl FnMut(u64),
    ) -> Vec<Result<Appended, StoreError>> {
        let mut appended = Vec::with_capacity(batches.len());
        let mut placed: Vec<IoSlice<'a>> = Vec::with_capacity(batches.len().min(PIECES_MAX));
        for batch in batches {
            if placed.len() == PIECES_MAX {
                let _told_below = self.settle(&mut placed);
            }
            let admitted = self.admit(batch, now_ms);
            let records = batch.records.len();
            appended.push(match admitted {
                Ok(()) if self.fitting(batch, 0) == records => {
                    self.assign(batch, 0..records);
                    self.placed_bytes += batch.bytes.len();
                    let one = self.appended(batch, records, None);
                    placed.push(IoSlice::new(&batch.bytes));
                    Ok(one)
                }
                Ok(()) => self.settle(&mut placed).and_then(|()| self.store(batch)),
                Err(error) => Err(error),
            });
            wrote(self.wrote_to());
        }
        let _told_below = self.settle(&mut placed);
        wrote(self.wrote_to());
        // A write that failed may be that of any of them.
        for one in &mut appended {
            if let Err(poisoned) = self.poison.check() {
                *one = Err(poisoned);
            }
        }
        appended
    }

    /// How many of the `wanted` bytes, at least, `append` takes without waiting for a segment, and whether the next
    /// segment is there. Never waits itself; a segment that could not be made counts as there, `append` tells why.
    pub fn room_for(&mut self, wanted: usize) -> (usize, bool) {
        let left = self.remaining().saturating_sub(BLANK_HEAD_BYTES);
        if wanted <= left || !self.preparer.is_ready(self.writer.segment().end()) {
            return (left, false);
        }
        // Records do not fill the segments to the last byte.
        (left + usize::try_from(self.segment_bytes / 2).unwrap_or(usize::MAX), true)
    }

    /// Stores the records of `batch` and notes in it where they are. An error means that none is stored.
    pub fn append(&mut self, batch: &mut AppendBatch, now_ms: i64) -> Result<Appended, StoreError> {
        self.admit(batch, now_ms)?;
        self.store(batch)
    }

    /// Whether anything can be stored now; numbers the records that tell their offsets.
    fn admit(&mut self, batch: &mut AppendBatch, now_ms: i64) -> Result<(), StoreError> {
        self.poison.check()?;
        self.space.check()?;
        // Store times never go back within a log: searches by time rely on it.
        self.last_store_ms = self.last_store_ms.max(now_ms);
        if batch.numbered.is_empty() { Ok(()) } else { numbering::number(batch) }
    }

    /// Stores the records of a batch that was admitted, in as many segments as it takes.
    fn store(&mut self, batch: &mut AppendBatch) -> Result<Appended, StoreError> {
        let mut next = 0;
        while next < batch.records.len() {
            let fitting = self.fitting(batch, next);
            let step = if fitting > next {
                let bytes = self.assign(batch, next..fitting);
                self.put(&mut [IoSlice::new(&batch.bytes[bytes])])
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
        numbering::advance(batch, records);
        let end = self.position();
        let from = if records == 0 { None } else { batch.records.first() };
        Appended { from: from.map_or(end, |record| record.log_offset), to: end, records, refused }
    }

    /// Index behind the last record from `next` on that fits into the segment.
    fn fitting(&self, batch: &AppendBatch, next: usize) -> usize {
        let room = self.remaining();
        let Some(first) = batch.records.get(next) else { return next };
        let base = first.start as usize;
        let fits = |end: usize| end - base + BLANK_HEAD_BYTES <= room;
        if fits(batch.bytes.len()) {
            return batch.records.len();
        }
        next + batch.records[next..].iter().take_while(|record| fits(record.end())).count()
    }

    /// Gives the records their offsets, and tells where in the batch their bytes are.
    fn assign(&self, batch: &mut AppendBatch, range: Range<usize>) -> Range<usize> {
        let at = self.position();
        batch.stored_ms = self.last_store_ms;
        let AppendBatch { bytes, records, queues, .. } = batch;
        let records = &mut records[range];
        let from = records.first().map_or(0, |record| record.start as usize);
        let to = records.last().map_or(from, |record| record.end());
        for record in records {
            let (start, end) = (record.start as usize, record.end());
            record.queue_offset = take_offset(record, &queues[record.queue as usize]);
            record.log_offset = at + (start - from) as u64;
            let log_offset = i64::try_from(record.log_offset).expect("a log ends far below 2^63");
            fill_holes(&mut bytes[start..end], record.queue_offset, log_offset, self.last_store_ms);
        }
        from..to
    }

    /// Offset behind the last byte, those included that have their place and are not written yet.
    fn position(&self) -> u64 {
        self.writer.position() + self.placed_bytes as u64
    }

    /// Bytes that still fit into the segment.
    fn remaining(&self) -> usize {
        self.writer.remaining() - self.placed_bytes
    }

    /// Writes what has its place.
    fn settle(&mut self, placed: &mut Vec<IoSlice<'_>>) -> Result<(), StoreError> {
        self.placed_bytes = 0;
        let put = if placed.is_empty() { Ok(()) } else { self.put(placed) };
        placed.clear();
        put
    }

    /// Writes `pieces` at the position and publishes them.
    fn put(&mut self, pieces: &mut [IoSlice<'_>]) -> Result<(), StoreError> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let end = self.writer.position() + len as u64;
        self.write(pieces, end)?;
        self.publish(end);
        Ok(())
    }

    /// Writes `pieces` from the position to `end`.
    fn write(&mut self, pieces: &mut [IoSlice<'_>], end: u64) -> Result<(), StoreError> {
        let wrote = self.writer.write_pieces(pieces).and_then(|()| match self.flush {
            FlushMode::Async => Ok(()),
            FlushMode::Sync => self.zero_ahead(end),
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
        self.writer.write_zeros(end..self.zeroed_to)
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
        let Prepared { writer, filled_to } = self.preparer.take(end)?;
        let remaining = self.writer.remaining();
        if remaining > 0 {
            let word = u32::try_from(remaining).expect("a segment is shorter than 2 GiB");
            let head = blank_head(word);
            let head = &head[..head.len().min(remaining)];
            self.write(&mut [IoSlice::new(head)], self.writer.position() + head.len() as u64)?;
        }
        self.writer.publish(end);
        self.segments.push(Arc::clone(writer.segment()));
        self.writer = writer;
        self.zeroed_to = filled_to;
        self.publish(end);
        Ok(())
    }
}

/// Takes the record's number out of `queue`, which counts it. A record without a unit takes none; Java stores 0 for it.
fn take_offset(record: &PendingRecord, queue: &ConsumeQueue) -> i64 {
    if record.advance == 0 {
        return 0;
    }
    let offset = queue.next_offset();
    queue.assign_next_offset(offset + i64::from(record.advance));
    offset
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::message::NewRecord;

    use super::scan::{Look, Step, step};
    use super::*;
    use crate::config::StoreConfig;
    use crate::testing::{Sample, mapped_bytes, small_files};
    use crate::{ManualClock, Opened, open};

    fn opened(dir: &tempfile::TempDir, flush: FlushMode) -> Opened {
        let config = StoreConfig { flush, ..small_files(dir.path()) };
        open(config, Arc::new(ManualClock::at(0))).unwrap()
    }

    #[test]
    fn batches_that_are_appended_together_stand_side_by_side_in_every_segment() {
        for flush in [FlushMode::Async, FlushMode::Sync] {
            let dir = tempfile::tempdir().unwrap();
            let mut opened = opened(&dir, flush);
            let queue = opened.queues.open_or_create(Sample::TOPIC, 0).unwrap();
            for round in 0..30_u8 {
                let mut batches: Vec<AppendBatch> = (0..7).map(|_| AppendBatch::default()).collect();
                for (number, batch) in batches.iter_mut().enumerate() {
                    Sample { queue_id: 0, fill: round, body_bytes: 300 * number }.push(batch, &queue);
                }
                let (before, mut told) = (opened.log.wrote_to(), Vec::new());
                let appended = opened.log.append_all(batches.iter_mut(), 1, |to| told.push(to));
                assert!(told.is_sorted() && told.last() == Some(&opened.log.wrote_to()));
                let mut at = before;
                for (batch, appended) in batches.iter().zip(appended) {
                    let appended = appended.unwrap();
                    assert!(appended.from == at || appended.from.is_multiple_of(65_536));
                    at = appended.to;
                    let offset = batch.records[0].log_offset;
                    assert_eq!(offset, appended.from);
                    let body = opened.reader.record_at(offset, |record| record.body().to_vec()).unwrap();
                    assert!(body.iter().all(|byte| *byte == round));
                }
                assert_eq!(opened.log.wrote_to(), at);
            }
            let mut records = 0;
            let end = opened.log.wrote_to();
            let walked = opened.reader.walk::<StoreError>(0, end, |_| {
                records += 1;
                Ok(())
            });
            assert_eq!((walked.unwrap(), records), (end, 210));
        }
    }

    #[test]
    fn empty_batches_and_more_than_one_write_takes_are_stored_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = opened(&dir, FlushMode::Async);
        let queue = opened.queues.open_or_create(Sample::TOPIC, 0).unwrap();
        let mut batches: Vec<AppendBatch> = (0..3 * PIECES_MAX).map(|_| AppendBatch::default()).collect();
        for (number, batch) in batches.iter_mut().enumerate().filter(|(number, _)| number % 3 > 0) {
            Sample { queue_id: 0, fill: 1, body_bytes: number % 7 }.push(batch, &queue);
        }
        let appended = opened.log.append_all(batches.iter_mut(), 1, |_| ());
        let stored: usize = appended.into_iter().map(|one| one.unwrap().records).sum();
        let mut offsets = Vec::new();
        let walked = opened.reader.walk(0, opened.log.wrote_to(), |record| {
            offsets.push((record.queue_offset(), record.body().len()));
            Ok::<(), StoreError>(())
        });
        assert_eq!((walked.unwrap(), stored), (opened.log.wrote_to(), 2 * PIECES_MAX));
        let bodies = (0..3 * PIECES_MAX).filter(|number| number % 3 > 0).map(|number| number % 7);
        assert!(offsets.into_iter().eq((0..).zip(bodies)));
    }

    #[test]
    fn a_long_walk_leaves_nothing_of_the_log_in_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig { log_segment_bytes: 8 << 20, ..small_files(dir.path()) };
        let mut opened = open(config.clone(), Arc::new(ManualClock::at(0))).unwrap();
        for number in 0..200 {
            Sample { queue_id: 0, fill: 1, body_bytes: 65_536 }.store(&mut opened, Sample::TOPIC, number);
        }
        let of_log = || mapped_bytes(&dir.path().join("commitlog"));
        let before = of_log();
        let (mut records, mut most) = (0, 0);
        let walked = opened.reader.walk(0, opened.log.wrote_to(), |record| {
            assert_eq!(record.body().first(), Some(&1));
            records += 1;
            most = most.max(of_log());
            Ok::<(), StoreError>(())
        });
        assert_eq!((walked.unwrap(), records), (opened.log.wrote_to(), 200));
        assert!(most > before && most < before + (3 << 20), "{most} bytes on the way, {before} before");
        assert!(of_log() <= before + (256 << 10), "{} bytes behind it, {before} before", of_log());
        // Whatever is made anew from it, a start is a walk as well.
        drop(opened);
        std::fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
        let opened = open(config, Arc::new(ManualClock::at(0))).unwrap();
        assert_eq!(opened.queues.get(Sample::TOPIC, 0).unwrap().max_offset(), 200);
        assert!(of_log() < 1 << 20, "{} bytes after a start", of_log());
    }

    #[test]
    fn a_record_that_fits_no_segment_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = opened(&dir, FlushMode::Async);
        let queue = opened.queues.open_or_create(Sample::TOPIC, 0).unwrap();
        let mut append = |body_bytes| {
            let mut batch = AppendBatch::default();
            Sample { queue_id: 0, fill: 1, body_bytes }.push(&mut batch, &queue);
            opened.log.append(&mut batch, 1).map(|appended| appended.from)
        };
        assert!(matches!(append(65_536), Err(StoreError::TooLong { max: 65_528, .. })));
        assert_eq!((append(10).unwrap(), queue.next_offset()), (0, 1));
    }

    /// Store times never go back, whatever the clock does: searches by time rely on it.
    #[test]
    fn a_clock_that_is_set_back_leaves_the_store_times_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = opened(&dir, FlushMode::Async);
        for now_ms in [1_000, 400, 1_200] {
            Sample { queue_id: 0, fill: 1, body_bytes: 10 }.store(&mut opened, Sample::TOPIC, now_ms);
        }
        let (end, mut times) = (opened.log.wrote_to(), Vec::new());
        let walked = opened.reader.walk(0, end, |record| {
            times.push(record.store_timestamp_ms());
            Ok::<(), StoreError>(())
        });
        assert_eq!((walked.unwrap(), times), (end, vec![1_000, 1_000, 1_200]));
    }

    /// Wherever the sectors of the disk lie in a record.
    #[test]
    fn as_many_zeros_as_properties_may_hold_are_never_taken_for_a_lost_sector() {
        let is_record = |zeros: usize, shift: usize| {
            let mut bytes = BytesMut::new();
            let value = [vec![b'x'; shift], vec![0; zeros]].concat();
            let properties: &[&[u8]] = &[b"mine\x01", &value, b"\x02"];
            NewRecord { topic: "T", body: b"x", properties, ..NewRecord::PLAIN }.encode(&mut bytes).unwrap();
            fill_holes(&mut bytes, 0, 0, 5);
            matches!(step(&bytes, 0, Look::Crc), Step::Record(_))
        };
        assert!((0..=ZEROS_MAX + 1).all(|shift| is_record(ZEROS_MAX, shift)));
        assert!(!(0..=ZEROS_MAX + 1).all(|shift| is_record(ZEROS_MAX + 1, shift)));
    }

    #[test]
    fn behind_the_end_all_is_zero_whatever_the_flush() {
        for flush in [FlushMode::Async, FlushMode::Sync] {
            let dir = tempfile::tempdir().unwrap();
            let mut opened = opened(&dir, flush);
            let queue = opened.queues.open_or_create(Sample::TOPIC, 0).unwrap();
            let mut batch = AppendBatch::default();
            Sample { queue_id: 0, fill: 1, body_bytes: 500 }.push(&mut batch, &queue);
            opened.log.append(&mut batch, 1).unwrap();
            let end = usize::try_from(opened.log.wrote_to()).unwrap();
            let file = std::fs::read(opened.log.writer.segment().path()).unwrap();
            assert_eq!(file.len(), 65_536);
            assert!(file[end..].iter().all(|byte| *byte == 0));
        }
    }
}
