//! Adding keys to the index, and what a start keeps of the files it finds.
//!
//! Invariants:
//! - a record at or before the last one indexed is known and adds nothing;
//! - a full file is never written again;
//! - a file keeps the geometry it was made with, whatever the settings say now; one that no index can have left is
//!   removed, one that cannot be read put aside, as the log has its keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::file::{Geometry, IndexFile};
use super::header::IndexHeader;
use super::key::key_hash;
use super::{FOLDER, IndexReader, file_name};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::paths::{create_dir, put_aside, remove, without_unreadable};

/// Sizes of a store whose configuration says otherwise than its files: RocketMQ's defaults.
pub(crate) const USUAL: Geometry = Geometry { slots: 5_000_000, entries: 20_000_000 };

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
}

impl IndexWriter {
    /// Opens the files that are there and keeps the entries that are `durable`.
    pub fn open(config: &StoreConfig, durable: Durable) -> Result<IndexWriter, StoreError> {
        let dir = config.dir.join(FOLDER);
        let geometry = Geometry { slots: config.index_slots_max, entries: config.index_entries_max };
        let mut files = Vec::new();
        let mut newest = None;
        // Others tell by the first full one what they are.
        let mut known = vec![geometry, USUAL];
        let mut is_behind = durable != Durable::Everything;
        // Of the last record before a file that is gone, that file may have held entries.
        let (mut has_removed, mut last_is_sure) = (false, true);
        for path in without_unreadable(&config.dir, || list(&dir))? {
            let file = match take(&config.dir, &path, &known)? {
                Taken::File(file) => file,
                Taken::Empty => {
                    has_removed = true;
                    continue;
                }
                Taken::Nothing => {
                    (is_behind, has_removed) = (true, true);
                    continue;
                }
            };
            known.push(file.geometry());
            known.dedup();
            let before = newest.replace(path);
            let is_known = durable.holds(file.header().end_log_offset, file.header().end_ms);
            // No chain of a full one can begin behind its last entry: its slots need not be read.
            let is_open = durable != Durable::Everything && !file.is_full();
            let is_cut = !is_known || is_open && file.points_beyond();
            if is_cut {
                // A second of doubt: entries know their time in whole seconds.
                file.cut(file.count_while(|entry, time_ms| durable.holds(entry.log_offset, time_ms + 1000)))?;
            }
            // One that a crash left empty goes too. Made again it gets the name it had.
            if file.header().next_entry == 1 {
                remove(file.path())?;
                newest = before;
                has_removed = true;
            } else {
                // A cut takes the entries of the last record with it.
                has_removed = false;
                last_is_sure = is_cut;
                files.push(Arc::new(file));
            }
        }
        let current = files.last().map(Arc::clone);
        let reader = IndexReader { files: Arc::new(ArcSwap::from_pointee(files)) };
        let known_to = reader.last_entry().map(|(_, log_offset)| log_offset);
        // A folder that was never made, or that somebody has deleted to have it made again.
        let is_new = !dir.try_exists().map_err(StoreError::io("inspect", &dir))?;
        create_dir(&dir)?;
        is_behind |= is_new;
        let mut index = IndexWriter { is_behind, dir, geometry, reader, current, newest, known_to };
        if has_removed && !last_is_sure && is_behind {
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
        self.is_behind = true;
    }

    /// Drops the entries of the last record: they may be incomplete, where the file that followed is gone.
    pub(crate) fn doubt_last(&mut self) -> Result<(), StoreError> {
        let Some(file) = self.current.clone() else { return Ok(()) };
        file.cut(file.entries() - 1)?;
        if file.entries() == 1 {
            return self.forget(&file);
        }
        self.known_to = self.reader.last_entry().map(|(_, log_offset)| log_offset);
        Ok(())
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
        let list = self.reader.files.load_full();
        let mut has_removed = false;
        for file in list.iter().rev() {
            let header = file.header();
            if header.end_log_offset < log_end {
                break;
            }
            file.cut(file.count_while(|entry, _| entry.log_offset < log_end))?;
            has_removed = file.header().next_entry == 1;
            if has_removed {
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

    /// Adds a record under its unique key and each of its keys (`keys` holds them with blanks between).
    /// `seed` is the hash of its topic's front.
    #[inline]
    pub(crate) fn put(&mut self, seed: i32, record: &Keys<'_>) -> Result<(), StoreError> {
        if self.known_to.is_some_and(|known_to| record.log_offset <= known_to) {
            return Ok(());
        }
        let keys = record.keys.unwrap_or_default().split(' ').filter(|key| !key.is_empty());
        let mut any = false;
        for key in record.unique_key.into_iter().chain(keys) {
            let file = self.writable(record.store_timestamp_ms)?;
            file.put(key_hash(seed, key), record.log_offset, record.store_timestamp_ms)?;
            any = true;
        }
        if any {
            self.known_to = Some(record.log_offset);
        }
        Ok(())
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

/// What the index wants to know of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) unique_key: Option<&'a str>,
    pub(crate) keys: Option<&'a str>,
    pub(crate) log_offset: u64,
    pub(crate) store_timestamp_ms: i64,
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

#[cfg(test)]
mod tests {
    use super::super::{Found, KeyQuery, QUERY_LOOKS_MAX, topic_seed};
    use super::*;

    fn config(dir: &Path) -> StoreConfig {
        StoreConfig { index_slots_max: 50, index_entries_max: 100, ..StoreConfig::in_dir(dir) }
    }

    fn open(dir: &Path, durable: Durable) -> IndexWriter {
        IndexWriter::open(&config(dir), durable).unwrap()
    }

    /// Record number `number`: 100 bytes, half a second after the one before, keys `u<number>`, `a`, `b<0…6>`.
    fn put(index: &mut IndexWriter, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let unique_key = format!("u{number}");
            let keys = format!(" a  b{} ", number % 7);
            let record = Keys {
                unique_key: Some(&unique_key),
                keys: Some(&keys),
                log_offset: number * 100,
                store_timestamp_ms: time_of(number),
            };
            index.put(topic_seed("T"), &record).unwrap();
        }
        index.write_header();
    }

    fn time_of(number: u64) -> i64 {
        1_795_967_657_312 + number.cast_signed() * 500
    }

    fn ask(index: &IndexWriter, key: &str, max: usize) -> Vec<u64> {
        let query = KeyQuery { topic: "T", key, max, begin_ms: 0, end_ms: i64::MAX };
        index.reader().query(&query).iter().map(|log_offset| log_offset / 100).collect()
    }

    #[test]
    fn every_key_is_found_across_files_oldest_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = open(dir.path(), Durable::Everything);
        assert_eq!(ask(&index, "a", 9), [0_u64; 0]);
        put(&mut index, 0..150);
        assert_eq!(index.reader().files.load().len(), 5);
        for number in 0..150 {
            assert_eq!(ask(&index, &format!("u{number}"), 9), [number]);
        }
        assert_eq!(ask(&index, "a", 3), [147, 148, 149]);
        assert_eq!(ask(&index, "b3", 1000), (3..150).step_by(7).collect::<Vec<_>>());
        assert_eq!(ask(&index, "", 9), [0_u64; 0]);
        let again = open(dir.path(), Durable::Everything);
        assert_eq!(ask(&again, "b3", 1000), ask(&index, "b3", 1000));
        assert_eq!(again.known_to(), Some(14_900));
    }

    #[test]
    fn a_file_that_a_crash_left_without_an_entry_is_made_again_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = open(dir.path(), Durable::Everything);
        put(&mut index, 0..2);
        let path = index.current.as_ref().unwrap().path().to_path_buf();
        let full = fs::metadata(&path).unwrap().len();
        for len in [0, full] {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(0).unwrap();
            file.set_len(len).unwrap();
            for durable in [Durable::Everything, Durable::Before(10_000), Durable::Until(0)] {
                let mut index = open(dir.path(), durable);
                assert_eq!(index.known_to(), None);
                put(&mut index, 0..2);
                assert_eq!(index.current.as_ref().unwrap().path(), path);
                assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 1);
                fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
            }
        }
    }

    #[test]
    fn a_kill_between_entries_and_head_breaks_no_chain() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = open(dir.path(), Durable::Everything);
        put(&mut index, 0..10);
        let current = Arc::clone(index.current.as_ref().unwrap());
        // The batch that was under way had got this far: slots are moved, the head does not know.
        for number in 10..12 {
            current.put(key_hash(topic_seed("T"), "a"), number * 100, time_of(number)).unwrap();
        }
        drop((index, current));
        let mut index = open(dir.path(), Durable::Before(1_000));
        put(&mut index, 5..20);
        assert_eq!(ask(&index, "a", 99), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_query_keeps_to_its_time_and_to_right_records() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = open(dir.path(), Durable::Everything);
        put(&mut index, 0..150);
        let query = KeyQuery { topic: "T", key: "a", max: 4, begin_ms: time_of(20), end_ms: time_of(80) };
        let found = index.reader().query_where(&query, |log_offset| log_offset % 2_000 == 0);
        assert_eq!(found, Found { log_offsets: vec![2_000, 4_000, 6_000, 8_000], is_cut: false });
    }

    /// Who chooses keys with the same hash makes a query for another one look at all of them.
    #[test]
    fn a_query_looks_at_a_bounded_number_of_foreign_records_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig { index_slots_max: 50_000, index_entries_max: 50_000, ..config(dir.path()) };
        let mut index = IndexWriter::open(&config, Durable::Everything).unwrap();
        put(&mut index, 0..u64::from(QUERY_LOOKS_MAX) + 10);
        let looked = std::cell::Cell::new(0);
        let look = |right: u32| {
            looked.set(0);
            let query = KeyQuery { topic: "T", key: "a", max: 4, begin_ms: 0, end_ms: i64::MAX };
            index.reader().query_where(&query, |log_offset| {
                looked.set(looked.get() + 1);
                log_offset == u64::from(right) * 100
            })
        };
        let found = |log_offsets| Found { log_offsets, is_cut: true };
        assert_eq!((look(10), looked.get()), (found(vec![1_000]), QUERY_LOOKS_MAX));
        assert_eq!((look(9), looked.get()), (found(vec![]), QUERY_LOOKS_MAX));
    }

    #[test]
    fn a_known_record_adds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = open(dir.path(), Durable::Everything);
        put(&mut index, 0..50);
        put(&mut index, 20..60);
        assert_eq!(index.reader().last_entry(), Some((time_of(59), 5_900)));
        let entries: u32 = index.reader().files.load().iter().map(|file| file.header().next_entry - 1).sum();
        assert_eq!(entries, 60 * 3);
    }

