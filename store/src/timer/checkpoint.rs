//! `config/timercheck`: how far timed delivery has come (RocketMQ: `TimerCheckpoint`).
//!
//! Invariants:
//! - a missing or short file means that nothing is known;
//! - the precision stands where Java neither reads nor writes: a wheel of another one is not believed.
//!
//! | byte | size | meaning |
//! |---|---|---|
//! | 0 | 56 | the check point of the codec |
//! | 2048 | 8 | `TROUPETM` |
//! | 2056 | 8 | precision of the wheel, ms |
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

/// Reads the check point, and the precision of the wheel if it is noted.
pub(crate) fn read(path: &Path) -> Result<(TimerCheckpoint, Option<i64>), StoreError> {
    match faults::look(Op::Read, path, || fs::read(path)) {
        Ok(bytes) => {
            let whole = bytes.get(..CHECKPOINT_BYTES).unwrap_or_default();
            let ours = bytes.get(OURS_AT..).and_then(|ours| ours.strip_prefix(OURS_MAGIC));
            let precision_ms =
                ours.and_then(|ours| ours.first_chunk()).map(|bytes| i64::from_be_bytes(*bytes));
            let known = TimerCheckpoint::decode(whole).ok().filter(is_sane);
            Ok((known.unwrap_or_default(), precision_ms))
        }
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok((TimerCheckpoint::default(), None)),
        Err(cause) => Err(StoreError::io("read", path)(cause)),
    }
}

/// Whether somebody can have written this: times and places that can be counted with.
fn is_sane(known: &TimerCheckpoint) -> bool {
    let numbers = [known.last_read_ms, known.flushed_to, known.queue_offset];
    numbers.iter().all(|number| (0..=NUMBER_MAX).contains(number))
}

/// Writes and forces the check point and the precision of the wheel.
pub(crate) fn save(path: &Path, checkpoint: &TimerCheckpoint, precision_ms: i64) -> Result<(), StoreError> {
    if let Some(dir) = path.parent() {
        create_dir(dir)?;
    }
    let open = || OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = faults::pass(Op::Create, path, open).map_err(StoreError::io("open", path))?;
    faults::write_at(&file, path, &checkpoint.encode(), 0).map_err(StoreError::io("write", path))?;
    let ours = [*OURS_MAGIC, precision_ms.to_be_bytes()].concat();
    faults::write_at(&file, path, &ours, OURS_AT as u64).map_err(StoreError::io("write", path))?;
    let size = || file.set_len(FILE_BYTES);
    faults::pass(Op::Allocate, path, size).map_err(StoreError::io("size", path))?;
    faults::pass(Op::Flush, path, || file.sync_all()).map_err(StoreError::io("flush", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_nobody_writes_mean_that_nothing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("timercheck");
        let good = TimerCheckpoint { last_read_ms: 1_795_968_000_000, queue_offset: 7, ..Default::default() };
        save(&path, &good, 100).unwrap();
        assert_eq!(read(&path).unwrap(), (good, Some(100)));
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
