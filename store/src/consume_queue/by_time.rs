//! The offset that belongs to a time.
//!
//! Invariants:
//! - the answer lies between minimum and maximum, whatever the time;
//! - store times are taken as sorted; where the clock went back, the answer is near, not exact.

use super::batch::search;
use super::{ConsumeQueue, Unit};

/// Which of the messages around a time is meant (RocketMQ: `BoundaryType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The first message stored at this time or later; behind the last one: the maximum.
    #[default]
    Lower,
    /// The last message stored at this time or earlier; before the first one: the minimum.
    Upper,
}

impl ConsumeQueue {
    /// The offset that belongs to `time_ms`, with `stored_ms` telling when a unit's record was stored.
    /// A record that cannot be read counts as older than any time.
    pub fn offset_by_stored_time(
        &self,
        time_ms: i64,
        boundary: Boundary,
        stored_ms: impl Fn(&Unit) -> Option<i64>,
    ) -> i64 {
        let (min, max) = (self.min_offset(), self.max_offset());
        if min >= max {
            return max;
        }
        let is_behind = |offset: u64| {
            let unit = self.unit(offset.cast_signed());
            let stored = unit.and_then(|unit| stored_ms(&unit)).unwrap_or(i64::MIN);
            match boundary {
                Boundary::Lower => stored >= time_ms,
                Boundary::Upper => stored > time_ms,
            }
        };
        let border = search(min.cast_unsigned(), max.cast_unsigned(), is_behind).cast_signed();
        match boundary {
            Boundary::Lower => border,
            Boundary::Upper => (border - 1).max(min),
        }
    }
}
