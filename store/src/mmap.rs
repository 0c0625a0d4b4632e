//! Mapped files, the only unsafe code of the project.
//!
//! Two kinds of map, and no other way to the mapped bytes:
//!
//! | type | bytes | writers | readers |
//! |---|---|---|---|
//! | `Mapping` + `MapWriter` | grow; final below `published` | owner of the one `MapWriter` | any, below `published` |
//! | `WordMap` | change in place, 8, 16 or 32 bits at a time | any thread | any thread |
//!
//! Invariants:
//! - a map never outlives its file's length: files are created at full size and only shortened when unmapped;
//! - bytes below `published` are never written again, so shared slices of them are sound;
//! - bytes at or above `published` are reached only through the `MapWriter`, which is not cloneable, or written
//!   to the file by its owner (`SegmentWriter::write`): the map shows what the page cache holds;
//! - two sizes of words of a `WordMap` are never used for the same bytes at the same time;
//! - other processes do not write the files: the process lock of the store keeps them out.

#![expect(unsafe_code, reason = "mapped memory; each block says why it is sound")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

use crate::seen::{STRETCH_BYTES, part_of};

/// Bytes of a memory page; advice and residency work in these.
pub const PAGE_BYTES: usize = 4096;

/// Read side of a growing map.
#[derive(Debug)]
pub struct Mapping {
    raw: MmapRaw,
    published: AtomicUsize,
}

/// The one write side of a growing map.
#[derive(Debug)]
pub struct MapWriter {
    mapping: Arc<Mapping>,
}

impl Mapping {
    /// Maps the first `len` bytes of `file`, none of them published.
    pub fn open(file: &File, len: usize) -> io::Result<MapWriter> {
        let raw = map_whole(file, len)?;
        Ok(MapWriter { mapping: Arc::new(Mapping { raw, published: AtomicUsize::new(0) }) })
    }

    /// Mapped length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a map of no bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// End of the final bytes.
    pub fn published(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    /// All final bytes.
    pub fn bytes(&self) -> &[u8] {
        let len = self.published();
        // SAFETY: the pointer is valid for the map's length, which `published` never exceeds
        // (`MapWriter::publish` checks), and bytes below `published` are never written again.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr(), len) }
    }

    /// `len` final bytes from `at`, or nothing where the range is not final.
    pub fn slice(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.bytes().get(at..at.checked_add(len)?)
    }

    /// Takes the whole pages of `range` out of this process; the page cache keeps their content.
    pub fn drop_pages(&self, range: Range<usize>) -> io::Result<()> {
        drop_pages(&self.raw, range)
    }

    /// Whether the system reads more from the disk than it is asked for, in the hope that it is wanted next.
    pub fn read_ahead(&self, more: bool) -> io::Result<()> {
        self.raw.advise(if more { Advice::Normal } else { Advice::Random })
    }

    /// Whether every page of `range` is in memory, so that reading it waits for no disk.
    pub fn is_resident(&self, range: Range<usize>) -> bool {
        is_resident(&self.raw, range)
    }

    /// Which parts of a stretch are in memory, as far as `range` has them: see [`Seen::known_to`].
    ///
    /// [`Seen::known_to`]: crate::seen::Seen::known_to
    pub(crate) fn resident_parts(&self, range: Range<usize>) -> u32 {
        resident_parts(&self.raw, range)
    }
}

impl MapWriter {
    /// The read side, for any number of readers.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// The whole map, final or not: for a look at a file before its end is known.
    pub fn whole(&self) -> &[u8] {
        // SAFETY: the pointer is valid for the map's length; the part above `published` is written
        // only through `&mut self`, which cannot coexist with this borrow.
        unsafe { std::slice::from_raw_parts(self.mapping.raw.as_ptr(), self.mapping.len()) }
    }

