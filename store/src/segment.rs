//! One mapped file of a row of equal files: of the log, of a consume queue, of the timer log.
//!
//! Invariants:
//! - the file's name is the offset of its first byte in 20 decimal digits, and its length never changes;
//! - a slice handed out keeps the map alive, also after the file is deleted.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::mmap::{MapWriter, Mapping};
use crate::no_wait::{self, Cold};
use crate::seen::Seen;

/// What zeros are written from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// How many times they go into one write.
const ZERO_PIECES: usize = 16;

/// Bytes read from the file at a time.
const FETCH_BYTES: usize = 64 << 10;
/// Bytes that a walk over a segment has in memory before it is there.
const AHEAD_BYTES: u64 = 1 << 20;
/// Bytes of a record that tell whether it is one, and how long it is: its size and its magic.
const HEAD_BYTES: usize = 8;

/// Read side of a segment; shared by all readers.
#[derive(Debug)]
pub struct Segment {
    start: u64,
    path: PathBuf,
    file: File,
    mapping: Arc<Mapping>,
    seen: Seen,
}

/// Write side of the segment that is being filled.
#[derive(Debug)]
pub struct SegmentWriter {
    segment: Arc<Segment>,
    writer: MapWriter,
}

/// Name of the segment that begins at `start`.
pub fn segment_name(start: u64) -> String {
    format!("{start:020}")
}

/// How the blocks of a new file are had from the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// All now, so that no later store can hit a full disk.
    Now,
    /// As they are written through the file; for small derived files that can be made again.
    Sparse,
}

impl Segment {
    /// Offset of the first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Offset behind the last byte the file can hold.
    pub fn end(&self) -> u64 {
        self.start + self.mapping.len() as u64
    }

    /// Offset behind the last final byte.
    pub fn published(&self) -> u64 {
        self.start + self.mapping.published() as u64
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, for positioned reads and writes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The map.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// `len` final bytes from `offset`.
    pub fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.mapping.slice(self.position(offset)?, len)
    }

    /// `len` final bytes from `offset` as an owned slice of the map: no copy, one small allocation.
    pub fn bytes(&self, offset: u64, len: usize) -> Option<Bytes> {
        let at = self.position(offset)?;
        self.mapping.slice(at, len)?;
        Some(Bytes::from_owner(Lease { mapping: Arc::clone(&self.mapping), at, len }))
    }

    /// Whether reading `len` bytes from `offset` waits for no disk.
    pub fn is_resident(&self, offset: u64, len: usize) -> bool {
        let is_resident = |at: usize| self.mapping.is_resident(at..at.saturating_add(len));
        !faults::is_armed(Op::Read, &self.path) && self.position(offset).is_none_or(is_resident)
    }

    /// Offset up to which, from `offset` on, reading waits for no disk; none if that is less than `len` bytes. Asks the
    /// system about no stretch of the file more than once in some seconds.
    pub fn resident_to(&self, offset: u64, len: usize, now_s: u32) -> Option<u64> {
        let Some(at) = self.position(offset) else { return Some(offset) };
        if faults::is_armed(Op::Read, &self.path) {
            return None;
        }
        let of = (at..at.saturating_add(len), self.mapping.published(), self.mapping.len());
        let known_to = self.seen.known_to(of, now_s, |range| self.mapping.resident_parts(range))?;
        Some(self.start + known_to as u64)
    }

    /// Reads `len` final bytes from `offset` through the file, after which they are in memory. Waits for the disk.
    ///
    /// # Errors
    /// If the disk refuses or the file was cut; to who reads through the map that is the end of the process.
    pub fn fetch(&self, offset: u64, len: usize) -> Result<(), StoreError> {
        let end = offset.saturating_add(len as u64).min(self.published());
        let from = offset.max(self.start);
        fetch(&self.file, &self.path, from - self.start..end.max(from) - self.start)
    }

    /// Copies `len` final bytes from `offset`, if that waits for no disk; nothing where the range is not final.
    pub(crate) fn read_now(&self, offset: u64, len: usize) -> Result<Option<Vec<u8>>, Cold> {
        let Some(at) = self.final_at(offset, len) else { return Ok(None) };
        let mut bytes = vec![0; len];
        let is_resident = || self.mapping.is_resident(at..at + len);
        no_wait::read_now((&self.file, &self.path), &mut bytes, at as u64, is_resident)?;
        Ok(Some(bytes))
    }

