//! Entering timers: into the wheel, and into the slots that are open.
//!
//! Invariants:
//! - what the timer log does not take now is entered again in its order, nothing behind it before;
//! - a message that the disk cannot read now waits in the next slot, and holds up none behind it.

use troupemq_codec::timer_record::{TimerUnit, UNIT_DEFAULT};
use troupemq_store::timer::{NewTimer, Placed, SlotUnits};
use troupemq_store::{StoreError, Unit};

use super::Timer;
use super::deliver::READ_MAX;
use super::dequeue::Waiting;
use super::enqueue::{Mark, Said};
use super::near::Marks;

impl Timer {
    /// Enters a message, and takes it in if its slot is open.
    pub(super) fn enter(&mut self, mark: &Mark, at: (u64, u32), now_ms: i64) -> Result<(), StoreError> {
        let placed = self.store.put(&timer_of(mark, at), now_ms)?;
        self.entered(mark, at, (placed, now_ms));
        Ok(())
    }

    /// Takes in a message that was entered, if its slot is open; if not, what it says is remembered for that.
    fn entered(&mut self, mark: &Mark, at: (u64, u32), (placed, now_ms): (Placed, i64)) {
        let Placed::Slot { slot_ms, unit, .. } = placed else { return };
        if slot_ms < self.open.open_to_ms() {
            self.take_in(mark, at, (slot_ms, now_ms - now_ms.rem_euclid(self.store.precision_ms())));
        } else {
            self.near.note(slot_ms, at, (mark, unit), now_ms);
        }
    }

    /// Takes opened slots out of what is to be read if all their timers are known; tells what is known of the others.
    pub(super) fn known_of(&mut self, slots: &mut Vec<SlotUnits>) -> Vec<Marks> {
        let mut known = Vec::new();
        slots.retain(|slot| match self.whole.add(slot, self.near.take(slot.slot_ms)) {
            Ok(timers) => {
                self.open.will_read(slot.slot_ms, timers);
                false
            }
            Err(marks) => {
                known.push(marks);
                true
            }
        });
        known
    }

    /// Takes in timers of opened slots that are known whole, not too many at a time.
    pub(super) fn take_in_known(&mut self) {
        let Some((slot_ms, timers)) = self.whole.take(READ_MAX, |waiting| self.open.add(waiting)) else {
            return;
        };
        self.open.read_all(slot_ms, timers);
    }

    /// Takes in what stands in an open slot.
    pub(super) fn take_in(&mut self, mark: &Mark, at: (u64, u32), (slot_ms, entered_ms): (i64, i64)) {
        let waiting = Waiting::of(mark, at, (slot_ms, entered_ms));
        match mark.cancels {
            Some(name) if waiting.rolls.is_none() => self.open.cancel(slot_ms, name),
            _ => self.open.add(waiting),
        }
    }

    /// Enters what came, until the timer log takes no more.
    pub(super) fn enter_new(&mut self, new: Vec<(Unit, Said)>, now_ms: i64) -> Result<(), StoreError> {
        let timers = new.iter().filter_map(|(unit, said)| match said {
            Said::Timer(mark) => Some(timer_of(mark, (unit.log_offset, unit.size))),
            Said::Nothing => None,
            Said::Unreadable => Some(timer_unread(unit, now_ms)),
        });
        let (placed, outcome) = self.store.put_all(timers, now_ms);
        self.entered.add(placed.len() as u64, now_ms);
        let mut placed = placed.into_iter();
        for (unit, said) in new {
            match said {
                Said::Timer(mark) => {
                    let Some(placed) = placed.next() else { return outcome };
                    self.entered(&mark, (unit.log_offset, unit.size), (placed, now_ms));
                    self.entered_ms = self.entered_ms.max(mark.stored_ms);
                }
                Said::Nothing => {
                    tracing::warn!(log_offset = unit.log_offset, "a message of the timer topic is no timer");
                }
                Said::Unreadable => {
                    let Some(placed) = placed.next() else { return outcome };
                    self.entered_unread(&unit, (placed, now_ms));
                }
            }
            self.store.entered(unit.next_offset());
        }
        if !self.has_new() {
            self.entered_ms = self.entered_ms.max(now_ms);
        }
        outcome
    }

    /// Reads a message again whose time the disk could not read, if its slot is open.
    fn entered_unread(&mut self, unit: &Unit, (placed, now_ms): (Placed, i64)) {
        tracing::error!(log_offset = unit.log_offset, "a timer is entered when the disk can read it");
        if let Placed::Slot { slot_ms, .. } = placed
            && slot_ms < self.open.open_to_ms()
        {
            self.open.will_read(slot_ms, 1);
            let unit = TimerUnit {
                previous: -1,
                kind: UNIT_DEFAULT,
                written_ms: now_ms,
                delay_ms: 0,
                log_offset: unit.log_offset.cast_signed(),
                size: unit.size.cast_signed(),
                topic_hash: 0,
            };
            self.again.note([(slot_ms, unit)], [], now_ms);
        }
    }
}

fn timer_of(mark: &Mark, (log_offset, size): (u64, u32)) -> NewTimer {
    NewTimer {
        queue_offset: mark.queue_offset,
        log_offset,
        size,
        stored_ms: mark.stored_ms,
        due_ms: mark.slot_ms,
        is_delete: mark.cancels.is_some(),
        topic_hash: mark.topic_hash,
    }
}

/// A message whose time the disk cannot read now goes into the next slot, where it is read again until it can be. It
/// goes on to its own slot then.
fn timer_unread(unit: &Unit, now_ms: i64) -> NewTimer {
    NewTimer {
        queue_offset: unit.queue_offset,
        log_offset: unit.log_offset,
        size: unit.size,
        stored_ms: now_ms,
        due_ms: now_ms,
        is_delete: false,
        topic_hash: 0,
    }
}