    /// The bytes that are not final yet, from `published` to the end of the map.
    pub fn tail(&mut self) -> &mut [u8] {
        let at = self.mapping.published();
        let start = self.mapping.raw.as_mut_ptr().wrapping_add(at);
        // SAFETY: `at` is at most the map's length; readers see only bytes below `published`, and
        // `&mut self` keeps any other use of this writer out for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(start, self.mapping.len() - at) }
    }

    /// Makes everything below `to` final. A position below the present one changes nothing.
    ///
    /// # Panics
    /// If `to` is beyond the map.
    pub fn publish(&mut self, to: usize) {
        assert!(to <= self.mapping.len(), "published position {to} is beyond the map");
        if to > self.mapping.published() {
            self.mapping.published.store(to, Ordering::Release);
        }
    }
}

/// A map whose words change in place, such as the hash slots of an index. Formats are big-endian: callers
/// store `value.to_be()` and read with `from_be`.
#[derive(Debug)]
pub struct WordMap {
    raw: MmapRaw,
}

impl WordMap {
    /// Maps the first `len` bytes of `file`.
    pub fn open(file: &File, len: usize) -> io::Result<WordMap> {
        Ok(WordMap { raw: map_whole(file, len)? })
    }

    /// Mapped length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a map of no bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// The 32 bits at byte `at`.
    ///
    /// # Panics
    /// If `at` is not a multiple of four or its word is outside the map.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at < self.len() && self.len() - at >= 4, "no word at byte {at}");
        let start = self.raw.as_mut_ptr().wrapping_add(at).cast::<u32>();
        // SAFETY: maps start at a page, so a multiple of four is aligned; the word is inside the map
        // (asserted), lives as long as `self`, and is accessed only atomically by this type.
        unsafe { AtomicU32::from_ptr(start) }
    }

    /// The `count` words of 32 bits from byte `at` on.
    ///
    /// # Panics
    /// If `at` is not a multiple of four or they are not all inside the map.
    #[inline]
    pub fn words(&self, at: usize, count: usize) -> &[AtomicU32] {
        let inside = at <= self.len() && (self.len() - at) / 4 >= count;
        assert!(at.is_multiple_of(4) && inside, "no {count} words at byte {at}");
        let start = self.raw.as_mut_ptr().wrapping_add(at).cast::<AtomicU32>();
        // SAFETY: maps start at a page, so a multiple of four is aligned; the words are inside the map
        // (asserted), live as long as `self`, and are accessed only atomically by this type.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Has the processor fetch the bytes around `at`, without waiting. A page that is not in memory stays away.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: to prefetch is a hint that reads nothing, changes nothing and never faults, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.raw.as_ptr().wrapping_add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _no_hint = at;
    }

    /// The 16 bits at byte `at`, for layouts whose words are not aligned to four.
    ///
    /// # Panics
    /// If `at` is odd or its half word is outside the map.
    pub fn half(&self, at: usize) -> &AtomicU16 {
        assert!(at.is_multiple_of(2) && at < self.len() && self.len() - at >= 2, "no half word at byte {at}");
        let start = self.raw.as_mut_ptr().wrapping_add(at).cast::<u16>();
        // SAFETY: maps start at a page, so an even position is aligned; the half word is inside the map
        // (asserted), lives as long as `self`, and is accessed only atomically by this type.
        unsafe { AtomicU16::from_ptr(start) }
    }

