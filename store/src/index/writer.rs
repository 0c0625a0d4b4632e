//! Adding keys to the index, and what a start keeps of the files it finds.
//!
//! Invariants:
//! - a record at or before the last one indexed is known and adds nothing;
//! - a full file is never written again;
//! - a file keeps the geometry it was made with, whatever the settings say now; one that no index can have left is
//!   removed, one that cannot be read put aside, as the log has its keys.

#[cfg(test)]
mod writer_test;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::file::{Entry, Geometry, IndexFile};
use super::header::IndexHeader;
use super::{FOLDER, IndexReader, file_name};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::paths::{create_dir, put_aside, remove, without_unreadable};

/// Sizes of a store whose configuration says otherwise than its files: RocketMQ's defaults.
pub(crate) const USUAL: Geometry = Geometry { slots: 5_000_000, entries: 20_000_000 };

/// Keys that are gathered before they are put; more only for those of one record.
const GATHERED_MAX: usize = 1024;

/// The one writer of the index.
#[derive(Debug)]
pub struct IndexWriter {
    dir: PathBuf,
    geometry: Geometry,
    reader: IndexReader,
    current: Option<Arc<IndexFile>>,
    /// Name of the newest file, also one that is not ours to read.
    newest: Option<PathBuf>,
    /// Log offset of the last record that was indexed before this start or since.
    known_to: Option<u64>,
    /// Whether the log may hold records that are not indexed.
    is_behind: bool,
    /// Log offset before which all records are indexed nevertheless, as far as is known: those without keys left no
    /// trace.
    complete_to: u64,
    /// Keys that are put together; kept for its memory.
    gathered: Vec<Gathered>,
}

/// A key of a record on its way into a file.
#[derive(Debug, Clone, Copy)]
struct Gathered {
    hash: u32,
    log_offset: u64,
    store_timestamp_ms: i64,
}

/// Which entries of the index are known to be on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// All: the store was closed.
    Everything,
    /// Those of records before this log offset.
    Before(u64),
    /// Those stored up to this time (epoch ms): all that Java's check point tells.
    Until(i64),
}

impl Durable {
    fn holds(self, log_offset: u64, time_ms: i64) -> bool {
        match self {
            Durable::Everything => true,
            Durable::Before(log_end) => log_offset < log_end,
            Durable::Until(durable_ms) => time_ms <= durable_ms,
        }
    }

    /// Log offset before which all records are indexed, if no file is missing.
    fn complete_to(self) -> u64 {
        match self {
            Durable::Before(log_end) => log_end,
            Durable::Everything | Durable::Until(_) => 0,
        }
    }
}

/// The files that a start finds, and what it knows of them.
#[derive(Debug)]
struct Found {
    files: Vec<Arc<IndexFile>>,
    /// Path of the last of them.
    newest: Option<PathBuf>,
    /// Whether entries may be missing.
    is_behind: bool,
    /// Log offset before which none is.
    complete_to: u64,
    /// Whether a file behind the last of `files` is gone, which may have held entries of the last record before it.
    has_removed: bool,
    /// Whether all entries of the last record are there, or none.
    last_is_sure: bool,
}

impl Found {
    /// Reads the files in `dir` and keeps the entries that are `durable`.
    fn read(
        config: &StoreConfig,
        dir: &Path,
        geometry: Geometry,
        durable: Durable,
    ) -> Result<Found, StoreError> {
        let mut found = Found {
            files: Vec::new(),
            newest: None,
            is_behind: durable != Durable::Everything,
            complete_to: durable.complete_to(),
            has_removed: false,
            last_is_sure: true,
        };
        // Others tell by the first full one what they are.
        let mut known = vec![geometry, USUAL];
        for path in without_unreadable(&config.dir, || list(dir))? {
            let file = match take(&config.dir, &path, &known)? {
                Taken::File(file) => file,
                Taken::Empty => {
                    (found.has_removed, found.complete_to) = (true, 0);
                    continue;
                }
                Taken::Nothing => {
                    found.lost();
                    continue;
                }
            };
            known.push(file.geometry());
            known.dedup();
            match keep_durable(&file, durable) {
                Ok(cut) => found.keep(file, path, cut)?,
                Err(error) => {
                    put_aside(&config.dir, error)?;
                    found.lost();
                }
            }
        }
        Ok(found)
    }

    /// A file is gone with its entries.
    fn lost(&mut self) {
        (self.is_behind, self.has_removed, self.complete_to) = (true, true, 0);
    }

    /// Takes in a file, of which entries from `cut` on may be gone. One that a crash left empty goes too: made again it
    /// gets the name it had.
    fn keep(&mut self, file: IndexFile, path: PathBuf, cut: Option<u64>) -> Result<(), StoreError> {
        self.complete_to = cut.map_or(self.complete_to, |cut| self.complete_to.min(cut));
        if file.header().next_entry == 1 {
            self.has_removed = true;
            return remove(file.path());
        }
        self.newest = Some(path);
        // A cut takes the entries of the last record with it.
        (self.has_removed, self.last_is_sure) = (false, cut.is_some());
        self.files.push(Arc::new(file));
        Ok(())
    }
}

