//! The lock that keeps a second opener out of a store.
//!
//! Two locks: `flock` on the root folder keeps out the rest of this process, and the record lock on the file
//! `lock` keeps out other processes, a Java broker among them. The first is taken first, because closing any
//! handle of `lock` would give up the record lock of the whole process.
//!
//! Invariants:
//! - a process that dies loses both; nothing has to be cleaned up.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::error::StoreError;

/// The held lock; dropping it lets others in.
#[derive(Debug)]
pub struct ProcessLock {
    _file: File,
    dir: File,
}

impl ProcessLock {
    /// Takes the store in `dir` by its lock file `path`.
    pub fn take(dir: &Path, path: &Path) -> Result<ProcessLock, StoreError> {
        let locked = |holder| StoreError::Locked { dir: dir.to_path_buf(), holder };
        let folder = File::open(dir).map_err(StoreError::io("open", dir))?;
        match folder.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(holder(path))),
            Err(TryLockError::Error(cause)) => return Err(StoreError::io("lock", dir)(cause)),
        }
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(StoreError::io("open", path))?;
        let refused = |errno: rustix::io::Errno| match errno {
            rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN => locked(holder(path)),
            errno => StoreError::io("lock", path)(errno.into()),
        };
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(refused)?;
        file.write_all_at(b"lock", 0).map_err(StoreError::io("write", path))?;
        Ok(ProcessLock { _file: file, dir: folder })
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // A child process between fork and exec may still hold the folder's handle, so closing ours is not
        // enough.
        if let Err(error) = self.dir.unlock() {
            tracing::warn!(%error, "the store's folder stays locked");
        }
    }
}

/// The process that holds a record lock on the file, as the system lists it.
fn holder(path: &Path) -> Option<i32> {
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::metadata(path).ok()?.ino().to_string();
    let list = std::fs::read_to_string("/proc/locks").ok()?;
    // "1: POSIX  ADVISORY  WRITE 4711 08:01:12345 0 0"
    let line = list.lines().find(|line| line.contains("POSIX") && line.contains(&format!(":{inode} ")))?;
    line.split_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_opens_once_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = ProcessLock::take(dir.path(), &path).unwrap();
        let second = ProcessLock::take(dir.path(), &path).unwrap_err();
        assert!(matches!(second, StoreError::Locked { holder: Some(_), .. }), "{second}");
        drop(lock);
        ProcessLock::take(dir.path(), &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"lock");
    }
}
