//! What can go wrong in the store, with the file and the numbers an operator needs.
//!
//! Invariants:
//! - an error names the file or folder it is about;
//! - nobody decides by an error's text: causes that ask for different answers are different variants.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

/// Failure of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("cannot {op} {}: {cause}", file.display())]
    Io {
        /// What was tried, as a verb.
        op: &'static str,
        /// File or folder it was tried on.
        file: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// A part of a file cannot be read.
    #[error("cannot read {}: {cause}, at byte {at}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// First byte of the part.
        at: u64,
        /// The system's answer.
        cause: io::Error,
    },
    /// The operating system has no blocks for a file that grows.
    #[error("cannot reserve {} for {}: {cause}", Size(*bytes), file.display())]
    Reserve {
        /// The file.
        file: PathBuf,
        /// How much was wanted.
        bytes: u64,
        /// The system's answer.
        cause: io::Error,
    },
    /// A file holds what no writer of this format leaves behind.
    #[error("{} is damaged at byte {at}: {why}", file.display())]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// Byte position in the file.
        at: u64,
        /// What was expected there.
        why: &'static str,
    },
    /// Less space is free than the configuration wants to keep.
    #[error("disk full: free {} < floor {} on {}", Size(*free_bytes), Size(*floor_bytes), dir.display())]
    DiskFull {
        /// Folder on the full file system.
        dir: PathBuf,
        /// Bytes an unprivileged process can still write.
        free_bytes: u64,
        /// Bytes that have to stay free.
        floor_bytes: u64,
    },
    /// The used part of the file system is above the warning level.
    #[error("disk full: {used_percent} % used > limit {limit_percent} % on {}", dir.display())]
    DiskRatio {
        /// Folder on the full file system.
        dir: PathBuf,
        /// Used part in percent.
        used_percent: u8,
        /// Configured limit in percent.
        limit_percent: u8,
    },
    /// What derives from the log has no room to grow.
    #[error("disk full: {cause}")]
    NoRoom {
        /// The first refusal of the system.
        cause: Arc<str>,
    },
    /// Another process has the store open.
    #[error("the store {} is open in another process{}", dir.display(), Holder(*holder))]
    Locked {
        /// Root folder of the store.
        dir: PathBuf,
        /// Process id of the holder, where the system tells it.
        holder: Option<i32>,
    },
    /// A flush failed before: nothing may be written until the store is opened again.
    #[error("the store takes no more writes: {cause}")]
    Poisoned {
        /// The first failure.
        cause: Arc<str>,
    },
    /// A setting is outside its bounds, or does not fit the files that exist.
    #[error("setting {key}: {why}")]
    Config {
        /// Java's name of the setting.
        key: &'static str,
        /// What is wrong, with the bound.
        why: String,
    },
    /// A record or batch cannot be stored at any position.
    #[error("{what} of {len} bytes is longer than {max}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The longest allowed.
        max: u64,
    },
    /// A table is full.
    #[error("there are {max} {what}, and may not be more")]
    TooMany {
        /// What there are too many of, with the setting that limits them.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// The preparer has not delivered the next segment in time.
    #[error("no segment for byte {log_offset} after {waited_ms} ms")]
    NotPrepared {
        /// Start of the wanted segment.
        log_offset: u64,
        /// How long the log has waited.
        waited_ms: u64,
    },
}

impl StoreError {
    /// Makes the error of a refused system call; for `map_err`.
    pub fn io(op: &'static str, file: &Path) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let file = file.to_path_buf();
        move |cause| StoreError::Io { op, file, cause }
    }

