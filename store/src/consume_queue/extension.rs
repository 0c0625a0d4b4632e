//! What a queue knows of its messages beyond 20 bytes: bits of the filters they match (RocketMQ:
//! `ConsumeQueueExt`).
//!
//! Invariants:
//! - a unit is complete before the queue unit that holds its address is written;
//! - a unit never crosses a file: four bytes stay free at the end, and `-1` says that a file is full;
//! - an address is a byte position minus 2^63, so it is below every hash of tags.
//!
//! | at | bytes | meaning |
//! |---|---|---|
//! | 0 | 2 | bytes of the unit |
//! | 2 | 8 | tags code |
//! | 10 | 8 | store time (ms) |
//! | 18 | 2 | bytes of the bits |
//! | 20 | … | the bits |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files::{QueueFile, QueueFiles};
use crate::error::StoreError;
use crate::faults;
use crate::paths::{Paths, remove, without_unreadable};
use crate::segments::{SegmentFile, list_files};

/// Bytes of a unit without bits.
const HEAD_BYTES: usize = 20;
/// Bytes of the longest unit.
const UNIT_MAX_BYTES: u64 = i16::MAX as u64;
/// Bytes that stay free at the end of a file.
const END_BYTES: u64 = 4;
/// Values from this one down are addresses.
const ADDRESS_MAX: i64 = i32::MIN as i64 - 1;

/// Bytes in which the longest unit has room.
const LOOK_BYTES: usize = 32 << 10;

/// One unit of the extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionUnit {
    /// Hash of the tags.
    pub tags_code: i64,
    /// When the message was stored (epoch ms).
    pub store_timestamp_ms: i64,
    /// Bloom bits of the filters it matches; may be empty.
    pub bits: Vec<u8>,
}

/// The extension of one queue.
#[derive(Debug)]
pub(crate) struct QueueExtension {
    dir: PathBuf,
    file_bytes: u64,
    files: QueueFiles,
    end: AtomicU64,
}

/// Whether the tags code of a queue unit is an address in the extension.
pub(crate) fn is_address(tags_code: i64) -> bool {
    tags_code <= ADDRESS_MAX
}

impl QueueExtension {
    /// The extension in `dir`, below the folder of the store; `new_bytes` is the size of files if there is none yet.
    /// What cannot be read is put aside. A last file that does not fit is removed, one in the midst takes all with it:
    /// what is lost answers nothing, and the queue is made again if it ends with such. No unit gets an address again of
    /// an extension that is lost: units of the queue that were on the disk long ago would tell of another message.
    pub(crate) fn open(store: &Path, dir: PathBuf, new_bytes: u64) -> Result<QueueExtension, StoreError> {
        let mut used_to = 0;
        without_unreadable(store, || QueueExtension::open_once(dir.clone(), new_bytes, &mut used_to))
    }

    fn open_once(dir: PathBuf, new_bytes: u64, used_to: &mut u64) -> Result<QueueExtension, StoreError> {
        let mut found = list_files(&dir)?;
        let file_bytes = match &found[..] {
            [] => new_bytes,
            [only] => only.len,
            [first, second, ..] => second.start - first.start,
        };
        *used_to = found.iter().map(|file| file.start + file_bytes).fold(*used_to, u64::max);
        let mut expected = found.first().map(|first| first.start);
        let sound = found.iter().take_while(|file| {
            let fits = file.len == file_bytes && expected == Some(file.start);
            expected = Some(file.start + file_bytes);
            fits && file_bytes > HEAD_BYTES as u64 + END_BYTES
        });
        let mut sound = sound.count();
        let behind = found.get(sound.wrapping_sub(1)).map(|file| file.start + file_bytes);
        let ends_badly = |file: &SegmentFile| sound + 1 == found.len() && behind == Some(file.start);
        if !found.get(sound).is_none_or(ends_badly) {
            sound = 0;
        }
        // From the front on: a kill in between leaves the last addresses.
        for file in found.drain(sound..) {
            tracing::warn!(file = %file.path.display(), "file does not fit the extension and is removed");
            remove(&file.path)?;
        }
        let file_bytes = if found.is_empty() { new_bytes } else { file_bytes };
        let files = found.iter().map(|found| Arc::new(QueueFile::existing(&dir, found.start, found.len)));
        let files = QueueFiles::found(files.collect());
        let extension = QueueExtension { dir, file_bytes, files, end: AtomicU64::new(0) };
        let end = match found.is_empty() {
            true => used_to.next_multiple_of(file_bytes),
            false => extension.find_end()?,
        };
        extension.end.store(end, Ordering::Release);
        Ok(extension)
    }

