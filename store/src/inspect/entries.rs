//! The entries of the index files as they lie on the disk, in their order.
//!
//! Invariants:
//! - nothing is written;
//! - a file whose entries cannot be told from its slots is named, never guessed at.

use std::path::Path;

use crate::error::StoreError;
use crate::index::{ENTRIES_AT_ONCE, Geometry, IndexFile};

/// An entry as it lies on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredEntry<'a> {
    /// The file it stands in.
    pub file: &'a Path,
    /// Its number in the file; the first is 1.
    pub number: u32,
    /// Hash of topic and key.
    pub hash: u32,
    /// Where its record is.
    pub log_offset: u64,
    /// Store time of its record, epoch ms: that of the file's first one and whole seconds.
    pub store_ms: i64,
    /// Number of the next older entry of its chain; 0 = none.
    pub older: u32,
}

/// Hands every entry of the files in `dir` to `visit`, oldest file first, until it answers false; and to `unknown`
/// every file that is of none of the `known` geometries and does not show its own.
pub(super) fn each(
    dir: &Path,
    known: &[Geometry],
    mut visit: impl FnMut(&StoredEntry<'_>) -> bool,
    mut unknown: impl FnMut(&Path),
) -> Result<(), StoreError> {
    let mut known = known.to_vec();
    for path in crate::index::list(dir)? {
        let Some(file) = IndexFile::open_any(path.clone(), &known)? else {
            unknown(&path);
            continue;
        };
        known.push(file.geometry());
        known.dedup();
        if !each_of(&file, &mut visit)? {
            break;
        }
    }
    Ok(())
}

/// The same for one file; whether it goes on with the next.
fn each_of(file: &IndexFile, visit: &mut impl FnMut(&StoredEntry<'_>) -> bool) -> Result<bool, StoreError> {
    let begin_ms = file.header().begin_ms;
    for number in 1..file.entries() {
        if number % ENTRIES_AT_ONCE == 1 {
            file.ready_entries(number)?;
        }
        let entry = file.entry(number);
        let goes_on = visit(&StoredEntry {
            file: file.path(),
            number,
            hash: entry.hash,
            log_offset: entry.log_offset,
            store_ms: begin_ms.saturating_add(i64::from(entry.seconds.cast_signed()) * 1000),
            older: entry.older,
        });
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}
