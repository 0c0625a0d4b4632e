//! Places where tests let the operating system refuse.
//!
//! In a build without the feature `testing` every place is an empty function.
//!
//! Invariants:
//! - each call that changes a file or forces it to the disk passes one of these places first;
//! - a fault belongs to the store in one folder: tests that run at once do not meet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// A file or folder is made or opened for writing.
    Create,
    /// A file gets its blocks or its length.
    Allocate,
    /// Bytes are written.
    Write,
    /// A file or folder is forced to the disk.
    Flush,
    /// A file gets another name.
    Rename,
}

/// Refuses if a test wants it so.
#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub(crate) fn at(_op: Op, _path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(any(test, feature = "testing"))]
pub(crate) use self::armed::at;
#[cfg(any(test, feature = "testing"))]
pub use self::armed::{Fault, arm};

/// Writes all of `bytes` at `at`. A fault leaves half of them written, as a full or dying disk does.
pub(crate) fn write_at(file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
    if let Err(refused) = self::at(Op::Write, path) {
        file.write_all_at(&bytes[..bytes.len() / 2], at)?;
        return Err(refused);
    }
    file.write_all_at(bytes, at)
}

#[cfg(any(test, feature = "testing"))]
mod armed {
    use std::path::PathBuf;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use dashmap::DashMap;

    use super::{Op, Path, io};

    static PLANS: LazyLock<DashMap<PathBuf, Plan>> = LazyLock::new(DashMap::new);

    #[derive(Debug)]
    struct Plan {
        op: Op,
        nth: u64,
        errno: i32,
        seen: AtomicU64,
    }

    /// A fault that waits for its moment; gone when dropped.
    #[derive(Debug)]
    pub struct Fault {
        dir: PathBuf,
    }

    /// Lets the `nth` operation of kind `op` below `dir` fail with `errno`, and all after it.
    pub fn arm(dir: &Path, op: Op, nth: u64, errno: i32) -> Fault {
        PLANS.insert(dir.to_path_buf(), Plan { op, nth, errno, seen: AtomicU64::new(0) });
        Fault { dir: dir.to_path_buf() }
    }

    impl Fault {
        /// Whether it has come to pass.
        pub fn has_struck(&self) -> bool {
            PLANS.get(&self.dir).is_some_and(|plan| plan.seen.load(Ordering::Relaxed) > plan.nth)
        }
    }

    impl Drop for Fault {
        fn drop(&mut self) {
            PLANS.remove(&self.dir);
        }
    }

    /// Refuses if a test wants it so.
    pub(crate) fn at(op: Op, path: &Path) -> io::Result<()> {
        for plan in PLANS.iter().filter(|plan| plan.op == op && path.starts_with(plan.key())) {
            if plan.seen.fetch_add(1, Ordering::Relaxed) >= plan.nth {
                return Err(io::Error::from_raw_os_error(plan.errno));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_from_its_turn_on_and_only_in_its_folder() {
        let fault = arm(Path::new("/none/a"), Op::Flush, 2, 5);
        let hit = |op, path| at(op, Path::new(path)).is_err();
        assert!(!hit(Op::Flush, "/none/a/x"));
        assert!(!hit(Op::Write, "/none/a/x"));
        assert!(!hit(Op::Flush, "/none/b/x"));
        assert!(!hit(Op::Flush, "/none/a/x"));
        assert!(!fault.has_struck());
        assert!(hit(Op::Flush, "/none/a/x"));
        assert!(fault.has_struck());
        assert!(hit(Op::Flush, "/none/a/y"));
        drop(fault);
        assert!(!hit(Op::Flush, "/none/a/x"));
    }
}