    /// The unit at an address.
    pub(crate) fn read(&self, address: i64) -> Option<ExtensionUnit> {
        let position = address.wrapping_sub(i64::MIN).cast_unsigned();
        if !is_address(address) || position >= self.end.load(Ordering::Acquire) {
            return None;
        }
        let file = self.files.at(position)?;
        let (map, at) = (file.map().ok()?, file.at(position));
        let to = (at + LOOK_BYTES).min(map.len());
        file.ready(at..to).inspect_err(|error| tracing::error!(%error, "filter bits cannot be read")).ok()?;
        let mut head = [0; HEAD_BYTES];
        if at + HEAD_BYTES > map.len() {
            return None;
        }
        map.read(at, &mut head);
        let [size, bit_bytes] = [0, 18].map(|at| usize::from(u16::from_be_bytes([head[at], head[at + 1]])));
        if size != HEAD_BYTES + bit_bytes || at + size > map.len() {
            return None;
        }
        let mut bits = vec![0; bit_bytes];
        map.read(at + HEAD_BYTES, &mut bits);
        let long = |at: usize| head[at..].first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
        Some(ExtensionUnit { tags_code: long(2), store_timestamp_ms: long(10), bits })
    }

    /// Whether reading any unit waits for no disk, as far as was seen in the last seconds: `now_s` is the time of any
    /// clock.
    pub(crate) fn was_resident(&self, now_s: u32) -> bool {
        let end = self.end.load(Ordering::Acquire);
        self.files.list().iter().all(|file| file.was_resident((file.start(), end), end, now_s))
    }

    /// Brings the units from address `from` to address `last` into memory. Waits for the disk.
    pub(crate) fn fetch(&self, from: i64, last: i64) -> Result<(), StoreError> {
        if !is_address(from) || !is_address(last) {
            return Ok(());
        }
        let position = |address: i64| address.wrapping_sub(i64::MIN).cast_unsigned();
        let end = self.end.load(Ordering::Acquire);
        let (from, to) = (position(from), position(last).saturating_add(UNIT_MAX_BYTES).min(end));
        let list = self.files.list();
        let mut touched = list.iter().filter(|file| file.start() < to && from < file.end());
        touched.try_for_each(|file| file.fetch((from, to)))
    }

    /// Appends a unit and answers its address. Fails for bits that no unit can hold.
    pub(crate) fn append(&self, unit: &ExtensionUnit) -> Result<i64, StoreError> {
        let size = HEAD_BYTES + unit.bits.len();
        let max = UNIT_MAX_BYTES.min(self.file_bytes - END_BYTES);
        let Some(size_word) = i16::try_from(size).ok().filter(|_| size as u64 <= max) else {
            return Err(StoreError::TooLong { what: "filter bits", len: size as u64, max });
        };
        let (file, position) = self.room(size as u64)?;
        let bit_bytes = u16::try_from(unit.bits.len()).expect("bits are shorter than their unit");
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(&size_word.to_be_bytes());
        bytes.extend_from_slice(&unit.tags_code.to_be_bytes());
        bytes.extend_from_slice(&unit.store_timestamp_ms.to_be_bytes());
        bytes.extend_from_slice(&bit_bytes.to_be_bytes());
        bytes.extend_from_slice(&unit.bits);
        let map = file.writable(position, size as u64)?;
        faults::store(file.path(), || map.write(file.at(position), &bytes));
        self.end.store(position + size as u64, Ordering::Release);
        Ok(position.cast_signed().wrapping_add(i64::MIN))
    }

    /// Deletes the files in front of the one that holds `address`; never the last.
    pub(crate) fn expire(&self, address: i64) -> Result<usize, StoreError> {
        let position = address.wrapping_sub(i64::MIN).cast_unsigned();
        let last = self.files.list().last().map_or(0, |file| file.start());
        self.files.retain(|file| file.end() > position || file.start() == last)
    }

    /// Forces the files to the disk.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.files.list().iter().rev().take(2).try_for_each(|file| file.flush())
    }

    /// The file and position where a unit of this size goes.
    fn room(&self, size: u64) -> Result<(Arc<QueueFile>, u64), StoreError> {
        let position = self.end.load(Ordering::Relaxed);
        let last = self.files.list().last().map(Arc::clone);
        match last {
            Some(file) if position + size + END_BYTES <= file.end() => Ok((file, position)),
            Some(file) => {
                if position + 2 <= file.end() {
                    file.writable(position, 2)?.write(file.at(position), &(-1_i16).to_be_bytes());
                }
                Ok((self.files.append(&self.dir, file.end(), self.file_bytes)?, file.end()))
            }
            None => Ok((self.files.append(&self.dir, position, self.file_bytes)?, position)),
        }
    }

    /// Walks over the units of the last file.
    fn find_end(&self) -> Result<u64, StoreError> {
        let Some(file) = self.files.list().last().map(Arc::clone) else { return Ok(0) };
        let map = file.map()?;
        let (mut at, mut ready_to) = (0, 0);
        loop {
            // Through the file: what the disk cannot read is an error.
            if at + LOOK_BYTES > ready_to && ready_to < map.len() {
                let to = (at + 2 * LOOK_BYTES).min(map.len());
                file.ready(ready_to..to)?;
                ready_to = to;
            }
            let mut head = [0; HEAD_BYTES];
            if at + HEAD_BYTES > map.len() {
                break;
            }
            map.read(at, &mut head);
            let [size, bit_bytes] =
                [0, 18].map(|at| usize::from(u16::from_be_bytes([head[at], head[at + 1]])));
            if size != HEAD_BYTES + bit_bytes || at + size > map.len() {
                break;
            }
            at += size;
        }
        Ok(file.start() + at as u64)
    }
}

