//! The wheel: for each step of time the newest and the oldest unit of the timer log (RocketMQ: `TimerWheel`).
//!
//! Invariants:
//! - the file has 1,209,600 slots of 32 bytes, whatever the precision;
//! - a slot is stored to after its blocks were reserved;
//! - a slot belongs to a time only if it holds that time's quotient; else it is empty for it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use troupemq_codec::timer_record::{SLOT_BYTES, TimerSlot};

use crate::blocks;
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::mmap::WordMap;

/// Slots of the wheel: two weeks of seconds.
pub(super) const SLOTS: u64 = 2 * 7 * 86_400;
/// Bytes of the file.
const FILE_BYTES: u64 = SLOTS * SLOT_BYTES as u64;
/// Bytes whose blocks are reserved at once: a bit more than an hour of seconds.
const PIECE_BYTES: usize = 1 << 17;
/// Pieces of the file.
const PIECES: usize = (2 * 7 * 86_400 * SLOT_BYTES).div_ceil(PIECE_BYTES);
/// Bytes read at once while all slots are looked at.
const CHUNK_BYTES: usize = 1 << 16;

/// The mapped wheel. Clones share it: one changes slots, another forces them to the disk.
#[derive(Debug, Clone)]
pub(crate) struct Wheel {
    /// The file, through which slots are read: a page that the disk cannot read is an error.
    disk: Arc<(File, PathBuf)>,
    map: Arc<WordMap>,
    precision_ms: i64,
    pieces: Arc<Pieces>,
}

/// A bit for each piece of the file.
#[derive(Debug, Default)]
struct Bits([AtomicU64; PIECES.div_ceil(64)]);

#[derive(Debug, Default)]
struct Pieces {
    /// Somebody may have stored there. The others are not even read: in some file systems that takes memory.
    used: Bits,
    /// All blocks are there.
    reserved: Bits,
}

impl Wheel {
    /// Whether there is a file of the right length.
    pub(crate) fn is_there(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|meta| meta.len() == FILE_BYTES)
    }

    /// Opens the file, or makes a new one where there is none of the right length or its slots are not to be
    /// believed. Answers whether it is new.
    pub(crate) fn open(path: &Path, precision_ms: i64, trusted: bool) -> Result<(Wheel, bool), StoreError> {
        let is_there = trusted && Wheel::is_there(path);
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(!is_there).open(path);
        let file = faults::pass(Op::Create, path, open).map_err(StoreError::io("open", path))?;
        let size = || file.set_len(FILE_BYTES);
        faults::pass(Op::Allocate, path, size).map_err(StoreError::io("size", path))?;
        let len = usize::try_from(FILE_BYTES).expect("a wheel fits the address space");
        let map = WordMap::open(&file, len).map_err(StoreError::io("map", path))?;
        let pieces = Arc::new(Pieces::default());
        let mut at = 0;
        while let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            let piece = usize::try_from(data).expect("a wheel fits the address space") / PIECE_BYTES;
            pieces.used.set(piece);
            at = ((piece + 1) * PIECE_BYTES) as u64;
        }
        let disk = Arc::new((file, path.to_path_buf()));
        Ok((Wheel { disk, map: Arc::new(map), precision_ms, pieces }, !is_there))
    }

    /// The slot of a time, if it is not empty for it.
    pub(crate) fn get(&self, time_ms: i64) -> Result<Option<TimerSlot>, StoreError> {
        Ok(self.look(time_ms)?.0)
    }

    /// The slot of a time, if it is not empty for it; and the time whose units stand there, if it is another one.
    pub(crate) fn look(&self, time_ms: i64) -> Result<(Option<TimerSlot>, Option<i64>), StoreError> {
        let quotient = time_ms.div_euclid(self.precision_ms);
        let slot = self.read(self.at(quotient))?;
        let is_other = slot.time != quotient && slot.time > 0 && slot.last >= 0;
        let other_ms = is_other.then(|| slot.time.saturating_mul(self.precision_ms));
        Ok((Some(slot).filter(|slot| slot.time == quotient && slot.last >= 0), other_ms))
    }

    /// Sees to it that the slot of a time can be stored to, whatever the disk is like later.
    pub(crate) fn reserve(&self, path: &Path, time_ms: i64) -> Result<(), StoreError> {
        let piece = self.at(time_ms.div_euclid(self.precision_ms)) / PIECE_BYTES;
        if !self.pieces.reserved.is_set(piece) {
            let from = (piece * PIECE_BYTES) as u64;
            blocks::reserve(path, from..(from + PIECE_BYTES as u64).min(FILE_BYTES))?;
            self.pieces.reserved.set(piece);
            self.pieces.used.set(piece);
        }
        Ok(())
    }

    /// Sets the slot of a time, which was reserved.
    pub(crate) fn put(&self, time_ms: i64, first: i64, last: i64, count: i32) {
        let quotient = time_ms.div_euclid(self.precision_ms);
        let slot = TimerSlot { time: quotient, first, last, count };
        let at = self.at(quotient);
        faults::store(&self.disk.1, || {
            for (index, word) in slot.encode().as_chunks::<4>().0.iter().enumerate() {
                let value = u32::from_be_bytes(*word).to_be();
                self.map.word(at + index * 4).store(value, Ordering::Relaxed);
            }
        });
    }

    /// Empties the slot of a time.
    pub(crate) fn clear(&self, time_ms: i64) {
        self.put(time_ms, -1, -1, 0);
    }

    /// The times in `from_ms..to_ms` that have units.
    pub(crate) fn times(&self, from_ms: i64, to_ms: i64) -> Result<BTreeSet<i64>, StoreError> {
        let mut times = BTreeSet::new();
        each_of(&self.disk.0, &self.disk.1, self.precision_ms, |time_ms, _| {
            if (from_ms..to_ms).contains(&time_ms) {
                times.insert(time_ms);
            }
        })?;
        Ok(times)
    }

    /// Forces the slots to the disk.
    pub(crate) fn flush(&self, path: &Path) -> Result<(), StoreError> {
        faults::pass(Op::Flush, path, || self.map.flush()).map_err(StoreError::io("flush", path))
    }

    /// Hands every slot that holds units of a time from `from_ms` on to `visit`, in no order.
    pub(crate) fn each(
        &self,
        path: &Path,
        from_ms: i64,
        visit: impl FnMut(i64, &TimerSlot),
    ) -> Result<(), StoreError> {
        each(path, self.precision_ms, from_ms, visit)
    }

    fn at(&self, quotient: i64) -> usize {
        let slots = i64::try_from(SLOTS).expect("the wheel has a few slots");
        let index = usize::try_from(quotient.rem_euclid(slots)).expect("a remainder is not negative");
        index * SLOT_BYTES
    }

    fn read(&self, at: usize) -> Result<TimerSlot, StoreError> {
        let mut bytes = [0; SLOT_BYTES];
        if self.pieces.used.is_set(at / PIECE_BYTES) {
            let (file, path) = &*self.disk;
            let read = faults::look(Op::Read, path, || file.read_exact_at(&mut bytes, at as u64));
            read.map_err(StoreError::read(path, at as u64))?;
        }
        Ok(TimerSlot::decode(&bytes).expect("a slot has its 32 bytes"))
    }
}

