//! The numbers of a disk, as a test wants them.
//!
//! Invariants:
//! - they hold until their handle is dropped, for the folder they were given for and what is below it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use dashmap::DashMap;

use crate::retention::DiskUse;

static DISKS: LazyLock<DashMap<PathBuf, DiskUse>> = LazyLock::new(DashMap::new);

/// A disk whose numbers a test has put in; gone when dropped.
#[derive(Debug)]
pub struct Pretended(PathBuf);

/// Has the disk of `dir` and what is below look like this.
pub fn pretend_disk(dir: &Path, disk: DiskUse) -> Pretended {
    DISKS.insert(dir.to_path_buf(), disk);
    Pretended(dir.to_path_buf())
}

impl Pretended {
    /// Has it look otherwise from now on.
    pub fn look_like(&self, disk: DiskUse) {
        DISKS.insert(self.0.clone(), disk);
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        DISKS.remove(&self.0);
    }
}

/// The numbers that a test wants for a folder.
pub(crate) fn disk_of(dir: &Path) -> Option<DiskUse> {
    DISKS.iter().find(|disk| dir.starts_with(disk.key())).map(|disk| *disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_looks_as_a_test_wants_it_until_that_is_over() {
        let mut disk = DiskUse { free_bytes: 7, used_percent: 99 };
        let pretended = pretend_disk(Path::new("/none/disk"), disk);
        assert_eq!(disk_of(Path::new("/none/disk")), Some(disk));
        disk.used_percent = 98;
        pretended.look_like(disk);
        assert_eq!(disk_of(Path::new("/none/disk/x")), Some(disk));
        assert_eq!(disk_of(Path::new("/none")), None);
        drop(pretended);
        assert_eq!(disk_of(Path::new("/none/disk/x")), None);
    }
}
