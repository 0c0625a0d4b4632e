//! Places where tests let the operating system refuse, or let the process die.
//!
//! Invariants:
//! - each call that changes a file or forces it to the disk passes one of these places first, and so does each that
//!   opens or reads what a start could do without;
//! - a fault belongs to the store in one folder: tests that run at once do not meet;
//! - a build without the features `testing` and `crash-points` has none of this: the places are empty functions.
//!
//! | feature | what a place can do | who asks for it |
//! |---|---|---|
//! | `testing` | refuse, do half and refuse, or wait | a test of the same process, with `arm` and `hold_up` |
//! | `crash-points` | end the process as `kill -9` does, or refuse | `tests/crash`, by the environment: `crash.rs` |

#[cfg(any(test, feature = "crash-points"))]
mod crash;
#[cfg(any(test, feature = "testing"))]
mod disk;
#[cfg(any(test, feature = "testing"))]
mod refusal;

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::retention::DiskUse;

#[cfg(any(test, feature = "testing"))]
pub use self::disk::{Pretended, pretend_disk};
#[cfg(any(test, feature = "testing"))]
pub use self::refusal::{Fault, HeldUp, arm, arm_once, forget, hold_up};

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
    /// A file is removed.
    Remove,
    /// Bytes are stored through a map, which cannot be refused.
    Store,
    /// A file is opened, or a folder listed, to be read.
    Open,
    /// Bytes are read.
    Read,
}

/// What a process does with its store: a moment can be one of a start or of an orderly stop alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It recovers, and serves nobody yet.
    Start,
    /// It serves.
    Serve,
    /// It stops in order.
    Stop,
}

/// Says that the process has come to a phase; it begins with the start.
#[inline(always)]
pub fn enter(phase: Phase) {
    #[cfg(feature = "crash-points")]
    crash::enter(phase);
    let _unused = phase;
}

/// A moment of an operation at which the process can die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    /// Half of it is done.
    Midst,
    After,
}

/// Does `act` to the file or folder `path`.
#[inline(always)]
pub(crate) fn pass<T>(op: Op, path: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    refusal(op, path)?;
    moment(When::Before, op, path);
    let done = act()?;
    moment(When::After, op, path);
    Ok(done)
}

/// Writes all of `bytes` at `at`.
pub(crate) fn write_at(file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
    write_pieces_at(file, path, &mut [IoSlice::new(bytes)], at)
}

/// Writes all of `pieces`, one behind the other, from `at` on. A fault leaves half of their bytes written, as a full or
/// dying disk does.
pub(crate) fn write_pieces_at(
    file: &File,
    path: &Path,
    pieces: &mut [IoSlice<'_>],
    at: u64,
) -> io::Result<()> {
    let whole = || pieces.iter().map(|piece| &**piece).collect::<Vec<&[u8]>>().concat();
    if let Err(refused) = refusal(Op::Write, path) {
        let whole = whole();
        file.write_all_at(&whole[..whole.len() / 2], at)?;
        return Err(refused);
    }
    moment(When::Before, Op::Write, path);
    if cfg!(feature = "crash-points") {
        let whole = whole();
        let (front, back) = whole.split_at(whole.len() / 2);
        file.write_all_at(front, at)?;
        moment(When::Midst, Op::Write, path);
        file.write_all_at(back, at + front.len() as u64)?;
    } else {
        write_all_at(file, pieces, at)?;
    }
    moment(When::After, Op::Write, path);
    Ok(())
}

/// Writes until all is written.
fn write_all_at(file: &File, mut pieces: &mut [IoSlice<'_>], mut at: u64) -> io::Result<()> {
    // Those in front that are empty are passed over.
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match rustix::io::pwritev(file, pieces, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                at += written as u64;
                IoSlice::advance_slices(&mut pieces, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Does `act`, which opens or reads `path`: there is nothing that a death could leave half done.
#[inline(always)]
pub(crate) fn look<T>(op: Op, path: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    refusal(op, path)?;
    act()
}

/// Whether a test wants such an operation to be refused or held up: then nobody may go by what the system has in
/// memory.
#[inline(always)]
pub(crate) fn is_armed(op: Op, path: &Path) -> bool {
    #[cfg(any(test, feature = "testing"))]
    return refusal::is_armed(op, path);
    #[cfg(not(any(test, feature = "testing")))]
    {
        let _unused = (op, path);
        false
    }
}

/// Does `act`, which stores through a map of `path`.
#[inline(always)]
pub(crate) fn store<T>(path: &Path, act: impl FnOnce() -> T) -> T {
    moment(When::Before, Op::Store, path);
    let done = act();
    moment(When::After, Op::Store, path);
    done
}

/// The numbers of a disk, if a test has put some in.
#[inline(always)]
pub(crate) fn disk(dir: &Path) -> Option<DiskUse> {
    #[cfg(any(test, feature = "testing"))]
    return disk::disk_of(dir);
    #[cfg(not(any(test, feature = "testing")))]
    {
        let _unused = dir;
        None
    }
}

/// Refuses if a test wants it so.
#[inline(always)]
fn refusal(op: Op, path: &Path) -> io::Result<()> {
    #[cfg(any(test, feature = "testing"))]
    refusal::at(op, path)?;
    #[cfg(feature = "crash-points")]
    crash::refusal(op, path)?;
    let _unused = (op, path);
    Ok(())
}

/// Dies if a test wants it so.
#[inline(always)]
fn moment(when: When, op: Op, path: &Path) {
    #[cfg(feature = "crash-points")]
    crash::at(when, op, path);
    let _unused = (when, op, path);
}