impl IndexWriter {
    /// Opens the files that are there and keeps the entries that are `durable`.
    pub fn open(config: &StoreConfig, durable: Durable) -> Result<IndexWriter, StoreError> {
        let dir = config.dir.join(FOLDER);
        let geometry = Geometry { slots: config.index_slots_max, entries: config.index_entries_max };
        let Found { files, newest, mut is_behind, mut complete_to, has_removed, last_is_sure } =
            Found::read(config, &dir, geometry, durable)?;
        let current = files.last().map(Arc::clone);
        let reader = IndexReader { files: Arc::new(ArcSwap::from_pointee(files)) };
        let known_to = reader.last_entry().map(|(_, log_offset)| log_offset);
        // A folder that was never made, or that somebody has deleted to have it made again.
        let is_new = !dir.try_exists().map_err(StoreError::io("inspect", &dir))?;
        create_dir(&dir)?;
        is_behind |= is_new;
        if is_new {
            complete_to = 0;
        }
        let gathered = Vec::new();
        let mut index = IndexWriter {
            is_behind,
            complete_to,
            dir,
            geometry,
            reader,
            current,
            newest,
            known_to,
            gathered,
        };
        // A start that was cut off may have removed what followed a full file, and not have come to this.
        let may_have_been_more = has_removed || index.current.as_ref().is_some_and(|last| last.is_full());
        if may_have_been_more && !last_is_sure && is_behind {
            index.doubt_last()?;
        }
        Ok(index)
    }

    /// The read side.
    pub fn reader(&self) -> &IndexReader {
        &self.reader
    }

    /// Log offset of the last record in the index; nothing if there is none.
    pub fn known_to(&self) -> Option<u64> {
        self.known_to
    }

    /// Whether the log may hold records that are not indexed, although they were dispatched once.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Notes that the log holds records that are not indexed.
    pub(crate) fn fell_behind(&mut self) {
        (self.is_behind, self.complete_to) = (true, 0);
    }

    /// Log offset before which all records are indexed, although the index is behind; 0 if that is not known.
    pub(crate) fn complete_to(&self) -> u64 {
        self.complete_to
    }

    /// Drops the entries of the last record: they may be incomplete, where the file that followed is gone.
    pub(crate) fn doubt_last(&mut self) -> Result<(), StoreError> {
        while let Some(file) = self.current.clone() {
            if self.is_cut(&file, file.cut(file.entries() - 1))? {
                if file.entries() == 1 {
                    self.forget(&file)?;
                }
                break;
            }
        }
        self.known_to = self.reader.last_entry().map(|(_, log_offset)| log_offset);
        Ok(())
    }

