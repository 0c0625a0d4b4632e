//! The file `abort`: it exists while a store is open, so that finding it tells of a crash.
//!
//! Invariants:
//! - it goes only when every derived file is complete and on the disk; else it stays, and the next open recovers.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::paths::{remove, sync_dir};

/// The mark of an open store. Dropping it leaves the file, as a crash does.
#[derive(Debug)]
pub struct AbortMark {
    path: PathBuf,
}

impl AbortMark {
    /// Whether the last user of the store has not closed it.
    pub fn is_set(path: &Path) -> Result<bool, StoreError> {
        path.try_exists().map_err(StoreError::io("look for", path))
    }

    /// Sets the mark, with the process id in it as Java does.
    pub fn set(path: &Path) -> Result<AbortMark, StoreError> {
        let create = || File::create(path);
        let file = faults::pass(Op::Create, path, create).map_err(StoreError::io("create", path))?;
        // The file itself is the mark. On a full disk it stays empty: that is no reason not to start.
        let written = faults::write_at(&file, path, std::process::id().to_string().as_bytes(), 0);
        match written.map_err(StoreError::io("write", path)) {
            Err(error) if error.is_out_of_space() => tracing::warn!(%error, "the abort mark stays empty"),
            written => written?,
        }
        if let Some(dir) = path.parent() {
            sync_dir(dir)?;
        }
        Ok(AbortMark { path: path.to_path_buf() })
    }

    /// Takes the mark off: the store is closed and whole.
    pub fn clear(self) -> Result<(), StoreError> {
        remove(&self.path)?;
        self.path.parent().map_or(Ok(()), sync_dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_full_disk_the_mark_is_set_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abort");
        let _full = faults::arm(&path, Op::Write, 0, 28);
        AbortMark::set(&path).unwrap();
        assert!(AbortMark::is_set(&path).unwrap());
    }

    #[test]
    fn only_a_cleared_mark_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abort");
        assert!(!AbortMark::is_set(&path).unwrap());
        drop(AbortMark::set(&path).unwrap());
        assert!(AbortMark::is_set(&path).unwrap());
        AbortMark::set(&path).unwrap().clear().unwrap();
        assert!(!AbortMark::is_set(&path).unwrap());
    }
}