    /// Copies the bytes from `at` on into `out`, one atomic byte at a time: for cold paths.
    ///
    /// # Panics
    /// If they are not all inside the map.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        for (index, byte) in out.iter_mut().enumerate() {
            *byte = self.byte(at + index).load(Ordering::Relaxed);
        }
    }

    /// Copies `bytes` to `at`, one atomic byte at a time: for cold paths.
    ///
    /// # Panics
    /// If they do not all fit into the map.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            self.byte(at + index).store(*byte, Ordering::Relaxed);
        }
    }

    /// Takes the whole pages of `range` out of this process; the page cache keeps their content.
    pub fn drop_pages(&self, range: Range<usize>) -> io::Result<()> {
        drop_pages(&self.raw, range)
    }

    /// Whether every page of `range` is in memory, so that reading it waits for no disk.
    pub fn is_resident(&self, range: Range<usize>) -> bool {
        is_resident(&self.raw, range)
    }

    /// Which parts of a stretch are in memory, as far as `range` has them: see [`Seen::known_to`].
    ///
    /// [`Seen::known_to`]: crate::seen::Seen::known_to
    pub(crate) fn resident_parts(&self, range: Range<usize>) -> u32 {
        resident_parts(&self.raw, range)
    }

    /// Whether the system reads more than the page that is needed, in the hope that it is wanted next.
    pub fn read_ahead(&self, more: bool) -> io::Result<()> {
        self.raw.advise(if more { Advice::Normal } else { Advice::Random })
    }

    /// Has the disk take every changed page; blocks.
    pub fn flush(&self) -> io::Result<()> {
        self.raw.flush()
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.len(), "no byte {at}");
        let start = self.raw.as_mut_ptr().wrapping_add(at);
        // SAFETY: the byte is inside the map (asserted), lives as long as `self`, and is accessed only
        // atomically by this type.
        unsafe { AtomicU8::from_ptr(start) }
    }
}

/// Pages that the system is asked about at once.
const ASK_PAGES_MAX: usize = STRETCH_BYTES / PAGE_BYTES;

/// Whether every page of `range` is in memory. What is outside the map needs none.
fn is_resident(map: &MmapRaw, range: Range<usize>) -> bool {
    let Some((mut at, mut len)) = pages(map, range) else { return true };
    let mut flags = [0; ASK_PAGES_MAX];
    while len > 0 {
        let step = len.min(STRETCH_BYTES);
        if ask(map, (at, step), &mut flags).is_none_or(|pages| pages.iter().any(|page| page & 1 == 0)) {
            return false;
        }
        at += step;
        len -= step;
    }
    true
}

/// A bit for each part of the stretch that holds `range`, unless a page that the range has of it is not in memory.
fn resident_parts(map: &MmapRaw, range: Range<usize>) -> u32 {
    let Some(pages) = pages(map, range) else { return u32::MAX };
    let mut flags = [0; ASK_PAGES_MAX];
    let Some(flags) = ask(map, pages, &mut flags) else { return 0 };
    let places = (pages.0..).step_by(PAGE_BYTES);
    let absent = places.zip(flags).filter(|(_, flag)| **flag & 1 == 0);
    !absent.fold(0, |absent, (at, _)| absent | 1 << part_of(at))
}

/// What the system says of each of these pages, of a stretch at most: its lowest bit, that it is in memory.
fn ask<'a>(map: &MmapRaw, (at, len): (usize, usize), flags: &'a mut [u8; ASK_PAGES_MAX]) -> Option<&'a [u8]> {
    let flags = flags.get_mut(..len.div_ceil(PAGE_BYTES))?;
    let start = map.as_mut_ptr().wrapping_add(at).cast();
    // SAFETY: `at..at + len` lies in the map (`pages` clips it), `at` is a multiple of the page size, and `flags` has
    // one byte for each page of it.
    let answer = unsafe { libc::mincore(start, len, flags.as_mut_ptr()) };
    (answer == 0).then_some(flags)
}

/// The pages that hold `range`, clipped to the map, as start and length in bytes.
fn pages(map: &MmapRaw, range: Range<usize>) -> Option<(usize, usize)> {
    let at = range.start / PAGE_BYTES * PAGE_BYTES;
    let end = range.end.min(map.len());
    (at < end).then(|| (at, end - at))
}