    /// The same, waiting for the disk.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(at) = self.final_at(offset, len) else { return Ok(None) };
        let mut bytes = vec![0; len];
        let read = faults::look(Op::Read, &self.path, || self.file.read_exact_at(&mut bytes, at as u64));
        read.map_err(StoreError::read(&self.path, at as u64))?;
        Ok(Some(bytes))
    }

    /// Byte of the file at which these bytes begin, if all are final.
    fn final_at(&self, offset: u64, len: usize) -> Option<usize> {
        let at = self.position(offset)?;
        (at.checked_add(len)? <= self.mapping.published()).then_some(at)
    }

    /// Sees to it that who reads `len` bytes from `offset` through the map, final or not, meets no error of the disk:
    /// what is not in memory is fetched. Waits for the disk.
    pub(crate) fn ready(&self, offset: u64, len: usize) -> Result<(), StoreError> {
        let from = offset.clamp(self.start, self.end()) - self.start;
        let end = offset.saturating_add(len as u64).clamp(self.start, self.end()) - self.start;
        let at = usize::try_from(from).expect("a segment fits the address space");
        let is_resident = || self.mapping.is_resident(at..at.saturating_add(len));
        ready((&self.file, &self.path), from..end, is_resident)
    }

    /// Takes the whole pages of a range of the log out of this process, as far as they lie in this segment; the page
    /// cache keeps them.
    pub fn unmap(&self, log: Range<u64>) {
        let place = |offset: u64| usize::try_from(offset.clamp(self.start, self.end()) - self.start);
        let place = |offset| place(offset).expect("a segment fits the address space");
        if let Err(error) = self.mapping.drop_pages(place(log.start)..place(log.end)) {
            tracing::debug!(%error, file = %self.path.display(), "pages stay in the process");
        }
    }

    /// Has the disk take everything stored in this file so far.
    pub fn sync(&self) -> Result<(), StoreError> {
        let synced = faults::pass(Op::Flush, &self.path, || self.file.sync_data());
        synced.map_err(StoreError::io("flush", &self.path))
    }

    /// Same, with the file's length and times.
    pub(crate) fn sync_all(&self) -> Result<(), StoreError> {
        let synced = faults::pass(Op::Flush, &self.path, || self.file.sync_all());
        synced.map_err(StoreError::io("flush", &self.path))
    }

    fn position(&self, offset: u64) -> Option<usize> {
        usize::try_from(offset.checked_sub(self.start)?).ok()
    }
}

impl SegmentWriter {
    /// Makes the file of the segment that begins at `start` in `dir`, or takes one that is there.
    pub fn create(dir: &Path, start: u64, len: u64, allocate: Allocate) -> Result<SegmentWriter, StoreError> {
        let path = dir.join(segment_name(start));
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = faults::pass(Op::Create, &path, open).map_err(StoreError::io("create", &path))?;
        let grown = faults::pass(Op::Allocate, &path, || grow(&file, len, allocate));
        grown.map_err(StoreError::io("allocate", &path))?;
        SegmentWriter::map(path, file, start, len)
    }

    /// Opens the existing file `path` as the segment that begins at `start`, with nothing published.
    pub fn open(path: &Path, start: u64, len: u64) -> Result<SegmentWriter, StoreError> {
        let open = || OpenOptions::new().read(true).write(true).open(path);
        let file = faults::look(Op::Open, path, open).map_err(StoreError::io("open", path))?;
        SegmentWriter::map(path.to_path_buf(), file, start, len)
    }

    fn map(path: PathBuf, file: File, start: u64, len: u64) -> Result<SegmentWriter, StoreError> {
        let len = usize::try_from(len).map_err(|_| StoreError::TooLong {
            what: "segment",
            len,
            max: usize::MAX as u64,
        })?;
        let writer = Mapping::open(&file, len).map_err(StoreError::io("map", &path))?;
        let mapping = Arc::clone(writer.mapping());
        // What is read through the map is in memory. If it were read ahead from there, whoever comes to the last
        // megabytes of that, an arbiter too, would have to order the next ones from the disk.
        if let Err(error) = mapping.read_ahead(false) {
            tracing::debug!(%error, file = %path.display(), "the system reads ahead for who reads the log");
        }
        let segment = Arc::new(Segment { start, path, file, mapping, seen: Seen::default() });
        Ok(SegmentWriter { segment, writer })
    }

    /// The read side.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The whole file, final or not.
    pub fn whole(&self) -> &[u8] {
        self.writer.whole()
    }

