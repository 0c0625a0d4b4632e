//! The files of one queue: named by the byte they start with, opened when first needed.
//!
//! Invariants:
//! - who writes has reserved the blocks: no store through a map finds the disk full;
//! - all files of a queue have the same size, and each begins where the one before it ends;
//! - a queue nobody has written has no file, and a file nobody has needed is not mapped;
//! - the list changes by whole new lists, so a reader keeps what it has and waits for nobody;
//! - what was written and is far behind takes no memory of this process, however fast units come.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};

use crate::blocks::{self, Reserved};
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::mmap::WordMap;
use crate::no_wait::{self, Cold};
use crate::paths::{create_dir, remove};
use crate::seen::Seen;
use crate::segment;

/// One file of a queue.
#[derive(Debug)]
pub(crate) struct QueueFile {
    start: u64,
    bytes: u64,
    path: PathBuf,
    map: OnceLock<WordMap>,
    reserved: Reserved,
    seen: Seen,
}

impl QueueFile {
    /// A file that exists in `dir` and begins with byte `start` of its queue.
    pub(crate) fn existing(dir: &Path, start: u64, bytes: u64) -> QueueFile {
        let path = dir.join(file_name(start));
        QueueFile {
            start,
            bytes,
            path,
            map: OnceLock::new(),
            reserved: Reserved::default(),
            seen: Seen::default(),
        }
    }

