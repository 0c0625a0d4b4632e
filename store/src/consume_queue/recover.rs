//! Finding the end of a queue after a start, and cutting it where the log ends.
//!
//! Invariants:
//! - behind the end of a queue all bytes are zero, so that a later start finds the same end;
//! - after an unclean stop the end is the first place that holds no unit or points back in the log;
//! - the offset of a queue survives even if all its messages are gone.
//!
//! Files are read here, not mapped: a start must not cost a map for each queue.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::batch::search;
use super::files::QueueFile;
use super::unit::{BATCH_UNIT_BYTES, BatchUnit, PlainUnit, UNIT_BYTES};
use super::{ConsumeQueue, QueueKind, Unit};
use crate::error::StoreError;

/// Units read at once while looking for the end.
const CHUNK_UNITS: u64 = 3_000;
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

impl ConsumeQueue {
    /// Finds the end of the queue and publishes minimum, maximum and next offset.
    pub(crate) fn recover(&self, trust: Trust) -> Result<(), StoreError> {
        let list = self.files.list().to_vec();
        let Some(first) = list.first() else { return Ok(()) };
        let end = match trust {
            Trust::Clean => self.end_by_search(&list)?,
            Trust::Unclean => self.end_by_scan(&list)?,
        };
        let min = match self.found_in(first, first.start())? {
            Found::Unit(unit) if first.start() < end => unit.queue_offset,
            _ => self.offset_at(first.start()),
        };
        self.min_offset.store(min, Ordering::Release);
        if trust == Trust::Unclean {
            return self.cut(end);
        }
        self.files.retain(|file| file.start() < end || file.start() == first.start())?;
        self.publish_end(end)
    }

    /// Cuts all units whose record reaches beyond the end of the log.
    pub(crate) fn truncate(&self, log_end: u64) -> Result<(), StoreError> {
        let Some(first) = self.first_byte().filter(|_| self.log_end() > log_end) else { return Ok(()) };
        let bytes = self.kind().unit_bytes();
        let is_beyond = |index: u64| match self.peek(index * bytes) {
            Ok(Found::Unit(unit)) => unit.log_end() > log_end,
            _ => false,
        };
        let end = self.end.load(Ordering::Acquire) / bytes;
        self.cut(search(first / bytes, end, is_beyond) * bytes)
    }

    /// Cuts units from the end until the last one is what `is_right` says of its record.
    pub(crate) fn verify(&self, is_right: impl Fn(&Unit) -> bool) -> Result<(), StoreError> {
        loop {
            let end = self.end.load(Ordering::Acquire);
            let Some(first) = self.first_byte().filter(|first| *first < end) else { return Ok(()) };
            let last = end - self.kind().unit_bytes();
            debug_assert!(last >= first, "units do not cross files");
            match self.peek(last)? {
                Found::Unit(unit) if !is_right(&unit) => self.cut(last)?,
                _ => return Ok(()),
            }
        }
    }

    /// What stands at a byte position, read without mapping the file.
    pub(super) fn peek(&self, position: u64) -> Result<Found, StoreError> {
        if position >= self.end.load(Ordering::Acquire) {
            return Ok(Found::Nothing);
        }
        match self.files.at(position) {
            Some(file) => self.found_in(&file, position),
            None => Ok(Found::Nothing),
        }
    }

    /// First byte of the queue that has a file.
    pub(super) fn first_byte(&self) -> Option<u64> {
        self.files.list().first().map(|file| file.start())
    }

    /// The end, if everything in front of it was written: where the zeros begin.
    fn end_by_search(&self, list: &[Arc<QueueFile>]) -> Result<u64, StoreError> {
        let bytes = self.kind().unit_bytes();
        let mut end = 0;
        for file in list.iter().rev() {
            let disk = file.open()?;
            let is_empty = |index: u64| {
                let at = index * bytes;
                self.read(&disk, at, file.start() + at).is_ok_and(|found| found == Found::Nothing)
            };
            end = file.start() + search(0, (file.end() - file.start()) / bytes, is_empty) * bytes;
            if end > file.start() {
                break;
            }
        }
        Ok(end)
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
        let mut position = file.start();
        while position < file.end() {
            let len = (CHUNK_UNITS * bytes).min(file.end() - position);
            chunk.resize(usize::try_from(len).expect("a chunk is small"), 0);
            let at = position - file.start();
            disk.read_exact_at(&mut chunk, at).map_err(StoreError::io("read", file.path()))?;
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
        // The first file stays, even empty: its name keeps the offset.
        self.files.retain(|file| file.start() < end || (file.start() == first && first > 0))?;
        if let Some(file) = self.files.list().last().filter(|file| end < file.end()) {
            clear(file, end.max(file.start()) - file.start())?;
        }
        self.publish_end(end)
    }

    /// Publishes the numbers that follow from the end of the queue.
    fn publish_end(&self, end: u64) -> Result<(), StoreError> {
        self.end.store(end, Ordering::Release);
        self.flushed.store(end, Ordering::Relaxed);
        let first = self.first_byte().unwrap_or(end);
        let last = match end.checked_sub(self.kind().unit_bytes()).filter(|last| *last >= first) {
            Some(last) => self.peek(last)?,
            None => Found::Nothing,
        };
        let (max, log_end) = match last {
            Found::Unit(unit) => (unit.next_offset(), unit.log_end()),
            _ => (self.offset_at(end), 0),
        };
        self.log_end.store(log_end, Ordering::Release);
        self.min_offset.fetch_min(max, Ordering::AcqRel);
        self.max_offset.store(max, Ordering::Release);
        self.next_offset.store(max, Ordering::Relaxed);
        Ok(())
    }

    /// Queue offset that belongs to a byte position where no unit tells it.
    fn offset_at(&self, position: u64) -> i64 {
        match self.kind() {
            QueueKind::Plain => (position / UNIT_BYTES as u64).cast_signed(),
            QueueKind::Batch => 0,
        }
    }

    fn found_in(&self, file: &QueueFile, position: u64) -> Result<Found, StoreError> {
        let at = position - file.start();
        if let Some(map) = file.mapped() {
            let mut bytes = [0; BATCH_UNIT_BYTES];
            let unit = &mut bytes[..usize::try_from(self.kind().unit_bytes()).expect("a unit is small")];
            map.read(file.at(position), unit);
            return Ok(self.parse(unit, position));
        }
        let disk = file.open()?;
        self.read(&disk, at, position).map_err(StoreError::io("read", file.path()))
    }

    fn read(&self, disk: &File, at: u64, position: u64) -> std::io::Result<Found> {
        let mut bytes = [0; BATCH_UNIT_BYTES];
        let unit = &mut bytes[..usize::try_from(self.kind().unit_bytes()).expect("a unit is small")];
        disk.read_exact_at(unit, at)?;
        Ok(self.parse(unit, position))
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

/// Makes all bytes of the file from `at` on zero.
fn clear(file: &QueueFile, at: u64) -> Result<(), StoreError> {
    if let Some(map) = file.mapped() {
        let at = usize::try_from(at).expect("the size of a queue file fits the address space");
        map.write(at, &vec![0; map.len() - at]);
        return Ok(());
    }
    let disk =
        OpenOptions::new().write(true).open(file.path()).map_err(StoreError::io("open", file.path()))?;
    let full = file.end() - file.start();
    disk.set_len(at).map_err(StoreError::io("cut", file.path()))?;
    disk.set_len(full).map_err(StoreError::io("size", file.path()))
}