/// Folder of the extension of a queue.
pub(crate) fn folder(store: &Path, topic: &str, queue_id: i32) -> PathBuf {
    Paths::below(store).consume_queue_extension().join(topic).join(queue_id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(number: i64, bit_bytes: usize) -> ExtensionUnit {
        let bits = vec![u8::try_from(number).unwrap(); bit_bytes];
        ExtensionUnit { tags_code: -number, store_timestamp_ms: 1000 + number, bits }
    }

    #[test]
    fn units_are_found_by_their_address_across_files_and_starts() {
        let dir = tempfile::tempdir().unwrap();
        let open = || QueueExtension::open(dir.path(), dir.path().join("x"), 128).unwrap();
        let extension = open();
        let mut addresses = Vec::new();
        for number in 0..20 {
            addresses.push(open().append(&unit(number, 14)).unwrap());
        }
        // Three units of 34 bytes fit into 124.
        assert_eq!(addresses[..4], [0, 34, 68, 128].map(|position: i64| position + i64::MIN));
        let again = open();
        for (number, address) in (0..).zip(&addresses) {
            assert!(is_address(*address));
            assert_eq!(again.read(*address), Some(unit(number, 14)));
        }
        assert_eq!(extension.read(addresses[0]), None);
        assert_eq!(again.expire(addresses[7]).unwrap(), 2);
        assert_eq!((again.read(addresses[5]), again.read(addresses[6])), (None, Some(unit(6, 14))));
    }

    #[test]
    fn a_hash_is_no_address_and_a_wrong_address_answers_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let extension = QueueExtension::open(dir.path(), dir.path().join("x"), 128).unwrap();
        let address = extension.append(&unit(1, 0)).unwrap();
        assert!(!is_address(i64::from(i32::MIN)) && is_address(i64::from(i32::MIN) - 1));
        for wrong in [0, address + 1, address + 20, address + 1000, ADDRESS_MAX] {
            assert_eq!(extension.read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn files_that_a_crash_left_short_long_or_alone_are_no_obstacle() {
        for (damaged, len) in
            [(0, 0), (0, 10), (0, 64), (0, 1_128), (1, 0), (1, 64), (2, 0), (2, 64), (2, 1_128)]
        {
            let dir = tempfile::tempdir().unwrap();
            let open = || QueueExtension::open(dir.path(), dir.path().join("x"), 128).unwrap();
            let addresses: Vec<_> = (0..9).map(|number| open().append(&unit(number, 14)).unwrap()).collect();
            let path = dir.path().join("x").join(super::super::files::file_name(damaged * 128));
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
            let extension = open();
            for (number, address) in (0..).zip(&addresses) {
                let kept = damaged == 2 && number < 6;
                assert_eq!(extension.read(*address), kept.then(|| unit(number, 14)), "{damaged} {len}");
            }
            for number in 10..20 {
                let address = extension.append(&unit(number, 14)).unwrap();
                assert_eq!(open().read(address), Some(unit(number, 14)), "{damaged} {len}");
            }
            let lost = addresses.iter().filter(|_| damaged < 2);
            assert_eq!(lost.filter_map(|address| extension.read(*address)).next(), None, "{damaged} {len}");
        }
        // One whose other files are gone is as large as it is.
        let dir = tempfile::tempdir().unwrap();
        let open = |bytes| QueueExtension::open(dir.path(), dir.path().join("x"), bytes).unwrap();
        let address = open(128).append(&unit(1, 14)).unwrap();
        assert_eq!(open(4096).read(address), Some(unit(1, 14)));
    }

    #[test]
    fn bits_that_no_unit_holds_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let extension = QueueExtension::open(dir.path(), dir.path().join("x"), 128).unwrap();
        assert!(extension.append(&unit(1, 105)).is_err());
        assert!(extension.append(&unit(1, 104)).is_ok());
    }
}
