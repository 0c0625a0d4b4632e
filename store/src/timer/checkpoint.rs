//! `config/timercheck`: how far timed delivery has come (RocketMQ: `TimerCheckpoint`).
//!
//! Invariants:
//! - a missing or short file means that nothing is known;
//! - the precision stands where Java neither reads nor writes: a wheel of another one is not believed;
//! - so does the start of the log, noted before files in front of it are deleted: it is written by itself, so that
//!   who notes it and who saves the rest never write the same bytes.
//!
//! | byte | size | meaning |
//! |---|---|---|
//! | 0 | 56 | the check point of the codec |
//! | 2048 | 8 | `TROUPETM` |
//! | 2056 | 8 | precision of the wheel, ms |
//! | 2064 | 8 | position at which the timer log may begin: all in front of it was delivered |
//! | 4096 | | end of the file |

use std::fs::{self, OpenOptions};
use std::path::Path;

use troupemq_codec::timer_record::{CHECKPOINT_BYTES, TimerCheckpoint};

use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::paths::create_dir;

const FILE_BYTES: u64 = 4096;
/// The greatest number that is believed.
const NUMBER_MAX: i64 = 1 << 60;
const OURS_AT: usize = 2048;
const OURS_MAGIC: &[u8; 8] = b"TROUPETM";
const LOG_START_AT: usize = OURS_AT + 16;

/// What stands in the file beside Java's check point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ours {
    /// Precision of the wheel.
    pub(crate) precision_ms: i64,
    /// Position in front of which files of the timer log may be gone.
    pub(crate) log_start: u64,
}

/// Reads the check point, and what stands beside it if we have written it.
pub(crate) fn read(path: &Path) -> Result<(TimerCheckpoint, Option<Ours>), StoreError> {
    match faults::look(Op::Read, path, || fs::read(path)) {
        Ok(bytes) => {
            let whole = bytes.get(..CHECKPOINT_BYTES).unwrap_or_default();
            let ours = bytes.get(OURS_AT..).and_then(|ours| ours.strip_prefix(OURS_MAGIC)).and_then(ours);
            let known = TimerCheckpoint::decode(whole).ok().filter(is_sane);
            Ok((known.unwrap_or_default(), ours))
        }
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok((TimerCheckpoint::default(), None)),
        Err(cause) => Err(StoreError::io("read", path)(cause)),
    }
}

fn ours(bytes: &[u8]) -> Option<Ours> {
    let (precision_ms, rest) = bytes.split_first_chunk()?;
    let log_start = rest.first_chunk().map_or(0, |start| u64::from_be_bytes(*start));
    Some(Ours { precision_ms: i64::from_be_bytes(*precision_ms), log_start })
}

/// Whether somebody can have written this: times and places that can be counted with.
fn is_sane(known: &TimerCheckpoint) -> bool {
    let numbers = [known.last_read_ms, known.flushed_to, known.queue_offset];
    numbers.iter().all(|number| (0..=NUMBER_MAX).contains(number))
}

/// Writes and forces the check point and the precision of the wheel.
pub(crate) fn save(path: &Path, checkpoint: &TimerCheckpoint, precision_ms: i64) -> Result<(), StoreError> {
    let ours = [*OURS_MAGIC, precision_ms.to_be_bytes()].concat();
    write(path, &[(&checkpoint.encode(), 0), (&ours, OURS_AT)])
}

/// Notes and forces where the timer log may begin.
pub(crate) fn note_log_start(path: &Path, log_start: u64) -> Result<(), StoreError> {
    write(path, &[(&log_start.to_be_bytes(), LOG_START_AT)])
}

/// Writes and forces some parts of the file, each to its place.
fn write(path: &Path, parts: &[(&[u8], usize)]) -> Result<(), StoreError> {
    if let Some(dir) = path.parent() {
        create_dir(dir)?;
    }
    let open = || OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = faults::pass(Op::Create, path, open).map_err(StoreError::io("open", path))?;
    for (bytes, at) in parts {
        faults::write_at(&file, path, bytes, *at as u64).map_err(StoreError::io("write", path))?;
    }
    let size = || file.set_len(FILE_BYTES);
    faults::pass(Op::Allocate, path, size).map_err(StoreError::io("size", path))?;
    faults::pass(Op::Flush, path, || file.sync_all()).map_err(StoreError::io("flush", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_the_log_is_noted_beside_a_check_point_and_stays_when_that_is_saved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timercheck");
        note_log_start(&path, 4096).unwrap();
        assert_eq!(read(&path).unwrap(), (TimerCheckpoint::default(), None), "it is not ours yet");
        let known = TimerCheckpoint { queue_offset: 7, ..Default::default() };
        for log_start in [4096, 8192, 0] {
            note_log_start(&path, log_start).unwrap();
            save(&path, &known, 100).unwrap();
            assert_eq!(read(&path).unwrap(), (known, Some(Ours { precision_ms: 100, log_start })));
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), FILE_BYTES);
    }

    #[test]
    fn numbers_that_nobody_writes_mean_that_nothing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timercheck");
        let good = TimerCheckpoint { last_read_ms: 1_795_968_000_000, queue_offset: 7, ..Default::default() };
        save(&path, &good, 100).unwrap();
        assert_eq!(read(&path).unwrap(), (good, Some(Ours { precision_ms: 100, log_start: 0 })));
        for wrong in [i64::MIN, -1, i64::MAX] {
            for damaged in [
                TimerCheckpoint { last_read_ms: wrong, ..good },
                TimerCheckpoint { flushed_to: wrong, ..good },
                TimerCheckpoint { queue_offset: wrong, ..good },
            ] {
                save(&path, &damaged, 100).unwrap();
                assert_eq!(read(&path).unwrap().0, TimerCheckpoint::default());
            }
        }
    }
}
