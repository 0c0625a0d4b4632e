//! Finding the end of a queue after a start, and cutting it where the log ends.
//!
//! Invariants:
//! - behind the end of a queue all bytes are zero, so that a later start finds the same end;
//! - after an unclean stop the end is the first place that holds no unit or points back in the log;
//! - the offset of a queue survives even if all its messages are gone.
//!
//! Files are read here, not mapped: a start must not cost a map for each queue.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::batch::try_search;
use super::files::QueueFile;
use super::unit::{BATCH_UNIT_BYTES, BatchUnit, PlainUnit, UNIT_BYTES};
use super::{ConsumeQueue, QueueKind, Unit};
use crate::error::StoreError;

/// Units read at once while looking for the end: few at first, as most queues are short, then more.
const CHUNK_UNITS_MIN: u64 = 80;
const CHUNK_UNITS_MAX: u64 = 8_000;
/// Bytes of the front that are read with the first look at a file.
const FRONT_BYTES: u64 = 4_000;
/// Files at the end of a queue whose units are all looked at after an unclean stop.
const FILES_LOOKED_AT: usize = 3;

/// How far the stop before this start can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Everything was forced to the disk: the end is where the zeros begin.
    Clean,
    /// Pages may be missing anywhere near the end.
    Unclean,
}

/// What was found at one place of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    PreBlank,
    Unit(Unit),
}

/// A file that is looked at without a map; its front is read at once.
struct Look<'a> {
    disk: File,
    file: &'a QueueFile,
    front: Vec<u8>,
}

impl Look<'_> {
    fn at(file: &QueueFile) -> Result<Look<'_>, StoreError> {
        let disk = file.open()?;
        let len = (file.end() - file.start()).min(FRONT_BYTES);
        let mut front = vec![0; usize::try_from(len).expect("the front is small")];
        file.read(&disk, &mut front, 0)?;
        Ok(Look { disk, file, front })
    }

    fn holds(&self, position: u64) -> bool {
        (self.file.start()..self.file.end()).contains(&position)
    }
}

impl ConsumeQueue {
    /// Finds the end of the queue and publishes minimum, maximum and next offset. Answers whether what is in
    /// front of the end looks whole; if not, the queue is empty now.
    pub(crate) fn recover(&self, trust: Trust) -> Result<bool, StoreError> {
        let list = self.files.list().to_vec();
        if self.is_damaged(trust, &list)? {
            self.reset()?;
            return Ok(false);
        }
        self.find_end(trust, &list)?;
        Ok(true)
    }

    fn find_end(&self, trust: Trust, list: &[Arc<QueueFile>]) -> Result<(), StoreError> {
        let Some(first) = list.first() else { return Ok(()) };
        let begin = first.start();
        let (end, last_look) = match trust {
            Trust::Clean => self.end_by_search(list)?,
            Trust::Unclean => (self.end_by_scan(list)?, Look::at(first)?),
        };
        let first_look = if last_look.file.start() == begin { None } else { Some(Look::at(first)?) };
        let min = match self.found(first_look.as_ref().unwrap_or(&last_look), begin)? {
            Found::Unit(unit) if begin < end => {
                self.min_log.store(unit.log_offset + 1, Ordering::Relaxed);
                unit.queue_offset
            }
            _ => self.offset_at(begin),
        };
        self.min_offset.store(min, Ordering::Release);
        if trust == Trust::Unclean {
            return self.cut(end);
        }
        if list.last().is_some_and(|last| last.start() >= end) {
            self.files.retain(|file| file.start() < end || file.start() == begin)?;
        }
        let last = end.checked_sub(self.kind().unit_bytes()).filter(|last| *last >= begin);
        match last {
            Some(last) if last_look.holds(last) => {
                self.publish(end, self.found(&last_look, last)?);
                Ok(())
            }
            _ => self.publish_end(end),
        }
    }

    /// Cuts all units whose record reaches beyond the end of the log.
    pub(crate) fn truncate(&self, log_end: u64) -> Result<(), StoreError> {
        let Some(first) = self.first_byte().filter(|_| self.log_end() > log_end) else { return Ok(()) };
        let bytes = self.kind().unit_bytes();
        let is_beyond = |index: u64| match self.peek(index * bytes)? {
            Found::Unit(unit) => Ok(unit.log_end() > log_end),
            _ => Ok(false),
        };
        let end = self.end.load(Ordering::Acquire) / bytes;
        self.cut(try_search(first / bytes, end, is_beyond)? * bytes)
    }

