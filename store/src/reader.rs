//! Reading the log: positions and slices, from any thread, without a lock.
//!
//! Invariants:
//! - `min_offset <= flushed_to <= wrote_to`, each only grows while the store is open;
//! - bytes below `wrote_to` are final; a slice of them costs no copy and keeps its segment mapped;
//! - nobody but the `CommitLog` moves `wrote_to`, nobody but the `LogFlusher` moves `flushed_to`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;

use crate::error::StoreError;
use crate::no_wait::Cold;
use crate::pieces::Pieces;
use crate::segments::Segments;

/// Positions of the log that all threads see, each on its own cache line.
#[derive(Debug)]
pub(crate) struct Positions {
    wrote_to: Line,
    flushed_to: Line,
    /// Store time of the last record; set before `wrote_to`, so that who reads it first knows a time of
    /// records below.
    store_ms: AtomicI64,
    /// The same of a record below `flushed_to`.
    flushed_ms: AtomicI64,
}

#[derive(Debug)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Positions {
    pub(crate) fn at(end: u64, flushed_to: u64) -> Positions {
        Positions {
            wrote_to: Line(AtomicU64::new(end)),
            flushed_to: Line(AtomicU64::new(flushed_to)),
            store_ms: AtomicI64::new(0),
            flushed_ms: AtomicI64::new(0),
        }
    }

    pub(crate) fn wrote_to(&self) -> u64 {
        self.wrote_to.0.load(Ordering::Acquire)
    }

    pub(crate) fn flushed_to(&self) -> u64 {
        self.flushed_to.0.load(Ordering::Acquire)
    }

    pub(crate) fn set_wrote_to(&self, to: u64) {
        self.wrote_to.0.store(to, Ordering::Release);
    }

    pub(crate) fn store_ms(&self) -> i64 {
        self.store_ms.load(Ordering::Acquire)
    }

    pub(crate) fn set_store_ms(&self, store_ms: i64) {
        self.store_ms.store(store_ms, Ordering::Release);
    }

    pub(crate) fn flushed_ms(&self) -> i64 {
        self.flushed_ms.load(Ordering::Acquire)
    }

    pub(crate) fn set_flushed_ms(&self, store_ms: i64) {
        self.flushed_ms.fetch_max(store_ms, Ordering::AcqRel);
    }

    pub(crate) fn set_flushed_to(&self, to: u64) {
        self.flushed_to.0.fetch_max(to, Ordering::AcqRel);
    }
}

/// Read side of the log; clones share it.
#[derive(Debug, Clone)]
pub struct LogReader {
    segments: Arc<Segments>,
    positions: Arc<Positions>,
    segment_bytes: u64,
}

/// Bytes in front of the flushed position that stay in the process: consumers who keep up read there.
pub(crate) const KEEP_MAPPED_BYTES: u64 = 64 << 20;

impl LogReader {
    pub(crate) fn new(segments: Arc<Segments>, positions: Arc<Positions>, segment_bytes: u64) -> LogReader {
        LogReader { segments, positions, segment_bytes }
    }

    /// Start of the oldest segment that is kept.
    pub fn min_offset(&self) -> u64 {
        self.segments.start().unwrap_or_default()
    }

    /// End of the log: every byte below is final.
    pub fn wrote_to(&self) -> u64 {
        self.positions.wrote_to()
    }

    /// Every byte below is on the disk.
    pub fn flushed_to(&self) -> u64 {
        self.positions.flushed_to()
    }

    /// When the last record was stored, epoch ms: no later one gets an earlier time.
    pub fn last_store_ms(&self) -> i64 {
        self.positions.store_ms()
    }

    /// Size of each segment in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// The segments, for those who walk or delete them.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    /// `len` bytes from `log_offset`, zero copy; nothing where they are not all in one kept segment.
    pub fn slice(&self, log_offset: u64, len: usize) -> Option<Bytes> {
        self.segments.bytes(log_offset, len)
    }

