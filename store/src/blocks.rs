//! The blocks of a sparse file: had from the file system before bytes are stored through a map, given back where a
//! file ends earlier.
//!
//! Invariants:
//! - a store into a hole of a full file system cannot be refused, it ends the process (SIGBUS): nobody stores through
//!   a map where nobody has reserved;
//! - reserving and clearing change no byte of what is kept, and no file's length at any moment: a crash in between
//!   leaves a file of its right size;
//! - a file grows in steps, so that one that holds little costs little: at most a quarter more than was asked for, or
//!   a page.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::mmap::PAGE_BYTES;

/// Bytes of a page, as an offset.
const PAGE: u64 = PAGE_BYTES as u64;
/// Most bytes that are reserved beyond what was asked for.
const AHEAD_MAX_BYTES: u64 = 1 << 20;

/// How far the blocks of a file surely are there, from where its owner writes on.
#[derive(Debug, Default)]
pub(crate) struct Reserved(AtomicU64);

impl Reserved {
    /// The same knowledge for another handle of the file.
    pub(crate) fn again(&self) -> Reserved {
        Reserved(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }

    /// Nothing is known any more: the file was cleared from somewhere on.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Sees to it that `range` of the file at `path`, which is `len` bytes long, can be stored to. One thread at a
    /// time; each range begins where one before it has ended, or at the first byte that is to be stored. Tells whether
    /// anything had to be reserved, which is so every so often in a file that grows.
    #[inline]
    pub(crate) fn reserve(&self, path: &Path, range: Range<u64>, len: u64) -> Result<bool, StoreError> {
        let has_room = range.end <= self.0.load(Ordering::Relaxed);
        if !has_room {
            self.grow(path, range, len)?;
        }
        Ok(!has_room)
    }

    #[cold]
    fn grow(&self, path: &Path, range: Range<u64>, len: u64) -> Result<(), StoreError> {
        let from = match self.0.load(Ordering::Relaxed) {
            0 => range.start / PAGE * PAGE,
            known => known,
        };
        let ahead = (range.end / 4).clamp(1, AHEAD_MAX_BYTES);
        let to = (range.end + ahead).next_multiple_of(PAGE).min(len);
        reserve(path, from..to)?;
        self.0.store(to, Ordering::Relaxed);
        Ok(())
    }
}

/// Has the file system give `range` of a file its blocks; bytes that are there stay.
pub(crate) fn reserve(path: &Path, range: Range<u64>) -> Result<(), StoreError> {
    let bytes = range.end.saturating_sub(range.start);
    let act = || {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP) => rewrite(&file, range),
            done => Ok(done?),
        }
    };
    let refused = |cause| StoreError::Reserve { file: path.to_path_buf(), bytes, cause };
    faults::pass(Op::Allocate, path, act).map_err(refused)
}

/// Where the system knows no other way: writes back what it reads.
fn rewrite(file: &File, range: Range<u64>) -> io::Result<()> {
    let mut page = [0; PAGE_BYTES];
    for at in range.clone().step_by(PAGE_BYTES) {
        let len = usize::try_from((range.end - at).min(PAGE)).expect("a page is small");
        file.read_exact_at(&mut page[..len], at)?;
        file.write_all_at(&page[..len], at)?;
    }
    Ok(())
}

/// Makes all bytes of the file from `at` on zero, and gives their blocks back.
pub(crate) fn clear(path: &Path, at: u64) -> Result<(), StoreError> {
    let open = || OpenOptions::new().read(true).write(true).open(path);
    let disk = faults::look(Op::Open, path, open).map_err(StoreError::io("open", path))?;
    let len = disk.metadata().map_err(StoreError::io("inspect", path))?.len();
    if at >= len || is_clear(&disk, at, len).map_err(StoreError::io("read", path))? {
        return Ok(());
    }
    faults::pass(Op::Allocate, path, || punch(&disk, at, len)).map_err(StoreError::io("cut", path))
}

/// Takes the blocks from `at` to `end` out of the file. Its length stays as it is, at any moment where that can be
/// had.
fn punch(disk: &File, at: u64, end: u64) -> io::Result<()> {
    let keep = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(disk, keep, at, end - at) {
        Err(Errno::OPNOTSUPP) => {
            disk.set_len(at)?;
            disk.set_len(end)
        }
        done => Ok(done?),
    }
}

/// Whether all bytes from `at` to `end` are zero. May say no where they are, never yes where they are not.
fn is_clear(disk: &File, at: u64, end: u64) -> io::Result<bool> {
    let near = at.saturating_add(1).next_multiple_of(PAGE).min(end);
    let mut rest = vec![0; usize::try_from(near - at).expect("less than a page")];
    disk.read_exact_at(&mut rest, at)?;
    if rest.iter().any(|byte| *byte != 0) {
        return Ok(false);
    }
    if near == end {
        return Ok(true);
    }
    // The file system knows where it has bytes; behind the end of a queue it has none.
    match rustix::fs::seek(disk, rustix::fs::SeekFrom::Data(near)) {
        Err(Errno::NXIO) => Ok(true),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn file(dir: &tempfile::TempDir, len: u64) -> std::path::PathBuf {
        let path = dir.path().join("file");
        File::create(&path).unwrap().set_len(len).unwrap();
        path
    }

    fn blocks(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().blocks() * 512
    }

    #[test]
    fn a_file_that_holds_little_costs_little_and_one_that_grows_seldom_asks() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, 6_000_000);
        let reserved = Reserved::default();
        reserved.reserve(&path, 0..20, 6_000_000).unwrap();
        assert!(blocks(&path) <= 2 * PAGE, "{}", blocks(&path));
        let fault = faults::arm(&path, Op::Allocate, u64::MAX, 28);
        for at in (20..6_000_000).step_by(20) {
            reserved.reserve(&path, at..at + 20, 6_000_000).unwrap();
        }
        assert!((1..100).contains(&fault.seen()), "{}", fault.seen());
        let meta = std::fs::metadata(&path).unwrap();
        assert!(meta.len() == 6_000_000 && meta.blocks() * 512 >= 6_000_000);
    }

    #[test]
    fn what_stands_in_a_file_stays_when_its_blocks_are_reserved_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, 20_000);
        let disk = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        disk.write_all_at(b"unit", 5_000).unwrap();
        Reserved::default().reserve(&path, 5_004..5_024, 20_000).unwrap();
        rewrite(&disk, 4_096..20_000).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() == 20_000 && &bytes[5_000..5_004] == b"unit");
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 4);
        clear(&path, 5_002).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[5_000..5_004]), (20_000, &b"un\0\0"[..]));
    }

    #[test]
    fn a_refusal_is_told_with_its_file_and_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, 20_000);
        let reserved = Reserved::default();
        let fault = faults::arm(&path, Op::Allocate, 0, 28);
        let refused = reserved.reserve(&path, 0..20, 20_000).unwrap_err();
        let told = format!("cannot reserve 4.0 KiB for {}: No space left on device", path.display());
        assert!(refused.is_out_of_space() && refused.to_string().starts_with(&told), "{refused}");
        drop(fault);
        reserved.reserve(&path, 0..20, 20_000).unwrap();
        reserved.forget();
        assert_eq!(reserved.again().0.load(Ordering::Relaxed), 0);
    }
}