    /// Whether a file could be cut. One that cannot be read is deleted instead: the log has its keys.
    fn is_cut(
        &mut self,
        file: &Arc<IndexFile>,
        cut: Result<Option<u64>, StoreError>,
    ) -> Result<bool, StoreError> {
        match cut {
            Ok(dropped) => {
                self.complete_to = self.complete_to.min(dropped.unwrap_or(u64::MAX));
                Ok(true)
            }
            Err(error) if error.unreadable().is_some() => {
                tracing::warn!(%error, "a file of the index is deleted and made anew");
                self.fell_behind();
                self.forget(file)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes a file, the last there is.
    pub(crate) fn forget(&mut self, file: &Arc<IndexFile>) -> Result<(), StoreError> {
        remove(file.path())?;
        self.reader.files.rcu(|list| {
            list.iter().filter(|kept| !Arc::ptr_eq(kept, file)).map(Arc::clone).collect::<Vec<_>>()
        });
        self.current = self.reader.files.load().last().map(Arc::clone);
        // Made again it gets the name it had.
        if self.newest.as_deref() == Some(file.path()) {
            self.newest = self.current.as_ref().map(|file| file.path().to_path_buf());
        }
        self.known_to = self.reader.last_entry().map(|(_, log_offset)| log_offset);
        Ok(())
    }

    /// Drops entries of records at or behind the end of the log.
    pub fn truncate(&mut self, log_end: u64) -> Result<(), StoreError> {
        self.complete_to = self.complete_to.min(log_end);
        let list = self.reader.files.load_full();
        let mut has_removed = false;
        for file in list.iter().rev() {
            let header = file.header();
            if header.end_log_offset < log_end {
                break;
            }
            let count = file.count_while(|entry, _| entry.log_offset < log_end);
            let is_cut = self.is_cut(file, count.and_then(|count| file.cut(count)))?;
            has_removed = !is_cut || file.header().next_entry == 1;
            if is_cut && has_removed {
                self.forget(file)?;
            }
        }
        if has_removed {
            self.fell_behind();
            self.doubt_last()?;
        }
        self.known_to = self.reader.last_entry().map(|(_, log_offset)| log_offset);
        Ok(())
    }

    /// Takes a record in under the hashes of its keys, for [`Self::put_gathered`]. Slots lie far from each other in a
    /// large file: by the time they are needed the processor has fetched those of many keys at once.
    #[inline]
    pub(crate) fn gather(
        &mut self,
        hashes: impl Iterator<Item = u32>,
        (log_offset, store_timestamp_ms): (u64, i64),
    ) -> Result<(), StoreError> {
        if self.known_to.is_some_and(|known_to| log_offset <= known_to) {
            return Ok(());
        }
        if self.gathered.len() >= GATHERED_MAX {
            self.put_gathered()?;
        }
        for hash in hashes {
            if let Some(file) = &self.current {
                file.prefetch(hash);
            }
            self.gathered.push(Gathered { hash, log_offset, store_timestamp_ms });
        }
        Ok(())
    }

    /// Adds the records that were taken in, in their order.
    pub(crate) fn put_gathered(&mut self) -> Result<(), StoreError> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let mut of_records = gathered.chunk_by(|one, other| one.log_offset == other.log_offset);
        let put: Result<(), StoreError> = of_records.try_for_each(|keys| {
            for key in keys {
                let file = self.writable(key.store_timestamp_ms)?;
                file.put(key.hash, key.log_offset, key.store_timestamp_ms)?;
            }
            self.known_to = keys.last().map(|key| key.log_offset);
            Ok(())
        });
        gathered.clear();
        self.gathered = gathered;
        put
    }

    /// Brings the head of the current file up to date; done once for many records.
    pub(crate) fn write_header(&self) {
        if let Some(file) = &self.current {
            file.write_header();
        }
    }

    #[inline]
    fn writable(&mut self, now_ms: i64) -> Result<&IndexFile, StoreError> {
        if self.current.as_ref().is_none_or(|file| file.is_full()) {
            self.roll(now_ms)?;
        }
        Ok(self.current.as_ref().expect("a file was made if there was none"))
    }

    #[cold]
    fn roll(&mut self, now_ms: i64) -> Result<(), StoreError> {
        self.write_header();
        if let Some(full) = &self.current {
            full.leave();
        }
        let path = self.dir.join(file_name(now_ms, self.newest.as_deref()));
        let header = IndexHeader::after(self.current.as_deref().map(IndexFile::header).as_ref());
        let made = IndexFile::create(path.clone(), self.geometry, &header);
        if made.is_err() {
            // What comes next would not get its name.
            let _gone = remove(&path);
        }
        let file = Arc::new(made?);
        self.newest = Some(path);
        self.reader.push(Arc::clone(&file));
        self.current = Some(file);
        Ok(())
    }
}

/// Cuts what is not `durable` off a file. If there was something to cut, answers from which log offset on entries may
/// be gone with it that were: those of the last record kept, or all, if what was damaged stands in front.
fn keep_durable(file: &IndexFile, durable: Durable) -> Result<Option<u64>, StoreError> {
    let begin = if file.entries() > 1 { file.header().begin_log_offset } else { u64::MAX };
    let is_known = durable.holds(file.header().end_log_offset, file.header().end_ms);
    // No chain of a full one can begin behind its last entry: its slots need not be read.
    let is_open = durable != Durable::Everything && !file.is_full();
    let mut cut = None;
    if !is_known || is_open && file.points_beyond()? {
        // A second of doubt: entries know their time in whole seconds.
        let is_kept =
            |entry: &Entry, time_ms: i64| durable.holds(entry.log_offset, time_ms.saturating_add(1000));
        cut = Some(file.cut(file.count_while(is_kept)?)?.unwrap_or(begin));
    }
    if !file.is_full() {
        file.ready_to_grow()?;
    }
    Ok(cut)
}

/// The index files of a folder, oldest first.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match faults::look(Op::Open, dir, || fs::read_dir(dir)) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(StoreError::io("list", dir)(cause)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(StoreError::io("list", dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.len() == 17 && name.bytes().all(|byte| byte.is_ascii_digit()) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// What stood under a name of the index.
enum Taken {
    File(IndexFile),
    /// A crash came between the making of the file and its sizing; it is removed.
    Empty,
    /// What is no file of an index, and removed, or cannot be read, and put aside.
    Nothing,
}

fn take(root: &Path, path: &Path, known: &[Geometry]) -> Result<Taken, StoreError> {
    let meta = faults::look(Op::Open, path, || fs::metadata(path)).map_err(StoreError::io("inspect", path));
    let opened = match meta {
        Ok(meta) if meta.len() == 0 => {
            remove(path)?;
            return Ok(Taken::Empty);
        }
        Ok(_) => IndexFile::open_any(path.to_path_buf(), known),
        Err(error) => Err(error),
    };
    match opened {
        Ok(Some(file)) => return Ok(Taken::File(file)),
        Ok(None) => {
            tracing::warn!(file = %path.display(), "what is no file of the index is removed");
            remove(path)?;
        }
        Err(error) => put_aside(root, error)?,
    }
    Ok(Taken::Nothing)
}