    /// Cuts units from the end until the last one is what `is_right` says of its record; answers that one.
    pub(crate) fn verify(&self, is_right: impl Fn(&Unit) -> bool) -> Result<Option<Unit>, StoreError> {
        loop {
            let end = self.end.load(Ordering::Acquire);
            let Some(first) = self.first_byte().filter(|first| *first < end) else { return Ok(None) };
            let last = end - self.kind().unit_bytes();
            debug_assert!(last >= first, "units do not cross files");
            match self.peek(last)? {
                Found::Unit(unit) if !is_right(&unit) => self.cut(last)?,
                Found::Unit(unit) => return Ok(Some(unit)),
                Found::Nothing | Found::PreBlank => return Ok(None),
            }
        }
    }

    /// What stands at a byte position, read without mapping the file.
    pub(super) fn peek(&self, position: u64) -> Result<Found, StoreError> {
        if position >= self.end.load(Ordering::Acquire) {
            return Ok(Found::Nothing);
        }
        match self.files.at(position) {
            Some(file) => self.unit_on_disk(&file, &file.open()?, position),
            None => Ok(Found::Nothing),
        }
    }

    /// Sees to it that the unit of a message can be read. Waits for the disk.
    pub(crate) fn ready(&self, queue_offset: i64) -> Result<(), StoreError> {
        let Some(position) = self.position_of(queue_offset) else { return Ok(()) };
        let Some(file) = self.files.at(position) else { return Ok(()) };
        let at = file.at(position);
        file.ready(at..at + usize::try_from(self.kind().unit_bytes()).expect("a unit is small"))
    }

    /// First byte of the queue that has a file.
    pub(super) fn first_byte(&self) -> Option<u64> {
        self.files.list().first().map(|file| file.start())
    }

    /// Cuts the unit of a readable message and all behind it.
    pub(crate) fn cut_from(&self, queue_offset: i64) -> Result<(), StoreError> {
        match self.position_of(queue_offset) {
            Some(position) if self.first_byte().is_some_and(|first| first < position) => self.cut(position),
            _ => self.reset(),
        }
    }

    /// Whether a file that must be full has no unit at one of its ends, or goes back in the log there. Those near the
    /// end are looked at more closely after an unclean stop.
    fn is_damaged(&self, trust: Trust, list: &[Arc<QueueFile>]) -> Result<bool, StoreError> {
        let near_end = if trust == Trust::Clean { 1 } else { FILES_LOOKED_AT };
        let mut before = 0;
        for file in &list[..list.len().saturating_sub(near_end)] {
            let disk = file.open()?;
            for position in [file.start(), file.end() - self.kind().unit_bytes()] {
                match self.unit_on_disk(file, &disk, position)? {
                    Found::Unit(unit) if unit.log_offset >= before => before = unit.log_offset,
                    Found::PreBlank if before == 0 => {}
                    _ => return Ok(true),
                }
            }
        }
        Ok(false)
    }

    /// Reads the unit of a position from its file, which is open.
    fn unit_on_disk(&self, file: &QueueFile, disk: &File, position: u64) -> Result<Found, StoreError> {
        let mut bytes = [0; BATCH_UNIT_BYTES];
        let unit = &mut bytes[..usize::try_from(self.kind().unit_bytes()).expect("a unit is small")];
        file.read(disk, unit, position - file.start())?;
        Ok(self.parse(unit, position))
    }

