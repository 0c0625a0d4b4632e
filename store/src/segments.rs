//! A row of segments without gaps, read by many and changed by few.
//!
//! Invariants:
//! - segments are sorted, of one size, and each begins where the one before ends;
//! - a reader takes one snapshot and no lock;
//! - taking a segment off the row neither unmaps nor deletes it: its last holder does, off the hot threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::segment::Segment;

/// The highest offset that a file can begin with: its end is one too, and can be counted with.
const START_MAX: u64 = 1 << 62;

/// Published list of segments.
#[derive(Debug)]
pub struct Segments {
    list: ArcSwap<Vec<Arc<Segment>>>,
}

/// A file that by its name is a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    /// Offset of the first byte, from the name.
    pub start: u64,
    /// Length of the file in bytes.
    pub len: u64,
    /// Where it is.
    pub path: PathBuf,
}

impl Segments {
    /// A row of `segments`, sorted and without gaps.
    pub fn new(segments: Vec<Arc<Segment>>) -> Segments {
        Segments { list: ArcSwap::from_pointee(segments) }
    }

    /// Hands the segment that holds `offset` to `read`.
    pub fn with<T>(&self, offset: u64, read: impl FnOnce(&Arc<Segment>) -> T) -> Option<T> {
        let list = self.list.load();
        find(&list, offset).map(read)
    }

    /// The segment that holds `offset`.
    pub fn at(&self, offset: u64) -> Option<Arc<Segment>> {
        self.with(offset, Arc::clone)
    }

    /// `len` final bytes from `offset` within one segment, without a copy.
    pub fn bytes(&self, offset: u64, len: usize) -> Option<Bytes> {
        self.with(offset, |segment| segment.bytes(offset, len)).flatten()
    }

    /// The present row.
    pub fn snapshot(&self) -> Arc<Vec<Arc<Segment>>> {
        self.list.load_full()
    }

    /// Offset of the first byte of the first segment.
    pub fn start(&self) -> Option<u64> {
        self.list.load().first().map(|segment| segment.start())
    }

    /// The last segment.
    pub fn last(&self) -> Option<Arc<Segment>> {
        self.list.load().last().map(Arc::clone)
    }

    /// Adds a segment at the end.
    pub fn push(&self, segment: Arc<Segment>) {
        self.list.rcu(|list| {
            let mut longer = Vec::with_capacity(list.len() + 1);
            longer.extend(list.iter().map(Arc::clone));
            longer.push(Arc::clone(&segment));
            longer
        });
    }

    /// Takes off the segments that end at or before `offset`, never the last one.
    pub fn take_before(&self, offset: u64) -> Vec<Arc<Segment>> {
        let before = self.list.rcu(|list| {
            let gone = gone_before(list, offset);
            list.iter().skip(gone).map(Arc::clone).collect::<Vec<_>>()
        });
        let gone = gone_before(&before, offset);
        before.iter().take(gone).map(Arc::clone).collect()
    }

    /// Takes off the segments that begin at or behind `offset`.
    pub fn take_from(&self, offset: u64) -> Vec<Arc<Segment>> {
        let keep = |segment: &&Arc<Segment>| segment.start() < offset;
        let before = self.list.rcu(|list| list.iter().filter(keep).map(Arc::clone).collect::<Vec<_>>());
        before.iter().filter(|segment| !keep(segment)).map(Arc::clone).collect()
    }
}

fn gone_before(list: &[Arc<Segment>], offset: u64) -> usize {
    let ended = list.iter().take_while(|segment| segment.end() <= offset).count();
    ended.min(list.len().saturating_sub(1))
}

fn find(list: &[Arc<Segment>], offset: u64) -> Option<&Arc<Segment>> {
    // Most reads are near the end.
    let last = list.last()?;
    if offset >= last.start() {
        return (offset < last.end()).then_some(last);
    }
    let index = list.partition_point(|segment| segment.start() <= offset).checked_sub(1)?;
    list.get(index).filter(|segment| offset < segment.end())
}

/// The files of `dir` whose names are segment offsets, sorted; other names are left alone. A folder that
/// does not exist has none.
pub fn list_files(dir: &Path) -> Result<Vec<SegmentFile>, StoreError> {
    let entries = match faults::look(Op::Open, dir, || std::fs::read_dir(dir)) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(StoreError::io("list", dir)(cause)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StoreError::io("list", dir))?;
        let name = entry.file_name();
        let Some(start) = name.to_str().and_then(parse_name) else { continue };
        let path = entry.path();
        let meta = entry.metadata().map_err(StoreError::io("inspect", &path))?;
        if meta.is_file() {
            files.push(SegmentFile { start, len: meta.len(), path });
        }
    }
    files.sort_by_key(|file| file.start);
    Ok(files)
}

fn parse_name(name: &str) -> Option<u64> {
    let digits = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
    if digits { name.parse().ok().filter(|start| *start <= START_MAX) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Allocate, SegmentWriter};

    fn row(dir: &Path, starts: &[u64]) -> Segments {
        let make = |start: &u64| {
            let writer = SegmentWriter::create(dir, *start, 4096, Allocate::Sparse).unwrap();
            Arc::clone(writer.segment())
        };
        Segments::new(starts.iter().map(make).collect())
    }

    fn starts(list: &[Arc<Segment>]) -> Vec<u64> {
        list.iter().map(|segment| segment.start()).collect()
    }

    #[test]
    fn an_offset_finds_its_segment() {
        let dir = tempfile::tempdir().unwrap();
        let row = row(dir.path(), &[8192, 12_288, 16_384]);
        let found = |offset| row.at(offset).map(|segment| segment.start());
        assert_eq!(found(8191), None);
        assert_eq!(found(8192), Some(8192));
        assert_eq!(found(12_287), Some(8192));
        assert_eq!(found(12_288), Some(12_288));
        assert_eq!(found(20_479), Some(16_384));
        assert_eq!(found(20_480), None);
    }

    #[test]
    fn the_last_segment_is_never_taken_off_the_front() {
        let dir = tempfile::tempdir().unwrap();
        let row = row(dir.path(), &[0, 4096, 8192]);
        assert_eq!(starts(&row.take_before(4095)), Vec::<u64>::new());
        assert_eq!(starts(&row.take_before(4096)), vec![0]);
        assert_eq!(starts(&row.take_before(u64::MAX)), vec![4096]);
        assert_eq!(starts(&row.snapshot()), vec![8192]);
    }

    #[test]
    fn segments_behind_the_end_are_taken_off_the_back() {
        let dir = tempfile::tempdir().unwrap();
        let row = row(dir.path(), &[0, 4096, 8192]);
        assert_eq!(starts(&row.take_from(4096)), vec![4096, 8192]);
        assert_eq!(starts(&row.snapshot()), vec![0]);
    }

    #[test]
    fn only_names_of_twenty_digits_are_segments() {
        let dir = tempfile::tempdir().unwrap();
        let far = ["18446744073709551615", "99999999999999999999", "09223372036854775807"];
        let odd = ["4096", "abort", "0000000000000000409x"];
        for name in ["00000000000000004096", "00000000000000000000"].into_iter().chain(far).chain(odd) {
            std::fs::write(dir.path().join(name), b"x").unwrap();
        }
        std::fs::create_dir(dir.path().join("00000000000000008192")).unwrap();
        let files = list_files(dir.path()).unwrap();
        assert_eq!(files.iter().map(|file| file.start).collect::<Vec<_>>(), vec![0, 4096]);
        assert_eq!(list_files(&dir.path().join("none")).unwrap(), vec![]);
    }
}
