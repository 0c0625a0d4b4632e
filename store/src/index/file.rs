//! One index file: hash slots, each the newest end of a chain of entries.
//!
//! Invariants:
//! - an entry links only to an older one, so every walk ends;
//! - an entry is complete before its slot points at it, so readers need no lock;
//! - entries are in the order of the log;
//! - the blocks of an entry, and of all slots, are reserved before it is stored;
//! - a slot points at its entry before that is counted, which follows at once: a reader waits for it a moment;
//! - what may not be in memory is read through the file: what the disk cannot read is an error with its place;
//! - entries that were written and are far behind take no memory of this process, the slots of the file that is written
//!   do: every entry needs one of them.
//!
//! | at | bytes | meaning |
//! |---|---|---|
//! | 0 | 40 | head, `header.rs` |
//! | 40 | 4 for each slot | number of the newest entry of the chain, 0 = none |
//! | 40 + 4 × slots | 20 for each entry | entry 0 is never used |
//!
//! | entry at | bytes | meaning |
//! |---|---|---|
//! | 0 | 4 | hash of the key |
//! | 4 | 8 | log offset of the record |
//! | 12 | 4 | whole seconds between the first entry's store time and this one's |
//! | 16 | 4 | number of the next older entry of the chain |

#[cfg(test)]
mod file_test;

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

use super::header::{HEADER_BYTES, IndexHeader};
use crate::blocks::Reserved;
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::mmap::WordMap;
use crate::segment;

const ENTRY_BYTES: usize = 20;
/// Looks at the number of entries for one that is about to be counted.
const COUNTED_SOON: u32 = 100;
/// Entries that are read in one go where all are: 80 KiB.
pub(crate) const ENTRIES_AT_ONCE: u32 = 4096;

/// How many slots and entries a file has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) slots: u32,
    pub(crate) entries: u32,
}

impl Geometry {
    /// The geometry of a file of this length, if it has four entries for each slot, as nearly all have.
    fn of_length(bytes: u64) -> Option<Geometry> {
        let slots = u32::try_from(bytes.checked_sub(HEADER_BYTES as u64)? / 84).ok()?;
        let geometry = Geometry { slots, entries: slots.checked_mul(4)? };
        (slots > 0 && geometry.file_bytes() == bytes).then_some(geometry)
    }

    /// The geometry of a file of this length that has room for so many entries.
    fn of_full(bytes: u64, entries: u32) -> Option<Geometry> {
        let slots = bytes.checked_sub(HEADER_BYTES as u64 + u64::from(entries) * ENTRY_BYTES as u64)? / 4;
        let geometry = Geometry { slots: u32::try_from(slots).ok()?, entries };
        (slots > 0 && entries > 1 && geometry.file_bytes() == bytes).then_some(geometry)
    }

    /// Length of such a file in bytes.
    pub(crate) fn file_bytes(self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.slots) * 4 + u64::from(self.entries) * ENTRY_BYTES as u64
    }
}

/// One message under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    pub(crate) hash: u32,
    pub(crate) log_offset: u64,
    pub(crate) seconds: u32,
    pub(crate) older: u32,
}

/// An index file; one thread puts, any thread looks up.
#[derive(Debug)]
pub(crate) struct IndexFile {
    path: PathBuf,
    /// The file, through which is read what may not be in memory.
    disk: File,
    map: WordMap,
    geometry: Geometry,
    begin_ms: AtomicI64,
    end_ms: AtomicI64,
    begin_log_offset: AtomicU64,
    end_log_offset: AtomicU64,
    slots_used: AtomicU32,
    next_entry: AtomicU32,
    flushed_entry: AtomicU32,
    reserved: Reserved,
}

impl IndexFile {
    /// Makes an empty file.
    pub(crate) fn create(
        path: PathBuf,
        geometry: Geometry,
        header: &IndexHeader,
    ) -> Result<IndexFile, StoreError> {
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let file = faults::pass(Op::Create, &path, open).map_err(StoreError::io("create", &path))?;
        let size = || file.set_len(geometry.file_bytes());
        faults::pass(Op::Allocate, &path, size).map_err(StoreError::io("size", &path))?;
        let made = IndexFile::open(path, geometry)?;
        made.make_room(1)?;
        made.adopt(header);
        made.write_header();
        Ok(made)
    }

