//! A look at the timers of a store, without opening or changing it.
//!
//! Invariants:
//! - nothing is written, no lock is taken: a broker may run, its newest second may be missing then.

use std::collections::BTreeMap;
use std::path::Path;

use troupemq_codec::timer_record::TimerCheckpoint;

use super::{checkpoint, wheel};
use crate::error::StoreError;
use crate::paths::Paths;

/// What waits in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerPeek {
    /// How far delivery has come.
    pub checkpoint: TimerCheckpoint,
    /// Width of a slot in milliseconds.
    pub precision_ms: i64,
    /// Timers by the time of their slot, epoch ms; cancellations are taken off.
    pub slots: BTreeMap<i64, i32>,
}

impl TimerPeek {
    /// Looks into the folder of a store; none if it has no timers.
    pub fn read(dir: &Path) -> Result<Option<TimerPeek>, StoreError> {
        let paths = Paths::below(dir);
        let path = paths.timer_wheel();
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(None);
        }
        let (checkpoint, ours) = checkpoint::read(&paths.timer_checkpoint())?;
        // Java does not note its precision; hardly anybody changes it.
        let precision_ms =
            ours.map(|ours| ours.precision_ms).filter(|precision_ms| *precision_ms > 0).unwrap_or(1_000);
        let mut slots = BTreeMap::new();
        wheel::each(&path, precision_ms, checkpoint.last_read_ms, |time_ms, slot| {
            slots.insert(time_ms, slot.count);
        })?;
        Ok(Some(TimerPeek { checkpoint, precision_ms, slots }))
    }
}
