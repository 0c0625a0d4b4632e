//! Where each file of a store lies below its root folder (RocketMQ: `StorePathConfigHelper`).
//!
//! Invariants:
//! - folders that Java reads hold nothing but Java's files; our own files have places Java does not look at.

use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::index;

/// Name of the check point of the timers, which lies among the tables.
pub(crate) const TIMER_CHECKPOINT: &str = "timercheck";

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
        self.root.join(index::FOLDER)
    }

    /// JSON tables.
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// Timers by the slot in which they are due.
    pub fn timer_wheel(&self) -> PathBuf {
        self.root.join("timerwheel")
    }

    /// Segments of the log of the timers.
    pub fn timer_log(&self) -> PathBuf {
        self.root.join("timerlog")
    }

    /// How far the timers are delivered: the one file beside the tables that is no JSON.
    pub fn timer_checkpoint(&self) -> PathBuf {
        self.config().join(TIMER_CHECKPOINT)
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

    /// Derived files that could not be read, out of the way; unknown to Java.
    pub fn unreadable(&self) -> PathBuf {
        self.root.join("unreadable")
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

/// What the name of a folder ends with that could not be read. No topic has a dot in its name.
pub(crate) const UNREADABLE: &str = ".unreadable";
/// Files and folders that are put aside in one go, and of one name.
const ASIDE_MAX: usize = 1_000;

/// Does `act`, and again whenever it meets a file or folder that cannot be read: that is put aside before.
///
/// # Errors
/// Any other error, and that of a file that cannot be put aside either.
pub(crate) fn without_unreadable<T>(
    root: &Path,
    mut act: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    for _ in 0..ASIDE_MAX {
        match act() {
            Err(error) => put_aside(root, error)?,
            done => return done,
        }
    }
    act()
}

/// Takes the derived file or folder that cannot be read out of the way. It is not deleted: somebody may want to know
/// what was wrong with it, and the broken blocks of a disk must not be given to the file that is made in its place.
///
/// # Errors
/// The same error, if it is about something else or the file stays where it is.
pub(crate) fn put_aside(root: &Path, error: StoreError) -> Result<(), StoreError> {
    let of_log = Paths::below(root).commit_log();
    // The log is no derived file, and nobody makes it anew.
    let Some(path) = error.unreadable().filter(|path| !path.starts_with(&of_log)) else { return Err(error) };
    match aside(root, path) {
        Some(to) => {
            tracing::warn!(file = %path.display(), %error, to = %to.display(), "put aside and made anew");
            Ok(())
        }
        None => Err(error),
    }
}

/// Moves it; answers where to. Java takes every file beside a queue or index for one of theirs, so files go to a folder
/// that it does not know; a folder stays beside, as who may not read it may not move it elsewhere.
fn aside(root: &Path, path: &Path) -> Option<PathBuf> {
    let name = path.strip_prefix(root).ok()?.to_str()?.replace('/', "+");
    let beside = if path.is_dir() { path.to_path_buf() } else { Paths::below(root).unreadable().join(name) };
    create_dir(beside.parent()?).ok()?;
    let numbered = |number| match number {
        0 => named(&beside, UNREADABLE),
        _ => named(&beside, &format!(".{number}{UNREADABLE}")),
    };
    let free = (0..ASIDE_MAX).map(numbered).find(|to| !to.try_exists().unwrap_or(true))?;
    let moved = faults::pass(Op::Rename, path, || std::fs::rename(path, &free));
    moved.is_ok().then_some(free)
}

/// The path with an ending.
fn named(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(ending);
    name.into()
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
    fn what_cannot_be_read_is_put_aside_under_a_name_of_its_own_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let error =
            |file: &Path, errno| StoreError::io("read", file)(std::io::Error::from_raw_os_error(errno));
        let (file, folder) = (root.join("index/7"), root.join("queues/T"));
        for turn in 0..2 {
            for path in [&file, &folder.join("0/1")] {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, [turn]).unwrap();
            }
            put_aside(root, error(&file, 5)).unwrap();
            put_aside(root, error(&folder, 13)).unwrap();
        }
        for (path, wanted) in [
            ("unreadable/index+7.unreadable", 0),
            ("unreadable/index+7.1.unreadable", 1),
            ("queues/T.unreadable/0/1", 0),
            ("queues/T.1.unreadable/0/1", 1),
        ] {
            assert_eq!(std::fs::read(root.join(path)).unwrap(), [wanted], "{path}");
        }
        std::fs::write(&file, "sound").unwrap();
        assert!(put_aside(root, error(&file, 24)).is_err() && file.is_file());
        assert!(put_aside(root, error(&root.join("none"), 5)).is_err());
        let log = root.join("commitlog/0");
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        std::fs::write(&log, "messages").unwrap();
        assert!(put_aside(root, error(&log, 5)).is_err() && log.is_file(), "the log is never put aside");
    }

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
