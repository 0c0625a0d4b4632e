//! `Recent`: slots that timers were entered into a moment ago, as they stand in the wheel. Plain state.
//!
//! Invariants:
//! - the owner of the wheel alone changes slots, and notes here what it has changed: what is found is what is there;
//! - times that share a slot of the wheel share a place here, so that what has gone there is not found here.

use troupemq_codec::timer_record::TimerSlot;

/// Slots that are known: what comes together mostly goes to few.
const KNOWN: usize = 16;

/// The slots, each in the place that its time gives it.
#[derive(Debug, Default)]
pub(super) struct Recent([Option<TimerSlot>; KNOWN]);

impl Recent {
    /// The slot of this time (divided by the precision), if it is known.
    pub(super) fn find(&self, time: i64) -> Option<TimerSlot> {
        self.0[place_of(time)].filter(|slot| slot.time == time)
    }

    /// A slot was stored to.
    pub(super) fn note(&mut self, slot: TimerSlot) {
        self.0[place_of(slot.time)] = Some(slot);
    }

    /// The slot of this time (divided by the precision) was emptied.
    pub(super) fn forget(&mut self, time: i64) {
        self.0[place_of(time)] = None;
    }
}

fn place_of(time: i64) -> usize {
    usize::try_from(time.rem_euclid(KNOWN as i64)).expect("a remainder is not negative")
}

#[cfg(test)]
mod tests {
    use super::super::wheel::SLOTS;
    use super::*;

    fn slot(time: i64, count: i32) -> TimerSlot {
        TimerSlot { time, first: 0, last: 52, count }
    }

    #[test]
    fn a_slot_is_known_as_it_was_stored_last_until_it_is_emptied() {
        let mut recent = Recent::default();
        (100..116).for_each(|time| recent.note(slot(time, 1)));
        recent.note(slot(107, 2));
        assert_eq!((recent.find(107), recent.find(108)), (Some(slot(107, 2)), Some(slot(108, 1))));
        recent.forget(107);
        assert_eq!((recent.find(107), recent.find(99)), (None, None));
    }

    #[test]
    fn of_two_times_that_share_a_slot_of_the_wheel_the_later_one_is_known() {
        let mut recent = Recent::default();
        let around = SLOTS.cast_signed();
        recent.note(slot(5, 1));
        recent.note(slot(5 + around, 1));
        assert_eq!((recent.find(5), recent.find(5 + around)), (None, Some(slot(5 + around, 1))));
    }
}