    /// Offset of the first byte that is not final.
    pub fn position(&self) -> u64 {
        self.segment.published()
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> usize {
        self.segment.mapping.len() - self.segment.mapping.published()
    }

    /// The bytes that are not final, from `position` on.
    pub fn tail(&mut self) -> &mut [u8] {
        self.writer.tail()
    }

    /// Makes everything below the offset `to` final.
    ///
    /// # Panics
    /// If `to` is outside the segment.
    pub fn publish(&mut self, to: u64) {
        let at = self.segment.position(to).expect("published offsets lie in their segment");
        self.writer.publish(at);
    }

    /// Writes `bytes` at the position through the file, whose map shows them too. They are not final yet.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_pieces(&mut [IoSlice::new(bytes)])
    }

    /// The same for `pieces`, one behind the other.
    pub(crate) fn write_pieces(&mut self, pieces: &mut [IoSlice<'_>]) -> Result<(), StoreError> {
        let Segment { file, path, start, .. } = &*self.segment;
        let at = self.position() - start;
        faults::write_pieces_at(file, path, pieces, at).map_err(StoreError::io("write", path))
    }

    /// Writes zeros to `range` of the file.
    ///
    /// # Panics
    /// If what stands there is final.
    pub(crate) fn write_zeros(&mut self, range: Range<u64>) -> Result<(), StoreError> {
        assert!(range.start >= self.position(), "final bytes are never written again");
        let Segment { file, path, start, .. } = &*self.segment;
        let mut at = range.start;
        while at < range.end {
            let step = (range.end - at).min((ZERO_PIECES * ZEROS.len()) as u64);
            let mut left = usize::try_from(step).expect("a step is short");
            let mut pieces = [IoSlice::new(&[]); ZERO_PIECES];
            for piece in &mut pieces {
                let len = left.min(ZEROS.len());
                *piece = IoSlice::new(&ZEROS[..len]);
                left -= len;
            }
            faults::write_pieces_at(file, path, &mut pieces, at - start)
                .map_err(StoreError::io("write", path))?;
            at += step;
        }
        Ok(())
    }

    /// Offset up to which, from the position on, the blocks of the file were written before, as far as the file
    /// system tells.
    pub(crate) fn written_to(&self) -> u64 {
        let (start, position) = (self.segment.start, self.position());
        let hole = rustix::fs::seek(&self.segment.file, rustix::fs::SeekFrom::Hole(position - start));
        hole.map_or(position, |hole| start + hole)
    }

    /// Writes `bytes` at the position and makes them final.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        assert!(bytes.len() <= self.remaining(), "a segment does not grow");
        let to = self.position() + bytes.len() as u64;
        self.write(bytes)?;
        self.publish(to);
        Ok(())
    }
}

/// Reads a range of a file that is mapped and not in memory, so that it is.
pub(crate) fn ready(
    (file, path): (&File, &Path),
    range: Range<u64>,
    is_resident: impl FnOnce() -> bool,
) -> Result<(), StoreError> {
    // A test may refuse what is in memory too: whether it is, nobody can rely on.
    faults::look(Op::Read, path, || Ok(())).map_err(StoreError::read(path, range.start))?;
    if is_resident() { Ok(()) } else { fetch(file, path, range) }
}

/// Reads a range of a file, piece by piece.
fn fetch(file: &File, path: &Path, range: Range<u64>) -> Result<(), StoreError> {
    let len = range.end.saturating_sub(range.start);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(FETCH_BYTES).min(FETCH_BYTES)];
    let mut at = range.start;
    while at < range.end {
        let step = usize::try_from(range.end - at).unwrap_or(FETCH_BYTES).min(bytes.len());
        let read = || file.read_exact_at(&mut bytes[..step], at);
        faults::look(Op::Read, path, read).map_err(StoreError::read(path, at))?;
        at += step as u64;
    }
    Ok(())
}

/// Brings a segment into memory ahead of who walks over it, so that the walk meets no error of the disk; and out of the
/// process behind it, so that long walks leave it small.
#[derive(Debug)]
pub(crate) struct Ahead<'a> {
    segment: &'a Segment,
    /// Bytes that are brought at once, at least.
    step: u64,
    /// Offset from which on the walk may have pages in the process.
    from: u64,
    /// Offset before which all is there that the walk has asked for.
    ready_to: u64,
}

