//! The file `abort`: it exists while a store is open, so that finding it tells of a crash.
//!
//! Invariants:
//! - it goes only when every derived file is complete and on the disk; else it stays, and the next open recovers.

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
        let write = || std::fs::write(path, std::process::id().to_string());
        faults::pass(Op::Create, path, write).map_err(StoreError::io("write", path))?;
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