    /// Makes the error of a part of a file, from byte `at` on, that the system does not read; for `map_err`.
    pub fn read(file: &Path, at: u64) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let file = file.to_path_buf();
        move |cause| StoreError::Read { file, at, cause }
    }

    /// The file or folder that cannot be read, if the cause lies in it alone: its disk, its rights, or what it is. Not
    /// where the process or the machine has too little of something.
    pub fn unreadable(&self) -> Option<&Path> {
        const OF_FILE: [Errno; 9] = [
            Errno::IO,
            Errno::ACCESS,
            Errno::PERM,
            Errno::NXIO,
            Errno::NODATA,
            Errno::UCLEAN,
            Errno::ISDIR,
            Errno::NOTDIR,
            Errno::LOOP,
        ];
        let (StoreError::Io { file, cause, .. }
        | StoreError::Read { file, cause, .. }
        | StoreError::Reserve { file, cause, .. }) = self
        else {
            return None;
        };
        let is_of_file = Errno::from_io_error(cause).is_some_and(|errno| OF_FILE.contains(&errno));
        (is_of_file || cause.kind() == io::ErrorKind::UnexpectedEof).then_some(file)
    }

    /// The file that the system refused something for.
    pub fn file(&self) -> Option<&Path> {
        match self {
            StoreError::Io { file, .. }
            | StoreError::Read { file, .. }
            | StoreError::Reserve { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Whether the cause is a lack of space, so that it may heal by itself.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            StoreError::DiskFull { .. } | StoreError::DiskRatio { .. } | StoreError::NoRoom { .. } => true,
            StoreError::Io { cause, .. } | StoreError::Reserve { cause, .. } => {
                matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

/// Prints bytes with one decimal and a binary unit.
pub(crate) struct Size(pub(crate) u64);

impl std::fmt::Display for Size {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (unit, name) in UNITS {
            if self.0 >= unit {
                let tenths = u128::from(self.0) * 10 / u128::from(unit);
                return write!(out, "{}.{} {name}", tenths / 10, tenths % 10);
            }
        }
        write!(out, "{} B", self.0)
    }
}

/// Prints the process that holds a lock, if known.
struct Holder(Option<i32>);

impl std::fmt::Display for Holder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(out, " (process {pid})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_with_both_numbers_and_the_folder() {
        let error =
            StoreError::DiskFull { dir: "/data".into(), free_bytes: 1_288_490_189, floor_bytes: 5 << 30 };
        assert_eq!(error.to_string(), "disk full: free 1.2 GiB < floor 5.0 GiB on /data");
        assert!(error.is_out_of_space());
    }

    #[test]
    fn a_damaged_file_is_told_with_its_position() {
        let error = StoreError::Corrupt { file: "/s/commitlog/0".into(), at: 17, why: "no magic" };
        assert_eq!(error.to_string(), "/s/commitlog/0 is damaged at byte 17: no magic");
    }

    #[test]
    fn a_part_that_cannot_be_read_is_told_with_its_place_and_cause() {
        let error = StoreError::read("/s/commitlog/0".as_ref(), 8192)(io::Error::from_raw_os_error(5));
        let told = error.to_string();
        assert!(
            told.starts_with("cannot read /s/commitlog/0: ") && told.ends_with(", at byte 8192"),
            "{told}"
        );
        assert_eq!(error.unreadable(), Some(Path::new("/s/commitlog/0")));
    }

    #[test]
    fn what_the_process_lacks_is_not_laid_on_the_file() {
        let error = |errno| StoreError::io("open", Path::new("/x"))(io::Error::from_raw_os_error(errno));
        for (errno, is_of_file) in [(5, true), (13, true), (12, false), (23, false), (24, false), (28, false)]
        {
            assert_eq!(error(errno).unreadable(), is_of_file.then_some(Path::new("/x")), "{errno}");
        }
    }

    #[test]
    fn a_refusal_for_lack_of_space_is_recognised_by_its_kind() {
        let full = StoreError::io("write", Path::new("/x"))(io::Error::from_raw_os_error(28));
        let broken = StoreError::io("write", Path::new("/x"))(io::Error::from_raw_os_error(5));
        assert!(full.is_out_of_space());
        assert!(!broken.is_out_of_space());
    }
}