impl Ahead<'_> {
    /// A walk over a segment.
    pub(crate) fn over(segment: &Segment) -> Ahead<'_> {
        Ahead { segment, step: AHEAD_BYTES, from: segment.end(), ready_to: 0 }
    }

    /// A single look: no more than is wanted.
    pub(crate) fn exactly(segment: &Segment) -> Ahead<'_> {
        Ahead { segment, step: 0, from: segment.end(), ready_to: 0 }
    }

    /// The walk wants `len` bytes from `offset`, which never goes back.
    #[inline]
    pub(crate) fn want(&mut self, offset: u64, len: usize) -> Result<(), StoreError> {
        let to = offset.saturating_add(len as u64);
        if to > self.ready_to { self.go_on(offset, to) } else { Ok(()) }
    }

    /// The walk wants the record that begins at `offset`, as long as it says it is. `rest` is what the segment has from
    /// there on.
    #[inline]
    pub(crate) fn want_record(&mut self, offset: u64, rest: &[u8]) -> Result<(), StoreError> {
        self.want(offset, HEAD_BYTES.min(rest.len()))?;
        let size = rest.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // One that says it is longer than its segment is none, and no more of it is looked at.
        if size <= rest.len() { self.want(offset, size) } else { Ok(()) }
    }

    #[cold]
    fn go_on(&mut self, offset: u64, to: u64) -> Result<(), StoreError> {
        let from = offset.max(self.ready_to);
        let to = to.max(from.saturating_add(self.step)).min(self.segment.end());
        self.segment.ready(from, usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX))?;
        self.ready_to = to;
        self.leave(offset);
        Ok(())
    }

    /// Takes what is in front of `offset` out of the process. A single look leaves its page there.
    fn leave(&mut self, offset: u64) {
        if self.step > 0 {
            self.segment.unmap(self.from..offset);
            self.from = offset;
        }
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.leave(self.ready_to);
    }
}

/// Gives the file at least `len` bytes.
fn grow(file: &File, len: u64, allocate: Allocate) -> io::Result<()> {
    if allocate == Allocate::Now {
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    Ok(())
}

/// A slice of a map that keeps the map alive.
struct Lease {
    mapping: Arc<Mapping>,
    at: usize,
    len: usize,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.mapping.slice(self.at, self.len).expect("published bytes stay published")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_bytes_are_read_by_their_offset() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::create(dir.path(), 65_536, 4096, Allocate::Now).unwrap();
        writer.append(b"hello").unwrap();
        let segment = Arc::clone(writer.segment());
        assert_eq!(segment.slice(65_537, 4), Some(&b"ello"[..]));
        assert_eq!(segment.slice(65_537, 5), None);
        assert_eq!(segment.slice(0, 1), None);
        assert_eq!((writer.position(), writer.remaining()), (65_541, 4091));
        assert_eq!(segment.path(), dir.path().join("00000000000000065536"));
    }

    #[test]
    fn a_slice_outlives_its_segment_and_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::create(dir.path(), 0, 4096, Allocate::Sparse).unwrap();
        writer.append(b"hello").unwrap();
        let bytes = writer.segment().bytes(1, 3).unwrap();
        std::fs::remove_file(writer.segment().path()).unwrap();
        drop(writer);
        assert_eq!(&bytes[..], b"ell");
    }

    #[test]
    fn zeros_are_written_ahead_and_known_after_the_next_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::create(dir.path(), 1 << 20, 1 << 20, Allocate::Now).unwrap();
        writer.append(b"hello").unwrap();
        let to = (1 << 20) + 200_000;
        writer.write_zeros(writer.position()..to).unwrap();
        assert!(writer.written_to() >= to);
        let path = dir.path().join(segment_name(1 << 20));
        assert!(SegmentWriter::open(&path, 1 << 20, 1 << 20).unwrap().written_to() >= to);
        let bytes = std::fs::read(path).unwrap();
        assert!(&bytes[..5] == b"hello" && bytes[5..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn an_existing_file_opens_with_its_content_unpublished() {
        let dir = tempfile::tempdir().unwrap();
        SegmentWriter::create(dir.path(), 0, 4096, Allocate::Now).unwrap().append(b"hello").unwrap();
        let writer = SegmentWriter::open(&dir.path().join(segment_name(0)), 0, 4096).unwrap();
        assert_eq!(&writer.whole()[..5], b"hello");
        assert_eq!(writer.position(), 0);
    }

    #[test]
    fn who_reads_the_map_of_a_segment_orders_nothing_from_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let writer = SegmentWriter::create(dir.path(), 0, 8192, Allocate::Now).unwrap();
        let name = writer.segment().path.display().to_string();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_segment = maps.split_once(&name).expect("it is mapped").1;
        let flags = of_segment.lines().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "rr"), "read at random: {flags}");
    }
}