    /// Takes pieces of the segment that holds `log_offset`, of the bytes that are final now; none of them yet, and room
    /// for some.
    pub fn pieces(&self, log_offset: u64, room: usize) -> Option<Pieces> {
        let take = |segment: &Arc<crate::segment::Segment>| {
            let bytes = segment.bytes(segment.start(), segment.mapping().published())?;
            Some(Pieces::new(segment.start(), bytes, room))
        };
        self.segments.with(log_offset, take).flatten()
    }

    /// The written bytes from `log_offset` to the end of its segment, at most `max`; empty at the end of the
    /// log, nothing outside it. For sequential readers.
    pub fn rest(&self, log_offset: u64, max: usize) -> Option<Bytes> {
        let take = |segment: &Arc<crate::segment::Segment>| {
            let have = segment.published().checked_sub(log_offset)?;
            let len = usize::try_from(have).unwrap_or(max).min(max);
            segment.bytes(log_offset, len)
        };
        self.segments.with(log_offset, take).flatten()
    }

    /// Hands the bytes to `look` without making an owned slice of them.
    pub fn look<T>(&self, log_offset: u64, len: usize, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.segments.with(log_offset, |segment| segment.slice(log_offset, len).map(look)).flatten()
    }

    /// Copies these bytes through the file, if that waits for no disk; nothing where they are not all in one kept
    /// segment.
    ///
    /// # Errors
    /// If they are not in memory.
    pub fn read_now(&self, log_offset: u64, len: usize) -> Result<Option<Vec<u8>>, Cold> {
        self.segments.with(log_offset, |segment| segment.read_now(log_offset, len)).unwrap_or(Ok(None))
    }

    /// The same, waiting for the disk.
    ///
    /// # Errors
    /// If it cannot read them.
    pub fn read(&self, log_offset: u64, len: usize) -> Result<Option<Vec<u8>>, StoreError> {
        match self.segments.at(log_offset) {
            Some(segment) => segment.read(log_offset, len),
            None => Ok(None),
        }
    }

    /// Brings these bytes into memory, on a thread that may wait.
    ///
    /// # Errors
    /// If the disk cannot read them: then nobody may read them through the map. What is not kept is none.
    pub fn fetch(&self, log_offset: u64, len: usize) -> Result<(), StoreError> {
        self.segments.with(log_offset, |segment| segment.fetch(log_offset, len)).unwrap_or(Ok(()))
    }

    /// Offset up to which, from `log_offset` on, reading waits for no disk, as far as was seen in the last seconds:
    /// `now_s` is the time of any clock. None if these bytes have to be waited for; what nobody can read has not.
    pub fn resident_to(&self, log_offset: u64, len: usize, now_s: u32) -> Option<u64> {
        let ask = |segment: &Arc<crate::segment::Segment>| segment.resident_to(log_offset, len, now_s);
        self.segments.with(log_offset, ask).unwrap_or(Some(log_offset))
    }

    /// Sees to it that these bytes can be read through the map: what is not in memory is fetched. Waits for the disk.
    ///
    /// # Errors
    /// If the disk cannot read them.
    pub fn ready(&self, log_offset: u64, len: usize) -> Result<(), StoreError> {
        self.segments.with(log_offset, |segment| segment.ready(log_offset, len)).unwrap_or(Ok(()))
    }

    /// The same as [`LogReader::look`] for bytes that may be on the disk alone; nothing where it cannot read them,
    /// which is told. Waits for it.
    pub fn look_on_disk<T>(&self, log_offset: u64, len: usize, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match self.ready(log_offset, len) {
            Ok(()) => self.look(log_offset, len, look),
            Err(error) => {
                tracing::error!(%error, log_offset, "a message cannot be read from the disk");
                None
            }
        }
    }

