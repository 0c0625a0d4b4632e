//! The log's files as they are found, before anything is known of their content.
//!
//! Invariants:
//! - the size of a segment is read from the files; the configuration rules over new logs only;
//! - a last file that a crash left short is completed, one of no length is removed; any other file of another
//!   size, and a missing one in the middle, is refused by name: guessing would lose messages.

use std::path::Path;

use crate::config::SEGMENT_MIN_BYTES;
use crate::error::StoreError;
use crate::segment::{Allocate, SegmentWriter};
use crate::segments::{SegmentFile, list_files};

/// The mapped files of a log.
#[derive(Debug)]
pub struct LogFiles {
    /// Sorted, without gaps, with nothing published.
    pub segments: Vec<SegmentWriter>,
    /// Size of each.
    pub segment_bytes: u64,
}

/// Opens the segments in `dir`; `new_bytes` is the size for a log that has none.
pub fn load(dir: &Path, new_bytes: u64) -> Result<LogFiles, StoreError> {
    let mut files = list_files(dir)?;
    if files.last().is_some_and(|last| last.len == 0) {
        let last = files.pop().expect("a last file was just seen");
        crate::paths::remove(&last.path)?;
    }
    let segment_bytes = segment_bytes(&files, new_bytes);
    check(&files, segment_bytes)?;
    let open = |file: &SegmentFile| {
        if file.len < segment_bytes {
            return SegmentWriter::create(dir, file.start, segment_bytes, Allocate::Now);
        }
        SegmentWriter::open(&file.path, file.start, segment_bytes)
    };
    let segments = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    Ok(LogFiles { segments, segment_bytes })
}

/// The size of the log's segments. Where there are two, the first name step tells it, else the first file's
/// length; the only file of a log may be one that a crash left short.
fn segment_bytes(files: &[SegmentFile], new_bytes: u64) -> u64 {
    match files {
        [] => new_bytes,
        [only] if only.len < new_bytes && !can_be_segment(only) => new_bytes,
        [first, ..] => first.len,
    }
}

/// Whether a file of this name and length can be a whole segment.
fn can_be_segment(file: &SegmentFile) -> bool {
    file.len >= SEGMENT_MIN_BYTES && file.len.is_multiple_of(4096) && file.start.is_multiple_of(file.len)
}

fn check(files: &[SegmentFile], segment_bytes: u64) -> Result<(), StoreError> {
    let mut before: Option<&SegmentFile> = None;
    for (index, file) in files.iter().enumerate() {
        let is_last = index + 1 == files.len();
        let corrupt = |why| Err(StoreError::Corrupt { file: file.path.clone(), at: 0, why });
        if file.len > segment_bytes || (file.len < segment_bytes && !is_last) {
            return corrupt("its size differs from the first segment's");
        }
        if !file.start.is_multiple_of(segment_bytes) {
            return corrupt("its name is no multiple of the segment size");
        }
        if before.is_some_and(|before| before.start + segment_bytes != file.start) {
            return corrupt("the segment before it is missing");
        }
        before = Some(file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::segment_name;

    fn folder(files: &[(u64, usize)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (start, len) in files {
            std::fs::write(dir.path().join(segment_name(*start)), vec![0; *len]).unwrap();
        }
        dir
    }

    #[test]
    fn sizes_are_read_from_the_files() {
        let dir = folder(&[(65_536, 65_536), (131_072, 65_536)]);
        let found = load(dir.path(), 1 << 30).unwrap();
        assert_eq!((found.segments.len(), found.segment_bytes), (2, 65_536));
        let empty = folder(&[]);
        assert_eq!(load(empty.path(), 1 << 30).unwrap().segment_bytes, 1 << 30);
    }

    #[test]
    fn an_only_file_that_a_crash_left_short_does_not_set_the_size() {
        for (start, len) in [(0, 4096), (0, 65_537), (0, 100_000), (1 << 20, 65_540)] {
            let found = load(folder(&[(start, len)]).path(), 1 << 20).unwrap();
            assert_eq!(
                (found.segment_bytes, found.segments[0].remaining()),
                (1 << 20, 1 << 20),
                "{start} {len}"
            );
        }
    }

    #[test]
    fn a_last_file_that_a_crash_left_short_is_completed() {
        let dir = folder(&[(0, 65_536), (65_536, 100)]);
        let found = load(dir.path(), 1 << 30).unwrap();
        assert_eq!(found.segments[1].remaining(), 65_536);
        let empty = folder(&[(0, 65_536), (65_536, 0)]);
        assert_eq!(load(empty.path(), 1 << 30).unwrap().segments.len(), 1);
        assert!(!empty.path().join(segment_name(65_536)).try_exists().unwrap());
    }

    #[test]
    fn a_missing_or_strange_file_is_refused_by_name() {
        for files in [
            [(0, 65_536), (131_072, 65_536)],
            [(0, 65_536), (65_536, 70_000)],
            [(7, 65_536), (65_543, 65_536)],
        ] {
            let error = load(folder(&files).path(), 1 << 30).unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        }
    }
}
