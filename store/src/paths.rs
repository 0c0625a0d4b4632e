//! Where each file of a store lies below its root folder (RocketMQ: `StorePathConfigHelper`).
//!
//! Invariants:
//! - folders that Java reads hold nothing but Java's files; our own files have places Java does not look at.

use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::faults::{self, Op};

/// The layout below a root folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// The layout below `root`.
    pub fn below(root: impl Into<PathBuf>) -> Paths {
        Paths { root: root.into() }
    }

    /// The root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Segments of the log.
    pub fn commit_log(&self) -> PathBuf {
        self.root.join("commitlog")
    }

    /// Consume queues, by topic and queue id.
    pub fn consume_queue(&self) -> PathBuf {
        self.root.join("consumequeue")
    }

    /// Extensions of consume queues.
    pub fn consume_queue_extension(&self) -> PathBuf {
        self.root.join("consumequeue_ext")
    }

    /// Batch consume queues.
    pub fn batch_consume_queue(&self) -> PathBuf {
        self.root.join("batchconsumequeue")
    }

    /// Index files.
    pub fn index(&self) -> PathBuf {
        self.root.join("index")
    }

    /// JSON tables.
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// How far each file was on the disk.
    pub fn checkpoint(&self) -> PathBuf {
        self.root.join("checkpoint")
    }

    /// Exists while the store is open.
    pub fn abort(&self) -> PathBuf {
        self.root.join("abort")
    }

    /// Locked while the store is open.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Expired segments that wait to be used again; unknown to Java.
    pub fn recycled(&self) -> PathBuf {
        self.root.join("recycled")
    }

    /// Makes the folders a running store needs. The disk has their names with that of the abort mark, which is set
    /// before anything is written below them.
    pub fn create(&self) -> Result<(), StoreError> {
        for dir in [self.commit_log(), self.consume_queue(), self.index(), self.config()] {
            create_dir(&dir)?;
        }
        Ok(())
    }
}

/// Makes a folder and those above it, where they are not there.
pub(crate) fn create_dir(dir: &Path) -> Result<(), StoreError> {
    faults::pass(Op::Create, dir, || std::fs::create_dir_all(dir)).map_err(StoreError::io("create", dir))
}

/// Removes a file; one that is gone already is no failure.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match faults::pass(Op::Remove, path, || std::fs::remove_file(path)) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path)(cause))
        }
        _ => Ok(()),
    }
}

/// Has the disk take the names in `dir`.
pub fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    let opened = std::fs::File::open(dir).map_err(StoreError::io("open", dir))?;
    faults::pass(Op::Flush, dir, || opened.sync_all()).map_err(StoreError::io("flush", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_a_new_store_are_made_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path().join("deep/store"));
        paths.create().unwrap();
        assert!(paths.commit_log().is_dir());
        assert!(paths.config().is_dir());
        paths.create().unwrap();
    }
}
