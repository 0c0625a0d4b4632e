//! Reads that wait for no disk.
//!
//! Invariants:
//! - bytes are copied out of what the system has in memory, or it is said that they are not there: no page is touched
//!   through a map, so an error of the disk ends no process;
//! - while a test refuses reads of a file, or holds them up, nothing of it is in memory.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::{Errno, ReadWriteFlags};

use crate::faults::{self, Op};

/// It must be read from the disk first, by somebody who may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold;

/// Fills `bytes` with what stands at `at` of a file. `is_resident` says whether that is in memory, where the file
/// system cannot.
pub(crate) fn read_now(
    (file, path): (&File, &Path),
    bytes: &mut [u8],
    at: u64,
    is_resident: impl FnOnce() -> bool,
) -> Result<(), Cold> {
    if faults::is_armed(Op::Read, path) {
        return Err(Cold);
    }
    let len = bytes.len();
    let is_read = match rustix::io::preadv2(file, &mut [IoSliceMut::new(bytes)], at, ReadWriteFlags::NOWAIT) {
        Ok(read) => read == len,
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            is_resident() && file.read_exact_at(bytes, at).is_ok()
        }
        // What it is, is told to who waits for the disk.
        Err(_) => false,
    };
    if is_read { Ok(()) } else { Err(Cold) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{evict, until};

    #[test]
    fn what_is_in_memory_is_read_and_what_is_not_is_cold_or_read_where_nothing_is_ever_evicted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [7; 20_000]).unwrap();
        let file = File::open(&path).unwrap();
        let mut bytes = [0; 100];
        let read = |bytes: &mut [u8], at| read_now((&file, &path), bytes, at, || true);
        // The system may take a page at any time.
        until("what was read is in memory", || {
            std::fs::read(&path).unwrap();
            read(&mut bytes, 4_050).is_ok()
        });
        assert_eq!(bytes, [7; 100]);
        assert_eq!(read(&mut bytes, 19_950), Err(Cold), "the file ends");
        let forgotten = faults::forget(dir.path());
        assert_eq!((read(&mut bytes, 0), forgotten.seen()), (Err(Cold), 0));
        drop(forgotten);
        let held = faults::hold_up(dir.path(), Op::Read);
        assert_eq!((read(&mut bytes, 0), held.has_struck()), (Err(Cold), false));
        drop(held);
        evict(dir.path());
        bytes = [0; 100];
        match read(&mut bytes, 8_200) {
            Ok(()) => assert_eq!(bytes, [7; 100]),
            Err(Cold) => assert_eq!(bytes, [0; 100], "nobody waits for it"),
        }
    }
}
