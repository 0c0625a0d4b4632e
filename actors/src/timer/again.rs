//! What the disk could not read of the open slots: units, or the records they speak of.
//!
//! Invariants:
//! - plain state: time is an argument;
//! - all is tried again together, after a pause that grows as long as something of it cannot be read;
//! - whose slot is open stays open: nothing here counts as delivered, and a start finds it in the wheel.

use troupemq_codec::timer_record::TimerUnit;
use troupemq_store::timer::SlotUnits;

use crate::delayed::pause_ms;

/// Units with the times of their slots, and slots of which not all units are known.
pub(super) type Unreadable = (Vec<(i64, TimerUnit)>, Vec<SlotUnits>);

/// What is to be tried again.
#[derive(Debug, Default)]
pub(super) struct Again {
    units: Vec<(i64, TimerUnit)>,
    slots: Vec<SlotUnits>,
    tries: u32,
    at_ms: i64,
}

impl Again {
    /// Notes what could not be read now.
    pub(super) fn note(
        &mut self,
        units: impl IntoIterator<Item = (i64, TimerUnit)>,
        slots: impl IntoIterator<Item = SlotUnits>,
        now_ms: i64,
    ) {
        let before = self.len();
        self.units.extend(units);
        self.slots.extend(slots);
        if self.len() > before {
            self.tries = self.tries.saturating_add(1);
            self.at_ms = now_ms.saturating_add(pause_ms(self.tries));
        } else if self.len() == 0 {
            self.tries = 0;
        }
    }

    /// Takes all of it, if it is time.
    pub(super) fn take(&mut self, now_ms: i64) -> Option<Unreadable> {
        let is_time = self.len() > 0 && now_ms >= self.at_ms;
        is_time.then(|| (std::mem::take(&mut self.units), std::mem::take(&mut self.slots)))
    }

    /// Notes what was taken and is not tried now: its time has come already.
    pub(super) fn keep(&mut self, units: Vec<(i64, TimerUnit)>) {
        self.units = units;
    }

    /// How much it is.
    pub(super) fn len(&self) -> usize {
        self.units.len() + self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(log_offset: i64) -> TimerUnit {
        TimerUnit { previous: -1, kind: 1, written_ms: 0, delay_ms: 0, log_offset, size: 100, topic_hash: 0 }
    }

    fn taken(again: &mut Again, now_ms: i64) -> Vec<i64> {
        let (units, _) = again.take(now_ms).unwrap_or_default();
        units.iter().map(|(_, unit)| unit.log_offset).collect()
    }

    #[test]
    fn all_is_tried_again_after_a_pause_that_grows_until_it_could_be_read() {
        let mut again = Again::default();
        again.note([(0, unit(1))], [], 0);
        assert_eq!((taken(&mut again, 999), taken(&mut again, 1_000)), (vec![], vec![1]));
        again.note([(0, unit(1)), (0, unit(2))], [], 1_000);
        assert_eq!((taken(&mut again, 2_999), taken(&mut again, 3_000)), (vec![], vec![1, 2]));
        again.note([], [], 3_000);
        again.note([(0, unit(3))], [], 4_000);
        assert_eq!(taken(&mut again, 5_000), [3], "what is new is tried again soon");
    }
}