    /// First byte of the queue in this file.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Byte of the queue behind this file.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// Where the file lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file without a map, for a look at it: the system reads what it is asked for and no more.
    pub(crate) fn open(&self) -> Result<File, StoreError> {
        let opened = faults::look(Op::Open, &self.path, || File::open(&self.path));
        let file = opened.map_err(StoreError::io("open", &self.path))?;
        if let Err(error) = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random) {
            tracing::debug!(%error, file = %self.path.display(), "the system reads ahead");
        }
        Ok(file)
    }

    /// Fills `bytes` with what stands at `at` of the file, which `open` has opened.
    pub(crate) fn read(&self, disk: &File, bytes: &mut [u8], at: u64) -> Result<(), StoreError> {
        let read = faults::look(Op::Read, &self.path, || disk.read_exact_at(bytes, at));
        read.map_err(StoreError::read(&self.path, at))
    }

    /// The same if that waits for no disk. To open a file that is not mapped may wait already.
    pub(crate) fn read_now(&self, bytes: &mut [u8], at: u64) -> Result<(), Cold> {
        let map = self.mapped().ok_or(Cold)?;
        let disk = File::open(&self.path).map_err(|_| Cold)?;
        let from = self.at(self.start + at);
        let range = from..from + bytes.len();
        no_wait::read_now((&disk, &self.path), bytes, at, || map.is_resident(range))
    }

    /// The mapped file, if somebody has needed it already.
    pub(crate) fn mapped(&self) -> Option<&WordMap> {
        self.map.get()
    }

    /// The mapped file; the first caller maps it.
    pub(crate) fn map(&self) -> Result<&WordMap, StoreError> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let map = self.map_now().map_err(StoreError::io("map", &self.path))?;
        Ok(self.map.get_or_init(|| map))
    }

    fn map_now(&self) -> io::Result<WordMap> {
        let open = || OpenOptions::new().read(true).write(true).open(&self.path);
        let file = faults::look(Op::Open, &self.path, open)?;
        let len = usize::try_from(self.bytes).expect("the size of a queue file fits the address space");
        WordMap::open(&file, len)
    }

    /// Whether reading the bytes from position `from` of the queue to `to`, of those before `end`, waits for no disk,
    /// as far as was seen in the last seconds: `now_s` is the time of any clock.
    pub(crate) fn was_resident(&self, (from, to): (u64, u64), end: u64, now_s: u32) -> bool {
        let Ok(map) = self.map() else { return false };
        if faults::is_armed(Op::Read, &self.path) {
            return false;
        }
        let at = |position: u64| self.at(position.clamp(self.start, self.end()));
        let of = (at(from)..at(to), at(end), map.len());
        self.seen.known_to(of, now_s, |range| map.resident_parts(range)).is_some()
    }

    /// Reads the bytes from position `from` of the queue to `to` through the file, after which they are in memory.
    /// Waits for the disk.
    pub(crate) fn fetch(&self, (from, to): (u64, u64)) -> Result<(), StoreError> {
        let at = |position: u64| self.at(position.clamp(self.start, self.end()));
        let mut bytes = vec![0; at(to) - at(from)];
        self.read(&self.open()?, &mut bytes, at(from) as u64)
    }

    /// The mapped file, with blocks for the bytes from `position` of the queue on. For its one writer.
    ///
    /// What lies behind the last unit is zero, and the system would gather megabytes of it in memory for the first unit
    /// of a queue, which takes a millisecond: it is told not to.
    #[inline]
    pub(crate) fn writable(&self, position: u64, bytes: u64) -> Result<&WordMap, StoreError> {
        let at = position - self.start;
        if self.reserved.reserve(&self.path, at..at + bytes, self.bytes)? {
            self.drop_pages(position);
            if let Err(error) = self.map()?.read_ahead(false) {
                tracing::debug!(%error, file = %self.path.display(), "the system reads ahead in a file that grows");
            }
        }
        self.map()
    }

    /// Sees to it that `range` of the file can be read through its map: what is not in memory is fetched. Waits for the
    /// disk.
    pub(crate) fn ready(&self, range: Range<usize>) -> Result<(), StoreError> {
        let is_resident = self.mapped().is_some_and(|map| map.is_resident(range.clone()));
        if is_resident && !faults::is_armed(Op::Read, &self.path) {
            return Ok(());
        }
        let disk = self.open()?;
        segment::ready((&disk, &self.path), range.start as u64..range.end as u64, || false)
    }

    /// Makes all bytes from `position` of the queue on zero.
    pub(crate) fn clear(&self, position: u64) -> Result<(), StoreError> {
        self.reserved.forget();
        blocks::clear(&self.path, position - self.start)
    }

    /// Takes the pages before byte `position` of the queue out of this process; the page cache keeps them.
    pub(crate) fn drop_pages(&self, position: u64) {
        let below = self.at(position.clamp(self.start, self.end()));
        if let Some(Err(error)) = self.map.get().map(|map| map.drop_pages(0..below)) {
            tracing::debug!(%error, file = %self.path.display(), "pages stay in memory");
        }
    }

    /// Place of byte `position` of the queue in this file.
    pub(crate) fn at(&self, position: u64) -> usize {
        usize::try_from(position - self.start).expect("the size of a queue file fits the address space")
    }

    /// Forces the file to the disk, mapped or not. One that was deleted meanwhile has nothing to force.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        match File::open(&self.path) {
            Ok(file) => faults::pass(Op::Flush, &self.path, || file.sync_data())
                .map_err(StoreError::io("flush", &self.path)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(StoreError::io("open", &self.path)(cause)),
        }
    }
}

/// The files of one queue, oldest first.
#[derive(Debug, Default)]
pub(crate) struct QueueFiles {
    list: ArcSwap<Vec<Arc<QueueFile>>>,
}

impl QueueFiles {
    /// Files that were found on the disk, oldest first.
    pub(crate) fn found(files: Vec<Arc<QueueFile>>) -> QueueFiles {
        QueueFiles { list: ArcSwap::from_pointee(files) }
    }

    /// The present list.
    pub(crate) fn list(&self) -> Guard<Arc<Vec<Arc<QueueFile>>>> {
        self.list.load()
    }

    /// The file that holds byte `position` of the queue.
    pub(crate) fn at(&self, position: u64) -> Option<Arc<QueueFile>> {
        let list = self.list.load();
        let first = list.first()?;
        let index = position.checked_sub(first.start)? / first.bytes;
        let file = list.get(usize::try_from(index).ok()?)?;
        Some(Arc::clone(file))
    }