    /// Opens a file that has the length its geometry asks for.
    pub(crate) fn open(path: PathBuf, geometry: Geometry) -> Result<IndexFile, StoreError> {
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let disk = faults::look(Op::Open, &path, open).map_err(StoreError::io("open", &path))?;
        let bytes = usize::try_from(geometry.file_bytes()).expect("an index file fits the address space");
        let map = WordMap::open(&disk, bytes).map_err(StoreError::io("map", &path))?;
        segment::ready((&disk, &path), 0..HEADER_BYTES as u64, || map.is_resident(0..HEADER_BYTES))?;
        let header = IndexHeader::read(&map);
        let opened = IndexFile {
            path,
            disk,
            map,
            geometry,
            begin_ms: AtomicI64::new(0),
            end_ms: AtomicI64::new(0),
            begin_log_offset: AtomicU64::new(0),
            end_log_offset: AtomicU64::new(0),
            slots_used: AtomicU32::new(0),
            next_entry: AtomicU32::new(1),
            flushed_entry: AtomicU32::new(0),
            reserved: Reserved::default(),
        };
        opened.adopt(&header);
        Ok(opened)
    }

    /// Opens a file of one of the `known` geometries, or of the one that it shows itself to have been made with; none
    /// if no index can have left it.
    pub(crate) fn open_any(path: PathBuf, known: &[Geometry]) -> Result<Option<IndexFile>, StoreError> {
        let bytes = std::fs::metadata(&path).map_err(StoreError::io("inspect", &path))?.len();
        let fits = |geometry: &&Geometry| geometry.file_bytes() == bytes;
        if let Some(geometry) = known.iter().find(fits) {
            return IndexFile::open(path, *geometry).map(Some);
        }
        let mut head = [0; HEADER_BYTES];
        let disk = File::open(&path).map_err(StoreError::io("open", &path))?;
        match faults::look(Op::Read, &path, || disk.read_exact_at(&mut head, 0)) {
            Err(cause) if cause.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map_err(StoreError::read(&path, 0))?,
        }
        // A full file tells in its head how many entries it has room for.
        let entries = head.last_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        let shown = [Geometry::of_length(bytes), Geometry::of_full(bytes, entries)];
        for geometry in shown.into_iter().flatten() {
            let file = IndexFile::open(path.clone(), geometry)?;
            let header = file.header();
            if header.next_entry > 1 && file.bounds()? == (header.begin_log_offset, header.end_log_offset) {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Where the file lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the head says now.
    pub(crate) fn header(&self) -> IndexHeader {
        IndexHeader {
            begin_ms: self.begin_ms.load(Ordering::Relaxed),
            end_ms: self.end_ms.load(Ordering::Relaxed),
            begin_log_offset: self.begin_log_offset.load(Ordering::Relaxed),
            end_log_offset: self.end_log_offset.load(Ordering::Relaxed),
            slots_used: self.slots_used.load(Ordering::Relaxed),
            next_entry: self.next_entry.load(Ordering::Acquire),
        }
    }

    /// Whether no entry fits any more.
    pub(crate) fn is_full(&self) -> bool {
        self.next_entry.load(Ordering::Relaxed) >= self.geometry.entries
    }

    /// Log offset of the last entry.
    pub(crate) fn end_log_offset(&self) -> u64 {
        self.end_log_offset.load(Ordering::Relaxed)
    }

    /// Log offsets of the first and the last entry.
    pub(crate) fn bounds(&self) -> Result<(u64, u64), StoreError> {
        let last = self.next_entry.load(Ordering::Acquire).saturating_sub(1);
        Ok((self.read_entry(1.min(last))?.log_offset, self.read_entry(last)?.log_offset))
    }

    /// Number of entries, the unused first one counted.
    pub(crate) fn entries(&self) -> u32 {
        self.next_entry.load(Ordering::Acquire)
    }

    /// Has the processor fetch the slot of a hash, which will be needed soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        self.map.prefetch(self.slot_at(hash));
    }

    /// Adds an entry. The caller has seen that the file is not full.
    #[inline]
    pub(crate) fn put(&self, hash: u32, log_offset: u64, store_timestamp_ms: i64) -> Result<(), StoreError> {
        let number = self.next_entry.load(Ordering::Relaxed);
        debug_assert!(number < self.geometry.entries, "a full index file takes no entry");
        self.make_room(number)?;
        if number == 1 {
            self.begin_ms.store(store_timestamp_ms, Ordering::Relaxed);
            self.begin_log_offset.store(log_offset, Ordering::Relaxed);
        }
        let begin_ms = self.begin_ms.load(Ordering::Relaxed);
        let slot = self.slot(hash);
        let older = u32::from_be(slot.load(Ordering::Relaxed));
        let older = if older < number { older } else { 0 };
        let entry = Entry { hash, log_offset, seconds: seconds_between(begin_ms, store_timestamp_ms), older };
        faults::store(&self.path, || self.write_entry(number, &entry));
        // In front of the number of entries: what is flushed up to that number has its slots too.
        slot.store(number.to_be(), Ordering::Release);
        if older == 0 {
            self.slots_used.store(self.slots_used.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.end_ms.store(store_timestamp_ms, Ordering::Relaxed);
        self.end_log_offset.store(log_offset, Ordering::Relaxed);
        self.next_entry.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// Reserves the blocks of head, slots and entries up to this one.
    #[inline]
    fn make_room(&self, number: u32) -> Result<(), StoreError> {
        let to = self.entry_at(number.saturating_add(1).min(self.geometry.entries)) as u64;
        if self.reserved.reserve(&self.path, 0..to, self.geometry.file_bytes())? {
            self.drop_pages(self.entry_at(0)..self.entry_at(number));
        }
        Ok(())
    }

    /// The file is written no more: who looks something up in it maps what it needs again.
    pub(crate) fn leave(&self) {
        self.drop_pages(0..self.map.len());
    }

    fn drop_pages(&self, range: Range<usize>) {
        if let Err(error) = self.map.drop_pages(range) {
            tracing::debug!(%error, file = %self.path.display(), "pages stay in memory");
        }
    }

    /// Number of the newest entry of the chain of a hash.
    pub(crate) fn newest(&self, hash: u32) -> u32 {
        u32::from_be(self.slot(hash).load(Ordering::Acquire))
    }

    /// Sees to it that what stands in `range` of the file can be read through the map. Waits for the disk.
    fn ready(&self, range: Range<usize>) -> Result<(), StoreError> {
        let bytes = range.start as u64..range.end as u64;
        segment::ready((&self.disk, &self.path), bytes, || self.map.is_resident(range))
    }

    /// The same for head and slots.
    pub(crate) fn ready_slots(&self) -> Result<(), StoreError> {
        self.ready(0..self.entry_at(0))
    }

    /// The same for the entries from `number` on, as many as are read in one go.
    pub(crate) fn ready_entries(&self, number: u32) -> Result<(), StoreError> {
        let end = number.saturating_add(ENTRIES_AT_ONCE).min(self.geometry.entries);
        self.ready(self.entry_at(number)..self.entry_at(end))
    }

    /// The same for what the next entry is put into: who writes reads too.
    pub(crate) fn ready_to_grow(&self) -> Result<(), StoreError> {
        self.ready_slots()?;
        let next = self.entry_at(self.next_entry.load(Ordering::Relaxed).min(self.geometry.entries - 1));
        self.ready(next..next + ENTRY_BYTES)
    }

    /// Fills `bytes` with what stands at `at` of the file, wherever that is.
    fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        let read = || self.disk.read_exact_at(bytes, at as u64);
        faults::look(Op::Read, &self.path, read).map_err(StoreError::read(&self.path, at as u64))
    }

    /// The same as `newest`, read from the file.
    fn read_newest(&self, hash: u32) -> Result<u32, StoreError> {
        let mut bytes = [0; 4];
        self.read(self.slot_at(hash), &mut bytes)?;
        // What was put before the slot is seen behind it.
        fence(Ordering::Acquire);
        Ok(u32::from_be_bytes(bytes))
    }

    /// The same as `entry`, read from the file.
    fn read_entry(&self, number: u32) -> Result<Entry, StoreError> {
        let mut bytes = [0; ENTRY_BYTES];
        self.read(self.entry_at(number), &mut bytes)?;
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        Ok(Entry {
            hash: word(0),
            log_offset: (u64::from(word(4)) << 32) | u64::from(word(8)),
            seconds: word(12),
            older: word(16),
        })
    }

    /// How much it has room for.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of chains.
    pub(crate) fn slots(&self) -> u32 {
        self.geometry.slots
    }

    /// The chain of a hash.
    pub(crate) fn slot_of(&self, hash: u32) -> u32 {
        hash % self.geometry.slots
    }

    /// Brings the head in the file up to date; done once for many entries.
    pub(crate) fn write_header(&self) {
        self.header().write(&self.map);
    }

    /// Hands the log offsets under `hash` to `take`, newest first, until it answers `false`. Only those that
    /// may be stored from `begin_ms` to `end_ms`: entries know their time to the second. Goes through `left` entries
    /// at most. Answers `false` if `take` did, or there would be more. Waits for the disk.
    ///
    /// # Errors
    /// If the disk cannot read an entry: those behind it cannot be found either.
    pub(crate) fn find(
        &self,
        hash: u32,
        (begin_ms, end_ms): (i64, i64),
        left: &mut u32,
        mut take: impl FnMut(u64) -> bool,
    ) -> Result<bool, StoreError> {
        let file_begin_ms = self.begin_ms.load(Ordering::Relaxed);
        let mut number = self.read_newest(hash)?;
        let mut below = self.entries_behind(number);
        while number > 0 && number < below {
            let Some(fewer) = left.checked_sub(1) else { return Ok(false) };
            *left = fewer;
            let entry = self.read_entry(number)?;
            let Some(seconds) = i64::from(entry.seconds.cast_signed()).checked_mul(1000) else { break };
            let first_ms = file_begin_ms.saturating_add(seconds);
            if seconds < 0 || first_ms.saturating_add(999) < begin_ms {
                break;
            }
            if entry.hash == hash && first_ms <= end_ms && !take(entry.log_offset) {
                return Ok(false);
            }
            below = number;
            number = entry.older;
        }
        Ok(true)
    }

    /// Number of entries, as soon as the entry `number` is counted, which its slot points at already. One that never is
    /// was left by a crash or is damaged.
    fn entries_behind(&self, number: u32) -> u32 {
        for _ in 0..COUNTED_SOON {
            let entries = self.next_entry.load(Ordering::Acquire);
            if number < entries {
                return entries;
            }
            std::thread::yield_now();
        }
        self.next_entry.load(Ordering::Acquire)
    }

    /// Whether a chain begins with an entry that the head does not know: it was put when the process was killed, and
    /// who follows the chain would not come to the older ones.
    pub(crate) fn points_beyond(&self) -> Result<bool, StoreError> {
        self.ready_slots()?;
        let next = self.next_entry.load(Ordering::Relaxed);
        Ok((0..self.geometry.slots).any(|slot| u32::from_be(self.slot(slot).load(Ordering::Relaxed)) >= next))
    }

    /// How many entries stand in front of the first that `keep` refuses or that is not in the order of the log.
    pub(crate) fn count_while(&self, keep: impl Fn(&Entry, i64) -> bool) -> Result<u32, StoreError> {
        let begin_ms = self.begin_ms.load(Ordering::Relaxed);
        let end = self.next_entry.load(Ordering::Relaxed).min(self.geometry.entries);
        let mut before = self.begin_log_offset.load(Ordering::Relaxed);
        for number in 1..end {
            if number % ENTRIES_AT_ONCE == 1 {
                self.ready_entries(number)?;
            }
            let entry = self.entry(number);
            let time_ms = begin_ms.saturating_add(i64::from(entry.seconds) * 1000);
            if entry.log_offset < before || !keep(&entry, time_ms) {
                return Ok(number - 1);
            }
            before = entry.log_offset;
        }
        Ok(end - 1)
    }

    /// Keeps the first `count` entries and makes all chains anew from them, so that neither a torn slot nor
    /// an entry that is gone is ever followed. The entries of the last record kept go too: they may be
    /// incomplete, and the log has them. Answers the log offset of that record, if there is one.
    pub(crate) fn cut(&self, count: u32) -> Result<Option<u64>, StoreError> {
        // Before anything is changed: all that is read below.
        self.ready_slots()?;
        let known = self.next_entry.load(Ordering::Relaxed).min(self.geometry.entries);
        self.ready(self.entry_at(0)..self.entry_at(known))?;
        let mut count = count;
        let last = (count > 0).then(|| self.entry(count).log_offset);
        while count > 0 && Some(self.entry(count).log_offset) == last {
            count -= 1;
        }
        self.make_room(count)?;
        faults::store(&self.path, || {
            for slot in 0..self.geometry.slots {
                self.slot(slot).store(0, Ordering::Relaxed);
            }
        });
        let mut header = IndexHeader::after(None);
        header.begin_ms = self.begin_ms.load(Ordering::Relaxed);
        header.begin_log_offset = self.begin_log_offset.load(Ordering::Relaxed);
        (header.end_ms, header.end_log_offset) = (header.begin_ms, header.begin_log_offset);
        for number in 1..=count {
            let slot = self.slot(self.entry(number).hash);
            let older = u32::from_be(slot.swap(number.to_be(), Ordering::Relaxed));
            header.slots_used += u32::from(older == 0);
            let entry = Entry { older, ..self.entry(number) };
            self.write_entry(number, &entry);
            header.end_ms = header.begin_ms.saturating_add(i64::from(entry.seconds) * 1000 + 999);
            header.end_log_offset = entry.log_offset;
        }
        header.next_entry = count + 1;
        self.clear_behind(count)?;
        self.adopt(&header);
        self.write_header();
        self.drop_pages(self.entry_at(0)..self.entry_at(known));
        Ok(last)
    }

    /// Zeroes what was put behind the first `count` entries, also what the head does not know of: fewer may follow.
    fn clear_behind(&self, count: u32) -> Result<(), StoreError> {
        let known = self.next_entry.load(Ordering::Relaxed);
        for number in count + 1..self.geometry.entries {
            if number == count + 1 || number % ENTRIES_AT_ONCE == 0 {
                self.ready_entries(number)?;
            }
            // Where nothing was written, blocks may be missing.
            match self.entry(number) == Entry::default() {
                false => self.write_entry(number, &Entry::default()),
                true if number < known => {}
                true => break,
            }
        }
        Ok(())
    }

    /// Forces the file to the disk if it has entries that are not there yet.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let next = self.next_entry.load(Ordering::Acquire);
        if self.flushed_entry.load(Ordering::Relaxed) == next {
            return Ok(());
        }
        self.write_header();
        let flushed = faults::pass(Op::Flush, &self.path, || self.map.flush());
        flushed.map_err(StoreError::io("flush", &self.path))?;
        // Entries are written once: only the slots and the last page of entries are needed again soon.
        let written = self.entry_at(next.min(self.geometry.entries));
        let from = if next >= self.geometry.entries { 0 } else { self.entry_at(0) };
        self.drop_pages(from..written);
        self.flushed_entry.store(next, Ordering::Relaxed);
        Ok(())
    }

    fn adopt(&self, header: &IndexHeader) {
        self.begin_ms.store(header.begin_ms, Ordering::Relaxed);
        self.end_ms.store(header.end_ms, Ordering::Relaxed);
        self.begin_log_offset.store(header.begin_log_offset, Ordering::Relaxed);
        self.end_log_offset.store(header.end_log_offset, Ordering::Relaxed);
        self.slots_used.store(header.slots_used, Ordering::Relaxed);
        self.next_entry.store(header.next_entry.clamp(1, self.geometry.entries), Ordering::Release);
    }

    #[inline]
    fn slot(&self, hash: u32) -> &AtomicU32 {
        self.map.word(self.slot_at(hash))
    }

    #[inline]
    fn slot_at(&self, hash: u32) -> usize {
        HEADER_BYTES + (hash % self.geometry.slots) as usize * 4
    }

    #[inline]
    fn entry_at(&self, number: u32) -> usize {
        HEADER_BYTES + self.geometry.slots as usize * 4 + number as usize * ENTRY_BYTES
    }

    #[inline]
    pub(crate) fn entry(&self, number: u32) -> Entry {
        let at = self.entry_at(number);
        let word = |offset: usize| u32::from_be(self.map.word(at + offset).load(Ordering::Relaxed));
        Entry {
            hash: word(0),
            log_offset: (u64::from(word(4)) << 32) | u64::from(word(8)),
            seconds: word(12),
            older: word(16),
        }
    }

    #[inline]
    fn write_entry(&self, number: u32, entry: &Entry) {
        let [a, b, c, d, e, f, g, h] = entry.log_offset.to_be_bytes();
        let (high, low) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let values = [entry.hash, high, low, entry.seconds, entry.older];
        for (place, value) in self.map.words(self.entry_at(number), values.len()).iter().zip(values) {
            place.store(value.to_be(), Ordering::Relaxed);
        }
    }
}

/// Whole seconds from `begin_ms` to `time_ms`; 0 where the clock went back or nothing began.
fn seconds_between(begin_ms: i64, time_ms: i64) -> u32 {
    if begin_ms <= 0 || time_ms <= begin_ms {
        return 0;
    }
    i32::try_from((time_ms - begin_ms) / 1000).unwrap_or(i32::MAX).cast_unsigned()
}