/// Takes the whole pages of `range` out of this process.
fn drop_pages(map: &MmapRaw, range: Range<usize>) -> io::Result<()> {
    let from = range.start.next_multiple_of(PAGE_BYTES);
    let to = range.end.min(map.len()) / PAGE_BYTES * PAGE_BYTES;
    if from >= to {
        return Ok(());
    }
    // SAFETY: the map is shared and backed by a file; dropping its page table entries loses no
    // byte, the next access maps the same page of the page cache again.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, to - from) }
}

fn map_whole(file: &File, len: usize) -> io::Result<MmapRaw> {
    let have = file.metadata()?.len();
    if len == 0 || have < len as u64 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its map"));
    }
    MmapOptions::new().len(len).map_raw(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::until;

    fn file(len: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn readers_see_only_what_was_published() {
        let mut writer = Mapping::open(&file(8192), 8192).unwrap();
        let mapping = Arc::clone(writer.mapping());
        writer.tail()[..5].copy_from_slice(b"hello");
        assert_eq!(mapping.slice(0, 5), None);
        writer.publish(5);
        assert_eq!(mapping.slice(0, 5), Some(&b"hello"[..]));
        assert_eq!(mapping.slice(1, 5), None);
        assert_eq!(mapping.slice(usize::MAX, 2), None);
        assert_eq!(writer.tail().len(), 8187);
    }

    #[test]
    fn a_published_position_never_goes_back() {
        let mut writer = Mapping::open(&file(4096), 4096).unwrap();
        writer.publish(100);
        writer.publish(50);
        assert_eq!(writer.mapping().published(), 100);
    }

    #[test]
    fn a_file_shorter_than_its_map_is_refused() {
        assert!(Mapping::open(&file(100), 4096).is_err());
        assert!(WordMap::open(&file(0), 0).is_err());
    }

    #[test]
    fn touched_pages_are_resident_and_survive_being_dropped() {
        let mut writer = Mapping::open(&file(1 << 20), 1 << 20).unwrap();
        let mapping = Arc::clone(writer.mapping());
        // The system may take a page again at any time.
        until("all of them are", || {
            writer.tail().fill(1);
            mapping.is_resident(0..1 << 20)
        });
        writer.tail()[4096] = 7;
        writer.publish(8192);
        mapping.drop_pages(0..8192).unwrap();
        assert_eq!(mapping.slice(4096, 1), Some(&[7][..]));
    }

    #[test]
    fn words_change_in_place_and_reach_the_file() {
        let file = file(4096);
        let map = WordMap::open(&file, 4096).unwrap();
        map.word(4).store(0x0102_0304_u32.to_be(), Ordering::Relaxed);
        map.half(10).store(0x0506_u16.to_be(), Ordering::Relaxed);
        map.write(12, b"x");
        let mut bytes = [0; 13];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 5, 6, b'x']);
        let mut again = [0; 13];
        map.read(0, &mut again);
        assert_eq!(again, bytes);
        map.drop_pages(0..4096).unwrap();
        until("it is in memory for who reads it", || {
            map.read(0, &mut again);
            map.is_resident(0..4096)
        });
        assert_eq!(again, bytes, "what was dropped is in the file");
        map.read_ahead(false).unwrap();
        [4, 4095, usize::MAX].into_iter().for_each(|at| map.prefetch(at));
        assert_eq!(u32::from_be(map.word(4).load(Ordering::Relaxed)), 0x0102_0304);
        let words = map.words(4092, 1).iter().chain(map.words(4, 2));
        let words: Vec<_> = words.map(|word| u32::from_be(word.load(Ordering::Relaxed))).collect();
        assert_eq!(words, [0, 0x0102_0304, 0x0000_0506]);
    }

    #[test]
    #[should_panic(expected = "no 2 words at byte 4092")]
    fn words_that_reach_beyond_the_map_are_refused() {
        WordMap::open(&file(4096), 4096).unwrap().words(4092, 2);
    }

    #[test]
    #[should_panic(expected = "no word at byte 4096")]
    fn a_word_behind_the_map_is_refused() {
        WordMap::open(&file(4096), 4096).unwrap().word(4096);
    }
}