    /// Takes what was read of old messages in this range out of the process again; the page cache keeps it. What was
    /// flushed a moment ago is not old.
    pub fn unmap_old(&self, log: Range<u64>) {
        let to = log.end.min(self.flushed_to().saturating_sub(KEEP_MAPPED_BYTES));
        if log.start >= to {
            return;
        }
        for segment in self.segments.snapshot().iter() {
            if segment.end() > log.start && segment.start() < to {
                segment.unmap(log.start..to);
            }
        }
    }

    /// Whether reading these bytes waits for no disk. What nobody can read is resident.
    pub fn is_resident(&self, log_offset: u64, len: usize) -> bool {
        self.segments.with(log_offset, |segment| segment.is_resident(log_offset, len)).unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;
    use crate::segment::{Allocate, SegmentWriter};
    use crate::testing::{mapped_bytes, until};

    #[test]
    fn a_reader_follows_the_writer_within_a_segment() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::create(dir.path(), 4096, 4096, Allocate::Now).unwrap();
        let segments = Arc::new(Segments::new(vec![Arc::clone(writer.segment())]));
        let reader = LogReader::new(segments, Arc::new(Positions::at(4096, 4096)), 4096);
        assert_eq!(reader.rest(4096, 100).unwrap().len(), 0);
        writer.append(b"hello").unwrap();
        assert_eq!(&reader.slice(4096, 5).unwrap()[..], b"hello");
        assert_eq!(&reader.rest(4097, 3).unwrap()[..], b"ell");
        assert_eq!(&reader.rest(4097, 300).unwrap()[..], b"ello");
        assert_eq!(reader.look(4098, 1, |bytes| bytes[0]), Some(b'l'));
        assert!(reader.slice(4096, 6).is_none());
        let mut pieces = reader.pieces(4098, 2).unwrap();
        assert!(pieces.add(4097, 4) && !pieces.add(4097, 5) && !pieces.add(4095, 1));
        assert_eq!(pieces.single().as_deref(), Some(&b"ello"[..]));
        assert!(reader.pieces(8192, 2).is_none());
        assert!(reader.rest(4200, 10).is_none());
        assert!(reader.rest(0, 10).is_none());
        // The system may take the page at any time.
        until("it is in memory", || {
            assert_eq!(reader.look(4096, 1, |bytes| bytes[0]), Some(b'h'));
            reader.is_resident(4096, 5)
        });
        let _forgotten = faults::forget(dir.path());
        assert!(!reader.is_resident(4096, 5) && reader.resident_to(4096, 5, 0).is_none());
        assert_eq!(reader.read_now(4096, 5), Err(Cold));
    }

    #[test]
    fn what_was_read_leaves_the_process_when_it_is_old() {
        const MIB: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::create(dir.path(), 0, 72 * MIB, Allocate::Now).unwrap();
        let end = writer.segment().end();
        writer.publish(end);
        let segments = Arc::new(Segments::new(vec![Arc::clone(writer.segment())]));
        let positions = Arc::new(Positions::at(end, 70 * MIB));
        let reader = LogReader::new(segments, positions, end);
        let read = |log: Range<u64>| {
            let bytes = reader.slice(log.start, usize::try_from(log.end - log.start).unwrap()).unwrap();
            assert!(bytes.iter().step_by(crate::mmap::PAGE_BYTES).all(|byte| *byte == 0));
        };
        // 64 MiB in front of the flushed position stay, and what is behind it.
        for (old, left_mib) in [(2 * MIB..3 * MIB, 71), (5 * MIB..u64::MAX, 71), (0..u64::MAX, 66)] {
            // The system may take a page at any time.
            until("the rest is in the process", || {
                read(0..end);
                reader.unmap_old(old.clone());
                let left = mapped_bytes(dir.path());
                assert!(left <= left_mib * MIB, "{left} bytes");
                left == left_mib * MIB
            });
        }
    }

    #[test]
    fn the_flushed_position_never_goes_back() {
        let positions = Positions::at(10, 10);
        positions.set_flushed_to(20);
        positions.set_flushed_to(15);
        assert_eq!(positions.flushed_to(), 20);
    }
}