impl Bits {
    fn is_set(&self, at: usize) -> bool {
        self.0[at / 64].load(Ordering::Acquire) & 1 << (at % 64) != 0
    }

    fn set(&self, at: usize) {
        self.0[at / 64].fetch_or(1 << (at % 64), Ordering::AcqRel);
    }
}

/// Hands every slot of the file that holds units of a time from `from_ms` on to `visit`, in no order.
pub(crate) fn each(
    path: &Path,
    precision_ms: i64,
    from_ms: i64,
    mut visit: impl FnMut(i64, &TimerSlot),
) -> Result<(), StoreError> {
    let opened = faults::look(Op::Open, path, || File::open(path));
    let file = opened.map_err(StoreError::io("open", path))?;
    each_of(&file, path, precision_ms, |time_ms, slot| {
        if time_ms >= from_ms {
            visit(time_ms, slot);
        }
    })
}

fn each_of(
    file: &File,
    path: &Path,
    precision_ms: i64,
    mut visit: impl FnMut(i64, &TimerSlot),
) -> Result<(), StoreError> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    // Stretches nobody ever wrote are passed over without being read.
    while let Ok(data) = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        at = data / SLOT_BYTES as u64 * SLOT_BYTES as u64;
        let len = usize::try_from(FILE_BYTES.saturating_sub(at)).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let read = faults::look(Op::Read, path, || file.read_exact_at(&mut chunk[..len], at));
        read.map_err(StoreError::read(path, at))?;
        for slot in chunk[..len].chunks_exact(SLOT_BYTES) {
            let Ok(slot) = TimerSlot::decode(slot) else { continue };
            if slot.last >= 0 && slot.time > 0 {
                visit(slot.time.saturating_mul(precision_ms), &slot);
            }
        }
        at += len as u64;
        if at >= FILE_BYTES {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_found_by_its_time_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timerwheel");
        let (wheel, is_new) = Wheel::open(&path, 1000, true).unwrap();
        assert!(is_new);
        let day_ms = 86_400_000;
        let time_ms = 1_795_968_379_000;
        assert_eq!(wheel.get(time_ms).unwrap(), None);
        wheel.reserve(&path, time_ms).unwrap();
        wheel.put(time_ms, 52, 104, 2);
        let wanted = TimerSlot { time: 1_795_968_379, first: 52, last: 104, count: 2 };
        let get = |time_ms| wheel.get(time_ms).unwrap();
        let other_at = |time_ms| wheel.look(time_ms).unwrap().1;
        assert_eq!(get(time_ms + 999), Some(wanted));
        assert_eq!((get(time_ms + 1000), get(time_ms + 14 * day_ms)), (None, None));
        assert_eq!(other_at(time_ms + 14 * day_ms), Some(time_ms));
        assert_eq!((other_at(time_ms), other_at(time_ms + 1000)), (None, None));
        let (again, is_new) = Wheel::open(&path, 1000, true).unwrap();
        assert_eq!((again.get(time_ms).unwrap(), is_new), (Some(wanted), false));
        let mut seen = Vec::new();
        again.each(&path, time_ms, |time_ms, slot| seen.push((time_ms, slot.count))).unwrap();
        assert_eq!(seen, [(time_ms, 2)]);
        again.each(&path, time_ms + 1, |_, _| unreachable!()).unwrap();
        again.clear(time_ms);
        assert_eq!(again.get(time_ms).unwrap(), None);
    }

    #[test]
    fn a_wheel_of_another_length_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timerwheel");
        fs::write(&path, [7; 100]).unwrap();
        let (wheel, is_new) = Wheel::open(&path, 1000, true).unwrap();
        assert!(is_new && wheel.get(0x0707_0707 * 1000).unwrap().is_none());
        assert_eq!(fs::metadata(&path).unwrap().len(), 38_707_200);
    }
}