    /// Creates the file that begins with byte `start` and puts it behind the others.
    pub(crate) fn append(&self, dir: &Path, start: u64, bytes: u64) -> Result<Arc<QueueFile>, StoreError> {
        create_dir(dir)?;
        let file = QueueFile::existing(dir, start, bytes);
        let path = file.path();
        let open = || OpenOptions::new().create(true).truncate(true).write(true).open(path);
        let disk = faults::pass(Op::Create, path, open).map_err(StoreError::io("create", path))?;
        faults::pass(Op::Allocate, path, || disk.set_len(bytes)).map_err(StoreError::io("size", path))?;
        let file = Arc::new(file);
        self.list.rcu(|list| {
            let mut longer = Vec::clone(list);
            longer.push(Arc::clone(&file));
            longer
        });
        Ok(file)
    }

    /// Takes the files that `keep` refuses out of the list and off the disk; tells how many.
    pub(crate) fn retain(&self, keep: impl Fn(&QueueFile) -> bool) -> Result<usize, StoreError> {
        let before = self.list.rcu(|list| -> Vec<Arc<QueueFile>> {
            list.iter().filter(|file| keep(file)).map(Arc::clone).collect()
        });
        let mut gone: Vec<_> = before.iter().filter(|file| !keep(file)).collect();
        // A crash in between leaves no gap: from the front they go oldest first, from the end newest first.
        if before.first().is_some_and(|first| keep(first)) {
            gone.reverse();
        }
        gone.iter().try_for_each(|file| remove(file.path()))?;
        Ok(gone.len())
    }

    /// How many files are mapped.
    pub(crate) fn mapped(&self) -> usize {
        self.list.load().iter().filter(|file| file.mapped().is_some()).count()
    }

    /// Whether the last file is mapped.
    pub(crate) fn is_last_mapped(&self) -> bool {
        self.list.load().last().is_some_and(|file| file.mapped().is_some())
    }

    /// Unmaps every file but the last, or all; a reader that still holds one keeps it, the next need maps again.
    pub(crate) fn unmap(&self, with_last: bool) {
        self.list.rcu(|list| -> Vec<Arc<QueueFile>> {
            let old = list.len() - usize::from(!with_last && !list.is_empty());
            let fresh = |(index, file): (usize, &Arc<QueueFile>)| {
                if index >= old || file.mapped().is_none() {
                    return Arc::clone(file);
                }
                let (start, bytes, path) = (file.start, file.bytes, file.path.clone());
                let reserved = file.reserved.again();
                Arc::new(QueueFile {
                    start,
                    bytes,
                    path,
                    map: OnceLock::new(),
                    reserved,
                    seen: Seen::default(),
                })
            };
            list.iter().enumerate().map(fresh).collect()
        });
    }
}

/// Name of the file that begins with byte `start`.
pub(crate) fn file_name(start: u64) -> String {
    format!("{start:020}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_created_at_full_size_and_found_by_position() {
        let dir = tempfile::tempdir().unwrap();
        let files = QueueFiles::default();
        files.append(dir.path(), 1200, 1200).unwrap();
        files.append(dir.path(), 2400, 1200).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("00000000000000002400")).unwrap().len(), 1200);
        assert_eq!(files.at(2399).unwrap().start(), 1200);
        assert_eq!(files.at(2400).unwrap().start(), 2400);
        assert!(files.at(3600).is_none() && files.at(0).is_none());
    }

    #[test]
    fn a_removed_file_is_gone_from_list_and_disk() {
        let dir = tempfile::tempdir().unwrap();
        let files = QueueFiles::default();
        files.append(dir.path(), 0, 1200).unwrap();
        files.append(dir.path(), 1200, 1200).unwrap();
        assert_eq!(files.retain(|file| file.start() > 0).unwrap(), 1);
        assert_eq!(files.list().len(), 1);
        assert!(!dir.path().join(file_name(0)).try_exists().unwrap());
    }
}
