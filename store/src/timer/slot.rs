//! The units of a slot of the wheel.
//!
//! Invariants:
//! - they are those of the moment when they were asked for, also if the slot gets more meanwhile;
//! - a chain only leads back; a unit of another slot ends it.

use std::sync::Arc;

use troupemq_codec::timer_record::{TimerSlot, TimerUnit};

use super::log;
use crate::error::StoreError;
use crate::segments::Segments;

/// The units of a slot as they were when they were asked for; read on a thread that may wait.
#[derive(Debug, Clone)]
pub struct SlotUnits {
    segments: Arc<Segments>,
    /// Time of the slot, epoch ms.
    pub slot_ms: i64,
    /// Units, cancellations taken off twice: an estimate of their number.
    pub count: i32,
    /// Position of the newest of them in the timer log; -1 where it has none.
    pub last: i64,
    precision_ms: i64,
}

impl SlotUnits {
    /// Those of the slot of this time, as the wheel has it; none where it has nothing.
    pub(super) fn of(
        segments: &Arc<Segments>,
        (slot_ms, precision_ms): (i64, i64),
        slot: Option<TimerSlot>,
    ) -> SlotUnits {
        SlotUnits {
            segments: Arc::clone(segments),
            slot_ms,
            count: slot.map_or(0, |slot| slot.count),
            last: slot.map_or(-1, |slot| slot.last),
            precision_ms,
        }
    }

    /// Reads them, oldest first. Waits for the disk.
    ///
    /// # Errors
    /// If the disk cannot read one of them: those in front of it cannot be found either.
    pub fn read(&self) -> Result<Vec<TimerUnit>, StoreError> {
        let mut units = self.newest_first().collect::<Result<Vec<_>, _>>()?;
        units.reverse();
        Ok(units)
    }

    /// Hands them to `visit`, newest first, however many they are. Waits for the disk.
    ///
    /// # Errors
    /// As [`SlotUnits::read`]; those behind it were handed out then.
    pub fn each(&self, mut visit: impl FnMut(&TimerUnit)) -> Result<(), StoreError> {
        self.newest_first().try_for_each(|unit| {
            visit(&unit?);
            Ok(())
        })
    }

    /// Log offset of the oldest message that was entered behind its time, of those from `log_min` on: older ones are no
    /// longer kept. Waits for the disk.
    ///
    /// # Errors
    /// As [`SlotUnits::read`].
    pub fn oldest_late(&self, log_min: u64) -> Result<Option<u64>, StoreError> {
        let mut oldest = None;
        self.each(|unit| {
            let log_offset = unit.log_offset.cast_unsigned();
            let is_late = unit.delay_ms == 0 && log_offset >= log_min;
            if is_late && oldest.is_none_or(|known| log_offset < known) {
                oldest = Some(log_offset);
            }
        })?;
        Ok(oldest)
    }

    fn newest_first(&self) -> impl Iterator<Item = Result<TimerUnit, StoreError>> + use<'_> {
        let floor = move |time_ms: i64| time_ms - time_ms.rem_euclid(self.precision_ms);
        let (mut position, mut units) = (self.last, log::Units::of(&self.segments));
        std::iter::from_fn(move || {
            let unit = match units.at(position) {
                Ok(unit) => unit?,
                Err(error) => {
                    position = -1;
                    return Some(Err(error));
                }
            };
            let is_of_slot = floor(unit.due_ms()) == floor(self.slot_ms);
            position = if unit.previous < position { unit.previous } else { -1 };
            is_of_slot.then_some(Ok(unit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::timer_test::{Bench, NOW_MS};

    #[test]
    fn the_oldest_that_came_behind_its_time_is_one_that_is_kept() {
        let mut bench = Bench::new();
        let late = [NOW_MS - 5_000, NOW_MS - 7_000, NOW_MS - 6_000].map(|due_ms| bench.put(due_ms, NOW_MS).0);
        bench.put(NOW_MS + 3_000, NOW_MS);
        let oldest_from = |log_min| bench.timers.slot(NOW_MS).unwrap().oldest_late(log_min).unwrap();
        assert_eq!(
            [0, late[0], late[0] + 1, late[2]].map(oldest_from),
            [0, 0, 1, 2].map(|at| Some(late[at]))
        );
        assert_eq!(oldest_from(late[2] + 1), None);
        assert_eq!(bench.timers.slot(NOW_MS + 3_000).unwrap().oldest_late(0).unwrap(), None, "it is in time");
    }
}