    /// The end, if everything in front of it was written: where the zeros begin. Also a look at its file.
    fn end_by_search<'a>(&self, list: &'a [Arc<QueueFile>]) -> Result<(u64, Look<'a>), StoreError> {
        let bytes = self.kind().unit_bytes();
        let (first, rest) = list.split_first().expect("a queue that is recovered has a file");
        for file in rest.iter().rev().chain([first]) {
            let look = Look::at(file)?;
            let is_empty = |index: u64| {
                Ok::<_, StoreError>(self.found(&look, file.start() + index * bytes)? == Found::Nothing)
            };
            // Most queues end within what was read at once.
            let units = (file.end() - file.start()) / bytes;
            let near = (look.front.len() as u64 / bytes).min(units);
            let ends_near = near > 0 && is_empty(near - 1)?;
            let (from, to) = if ends_near { (0, near - 1) } else { (near, units) };
            let end = file.start() + try_search(from, to, is_empty)? * bytes;
            if end > file.start() || file.start() == first.start() {
                return Ok((end, look));
            }
        }
        unreachable!("the first file ends the search")
    }

    /// The end, if pages may be missing: every unit near the end is looked at.
    fn end_by_scan(&self, list: &[Arc<QueueFile>]) -> Result<u64, StoreError> {
        let mut skip = list.len().saturating_sub(FILES_LOOKED_AT);
        loop {
            let mut before = None;
            let mut end = 0;
            for file in list.iter().skip(skip) {
                end = self.scan(file, &mut before)?;
                if end < file.end() {
                    break;
                }
            }
            let has_unit = list.get(skip).is_some_and(|file| end > file.start());
            if has_unit || skip == 0 {
                return Ok(end);
            }
            skip -= 1;
        }
    }

    /// Where the good units of `file` end; `before` is the last good one so far.
    fn scan(&self, file: &QueueFile, before: &mut Option<Unit>) -> Result<u64, StoreError> {
        let disk = file.open()?;
        let bytes = self.kind().unit_bytes();
        let mut chunk = Vec::new();
        let mut chunk_units = CHUNK_UNITS_MIN;
        let mut position = file.start();
        while position < file.end() {
            let len = (chunk_units * bytes).min(file.end() - position);
            chunk.resize(usize::try_from(len).expect("a chunk is small"), 0);
            let at = position - file.start();
            file.read(&disk, &mut chunk, at)?;
            chunk_units = (chunk_units * 10).min(CHUNK_UNITS_MAX);
            for unit in chunk.chunks_exact(usize::try_from(bytes).expect("a unit is small")) {
                match self.parse(unit, position) {
                    Found::PreBlank if before.is_none() => {}
                    Found::Unit(unit) if follows(before.as_ref(), &unit) => *before = Some(unit),
                    _ => return Ok(position),
                }
                position += bytes;
            }
        }
        Ok(position)
    }

    /// Ends the queue at a byte position: what is behind it goes.
    fn cut(&self, end: u64) -> Result<(), StoreError> {
        let Some(first) = self.first_byte() else { return Ok(()) };
        self.min_log.store(0, Ordering::Relaxed);
        // The first file stays, even empty: its name keeps the offset.
        self.files.retain(|file| file.start() < end || (file.start() == first && first > 0))?;
        if let Some(file) = self.files.list().last().filter(|file| end < file.end()) {
            file.clear(end.max(file.start()))?;
        }
        self.publish_end(end)
    }

    /// Publishes the numbers that follow from the end of the queue.
    pub(super) fn publish_end(&self, end: u64) -> Result<(), StoreError> {
        self.end.store(end, Ordering::Release);
        let first = self.first_byte().unwrap_or(end);
        let last = match end.checked_sub(self.kind().unit_bytes()).filter(|last| *last >= first) {
            Some(last) => self.peek(last)?,
            None => Found::Nothing,
        };
        self.publish(end, last);
        Ok(())
    }

    /// Same, with the last unit at hand.
    fn publish(&self, end: u64, last: Found) {
        self.end.store(end, Ordering::Release);
        self.flushed.store(end, Ordering::Relaxed);
        let (max, log_end) = match last {
            Found::Unit(unit) => (unit.next_offset(), unit.log_end()),
            _ => (self.offset_at(end), 0),
        };
        self.log_end.store(log_end, Ordering::Release);
        self.min_offset.fetch_min(max, Ordering::AcqRel);
        self.max_offset.store(max, Ordering::Release);
        self.next_offset.store(max, Ordering::Relaxed);
        self.own_from.store(max, Ordering::Release);
    }

    /// Queue offset that belongs to a byte position where no unit tells it.
    pub(super) fn offset_at(&self, position: u64) -> i64 {
        match self.kind() {
            QueueKind::Plain => (position / UNIT_BYTES as u64).cast_signed(),
            QueueKind::Batch => 0,
        }
    }

    /// What stands at a position of the file that is looked at.
    fn found(&self, look: &Look<'_>, position: u64) -> Result<Found, StoreError> {
        let at = position - look.file.start();
        let bytes = usize::try_from(self.kind().unit_bytes()).expect("a unit is small");
        let near = usize::try_from(at).ok().and_then(|at| look.front.get(at..at + bytes));
        if let Some(unit) = near {
            return Ok(self.parse(unit, position));
        }
        self.unit_on_disk(look.file, &look.disk, position)
    }

    /// Reads the unit of the position from its bytes.
    fn parse(&self, bytes: &[u8], position: u64) -> Found {
        match self.kind() {
            QueueKind::Plain => {
                let bytes = bytes.first_chunk::<UNIT_BYTES>().expect("a plain unit was read");
                match PlainUnit::from_bytes(bytes) {
                    unit if unit.is_pre_blank() => Found::PreBlank,
                    unit if unit.is_valid() => Found::Unit(unit.at(self.offset_at(position))),
                    _ => Found::Nothing,
                }
            }
            QueueKind::Batch => {
                let bytes = bytes.first_chunk::<BATCH_UNIT_BYTES>().expect("a batch unit was read");
                let unit = BatchUnit::from_bytes(bytes);
                if unit.is_valid() { Found::Unit(unit.unit()) } else { Found::Nothing }
            }
        }
    }
}

/// Whether `unit` may stand behind `before`.
fn follows(before: Option<&Unit>, unit: &Unit) -> bool {
    before
        .is_none_or(|before| unit.log_offset >= before.log_end() && unit.queue_offset == before.next_offset())
}