    #[test]
    fn after_an_unclean_stop_only_durable_entries_stay_and_the_rest_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        put(&mut open(dir.path(), Durable::Everything), 0..150);
        // The last record's keys may be incomplete, so it goes too.
        let index = open(dir.path(), Durable::Before(12_000));
        assert_eq!((index.known_to(), ask(&index, "a", 1)), (Some(11_800), vec![118]));
        let mut index = open(dir.path(), Durable::Until(time_of(100)));
        let known = index.known_to().unwrap() / 100;
        assert!((95..100).contains(&known), "{known}");
        assert_eq!(ask(&index, "a", 1), [known]);
        put(&mut index, 0..150);
        for number in 0..150 {
            assert_eq!(ask(&index, &format!("u{number}"), 9), [number]);
        }
        let name = |dir: &Path| fs::read_dir(dir.join(FOLDER)).unwrap().map(|e| e.unwrap().file_name()).min();
        let first = name(dir.path());
        let mut nothing = open(dir.path(), Durable::Until(0));
        assert_eq!((ask(&nothing, "a", 9), nothing.known_to()), (vec![], None));
        assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 0);
        put(&mut nothing, 0..2);
        assert_eq!(ask(&nothing, "a", 9), [0, 1]);
        assert_eq!(name(dir.path()), first, "a file that is made again has the name it had");
    }

    /// A file holds 101 entries, a record has three: every second border of files is within a record.
    #[test]
    fn a_record_whose_keys_two_files_share_has_all_of_them_whatever_was_dropped() {
        for at in 28..72 {
            for dropped in ["by time", "by offset", "behind the log"] {
                let dir = tempfile::tempdir().unwrap();
                let config = StoreConfig { index_entries_max: 102, ..config(dir.path()) };
                let open = |durable| IndexWriter::open(&config, durable).unwrap();
                put(&mut open(Durable::Everything), 0..80);
                let mut index = match dropped {
                    "by time" => open(Durable::Until(time_of(at))),
                    "by offset" => open(Durable::Before(at * 100)),
                    _ => open(Durable::Everything),
                };
                if dropped == "behind the log" {
                    index.truncate(at * 100).unwrap();
                }
                put(&mut index, 0..80);
                for key in 0..7 {
                    let all: Vec<_> = (key..80).step_by(7).collect();
                    assert_eq!(ask(&index, &format!("b{key}"), 1000), all, "{at} {dropped}");
                }
                assert_eq!(ask(&index, "a", 1000), (0..80).collect::<Vec<_>>(), "{at} {dropped}");
            }
        }
    }

    #[test]
    fn entries_beyond_the_end_of_the_log_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = open(dir.path(), Durable::Everything);
        put(&mut index, 0..150);
        index.truncate(14_901).unwrap();
        assert_eq!(index.known_to(), Some(14_900));
        index.truncate(5_000).unwrap();
        assert_eq!(index.known_to(), Some(4_800));
        put(&mut index, 49..51);
        assert_eq!(ask(&index, "a", 3), [48, 49, 50]);
        index.truncate(0).unwrap();
        assert_eq!((index.known_to(), ask(&index, "a", 3)), (None, vec![]));
    }

    #[test]
    fn old_files_go_with_the_log_and_the_last_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = open(dir.path(), Durable::Everything);
        put(&mut index, 0..150);
        assert_eq!(index.reader().expire(3_200).unwrap(), 0);
        assert_eq!(index.reader().expire(3_201).unwrap(), 1);
        assert_eq!(index.reader().expire(u64::MAX).unwrap(), 3);
        assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 1);
        assert_eq!(ask(&index, "u149", 1), [149]);
    }

    #[test]
    fn what_no_index_can_have_left_is_removed_and_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let alien = dir.path().join(FOLDER).join("29991231235959999");
        fs::create_dir(dir.path().join(FOLDER)).unwrap();
        for len in [1, 39, 77, 2_500] {
            fs::write(&alien, vec![1; len]).unwrap();
            let mut index = open(dir.path(), Durable::Everything);
            assert!(index.is_behind() && !alien.try_exists().unwrap(), "{len}");
            put(&mut index, 0..2);
            assert_eq!(ask(&index, "a", 9), [0, 1]);
            index.truncate(0).unwrap();
        }
    }

    #[test]
    fn full_files_of_another_geometry_are_read_and_new_ones_follow_the_settings() {
        let dir = tempfile::tempdir().unwrap();
        put(&mut open(dir.path(), Durable::Everything), 0..70);
        let other = StoreConfig { index_slots_max: 7, index_entries_max: 40, ..config(dir.path()) };
        let mut index = IndexWriter::open(&other, Durable::Everything).unwrap();
        // Two files are full and tell what the third is.
        assert_eq!((index.known_to(), index.is_behind()), (Some(6_900), false));
        put(&mut index, 60..90);
        assert_eq!(ask(&index, "a", 99), (0..90).collect::<Vec<_>>());
        assert_eq!(ask(&index, "u3", 9), [3]);
    }
}
