//! `config/timercheck`: how far timed delivery has come (RocketMQ: `TimerCheckpoint`).
//!
//! Invariants:
//! - a missing or short file means that nothing is known;
//! - the precision stands where Java neither reads nor writes: a wheel of another one is not believed;
//! - so does the start of the log, noted before files in front of it are deleted: it is written by itself, so that
//!   who notes it and who saves the rest never write the same bytes;
//! - a wheel or log that is made anew is noted before anything is entered into it: a wheel of which the disk has a part
//!   only is made anew again, and nothing that was known of the log before is believed of the new one.
//!
//! | byte | size | meaning |
//! |---|---|---|
//! | 0 | 56 | the check point of the codec |
//! | 2048 | 8 | `TROUPETM` |
//! | 2056 | 8 | precision of the wheel, ms |
//! | 2064 | 8 | position at which the timer log may begin: all in front of it was delivered |
//! | 2072 | 8 | 1 while the disk may have only a part of a wheel that was made anew |
//! | 2080 | 8 | queue offset of the check point when the log was last made anew |
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
const PRECISION_AT: usize = OURS_AT + 8;
const LOG_START_AT: usize = OURS_AT + 16;
const WHEEL_IS_NEW_AT: usize = OURS_AT + 24;
const ENTERED_BEFORE_AT: usize = OURS_AT + 32;

/// What stands in the file beside Java's check point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ours {
    /// Precision of the wheel.
    pub(crate) precision_ms: i64,
    /// Position in front of which files of the timer log may be gone.
    pub(crate) log_start: u64,
    /// Whether the wheel was made anew and may not be whole on the disk.
    pub(crate) wheel_is_new: bool,
    /// Before this queue offset all messages had been entered when the log was last made anew.
    pub(crate) entered_before: i64,
}

/// Reads the check point, and what stands beside it if we have written it.
pub(crate) fn read(path: &Path) -> Result<(TimerCheckpoint, Option<Ours>), StoreError> {
    match faults::look(Op::Read, path, || fs::read(path)) {
        Ok(bytes) => {
            let whole = bytes.get(..CHECKPOINT_BYTES).unwrap_or_default();
            let is_ours = bytes.get(OURS_AT..).is_some_and(|bytes| bytes.starts_with(OURS_MAGIC));
            let ours = if is_ours { ours(&bytes) } else { None };
            let known = TimerCheckpoint::decode(whole).ok().filter(is_sane);
            Ok((known.unwrap_or_default(), ours))
        }
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok((TimerCheckpoint::default(), None)),
        Err(cause) => Err(StoreError::io("read", path)(cause)),
    }
}

/// What stands behind the magic. An older file ends sooner with what we know, in zeros.
fn ours(file: &[u8]) -> Option<Ours> {
    let number = |at: usize| file.get(at..)?.first_chunk().map(|number| i64::from_be_bytes(*number));
    Some(Ours {
        precision_ms: number(PRECISION_AT)?,
        log_start: number(LOG_START_AT).unwrap_or(0).cast_unsigned(),
        wheel_is_new: number(WHEEL_IS_NEW_AT).is_some_and(|is_new| is_new != 0),
        entered_before: number(ENTERED_BEFORE_AT).filter(|at| (0..=NUMBER_MAX).contains(at)).unwrap_or(0),
    })
}

/// Whether somebody can have written this: times and places that can be counted with.
fn is_sane(known: &TimerCheckpoint) -> bool {
    let numbers = [known.last_read_ms, known.flushed_to, known.queue_offset];
    numbers.iter().all(|number| (0..=NUMBER_MAX).contains(number))
}

/// Writes and forces the check point and the precision of the wheel, which is whole on the disk.
pub(crate) fn save(path: &Path, checkpoint: &TimerCheckpoint, precision_ms: i64) -> Result<(), StoreError> {
    write(path, &[(&checkpoint.encode(), 0), (&of_wheel(precision_ms), OURS_AT), (&[0; 8], WHEEL_IS_NEW_AT)])
}

/// Notes and forces that the wheel is being made anew, with this precision.
pub(crate) fn note_new_wheel(path: &Path, precision_ms: i64) -> Result<(), StoreError> {
    write(path, &[(&of_wheel(precision_ms), OURS_AT), (&1_i64.to_be_bytes(), WHEEL_IS_NEW_AT)])
}

/// Writes and forces the check point of a log that is made anew with its wheel: nothing is entered, where everything
/// before `entered_before` was.
pub(crate) fn note_new_log(
    path: &Path,
    checkpoint: &TimerCheckpoint,
    (precision_ms, entered_before): (i64, i64),
) -> Result<(), StoreError> {
    let rest = [0, 1, entered_before].map(i64::to_be_bytes);
    write(
        path,
        &[(&checkpoint.encode(), 0), (&of_wheel(precision_ms), OURS_AT), (rest.as_flattened(), LOG_START_AT)],
    )
}

/// Notes and forces where the timer log may begin.
pub(crate) fn note_log_start(path: &Path, log_start: u64) -> Result<(), StoreError> {
    write(path, &[(&log_start.to_be_bytes(), LOG_START_AT)])
}

/// What tells that the file is ours, and of which precision its wheel is.
fn of_wheel(precision_ms: i64) -> Vec<u8> {
    [*OURS_MAGIC, precision_ms.to_be_bytes()].concat()
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

    const SAVED: Ours = Ours { precision_ms: 100, log_start: 0, wheel_is_new: false, entered_before: 0 };

    #[test]
    fn what_is_made_anew_is_noted_until_the_next_save() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timercheck");
        let known = TimerCheckpoint { queue_offset: 7, ..Default::default() };
        save(&path, &known, 100).unwrap();
        note_log_start(&path, 4096).unwrap();
        note_new_wheel(&path, 100).unwrap();
        let new_wheel = Ours { wheel_is_new: true, log_start: 4096, ..SAVED };
        assert_eq!(read(&path).unwrap(), (known, Some(new_wheel)));
        let nothing = TimerCheckpoint::default();
        note_new_log(&path, &nothing, (100, 7)).unwrap();
        let new_log = Ours { wheel_is_new: true, entered_before: 7, ..SAVED };
        assert_eq!(read(&path).unwrap(), (nothing, Some(new_log)));
        save(&path, &known, 100).unwrap();
        assert_eq!(read(&path).unwrap(), (known, Some(Ours { entered_before: 7, ..SAVED })));
    }

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
            assert_eq!(read(&path).unwrap(), (known, Some(Ours { log_start, ..SAVED })));
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), FILE_BYTES);
    }

    #[test]
    fn numbers_that_nobody_writes_mean_that_nothing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timercheck");
        let good = TimerCheckpoint { last_read_ms: 1_795_968_000_000, queue_offset: 7, ..Default::default() };
        save(&path, &good, 100).unwrap();
        assert_eq!(read(&path).unwrap(), (good, Some(SAVED)));
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
