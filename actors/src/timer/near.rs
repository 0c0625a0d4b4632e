//! What is known of timers that were entered a moment ago and are due soon: their records are not read a second time
//! when their slots are opened. Plain state.
//!
//! Invariants:
//! - it is only a short cut: what is not known of a timer its record says;
//! - so many are known at most, however many are entered;
//! - cancellations, and timers that go to another slot later, are not known: they are few, and more of them counts.

use std::collections::BTreeMap;

use super::enqueue::Mark;
use crate::delayed::Aim;

/// Timers that are known: 32 MB at most, and as many as come within a second or two on a fast machine.
const KNOWN_MAX: usize = 524_288;
/// Timers of slots further ahead are not noted: they would take the room of those that are needed sooner.
const AHEAD_MS: i64 = 30_000;

/// What the records of some timers say.
#[derive(Debug, Default)]
pub(super) struct Near {
    slots: BTreeMap<i64, Marks>,
    count: usize,
}

/// What the records of a slot's timers say, by their places in the log.
#[derive(Debug, Default)]
pub(super) struct Marks {
    slot_ms: i64,
    /// In the order in which they were entered.
    marks: Vec<Known>,
    /// Where the one stands that is asked for next, if they are asked for in the same order.
    at: usize,
}

/// What counts of a mark once its slot is open.
#[derive(Debug)]
struct Known {
    log_offset: u64,
    due_ms: i64,
    names: [u64; 2],
    aim: Aim,
}

impl Near {
    /// Notes a timer that was entered into the slot of `slot_ms`.
    pub(super) fn note(&mut self, (slot_ms, log_offset): (i64, u64), mark: &Mark, now_ms: i64) {
        let is_plain = mark.cancels.is_none() && mark.slot_ms <= slot_ms;
        if is_plain && self.count < KNOWN_MAX && slot_ms < now_ms.saturating_add(AHEAD_MS) {
            let slot = self.slots.entry(slot_ms).or_default();
            slot.slot_ms = slot_ms;
            slot.marks.push(Known { log_offset, due_ms: mark.due_ms, names: mark.names, aim: mark.aim });
            self.count += 1;
        }
    }

    /// Takes what is known of the timers of a slot, which is opened. What is known of earlier ones is forgotten.
    pub(super) fn take(&mut self, slot_ms: i64) -> Marks {
        let later = self.slots.split_off(&slot_ms.saturating_add(1));
        let mut past = std::mem::replace(&mut self.slots, later);
        self.count -= past.values().map(|marks| marks.marks.len()).sum::<usize>();
        past.remove(&slot_ms).unwrap_or_default()
    }
}

impl Marks {
    /// What counts of the record at a place of the log, if it is known.
    pub(super) fn find(&mut self, log_offset: u64) -> Option<Mark> {
        let is_next = self.marks.get(self.at).is_some_and(|known| known.log_offset == log_offset);
        let found = match is_next {
            true => self.at,
            false => self.marks.binary_search_by_key(&log_offset, |known| known.log_offset).ok()?,
        };
        self.at = found + 1;
        self.marks.get(found).map(|known| Mark {
            slot_ms: self.slot_ms,
            due_ms: known.due_ms,
            stored_ms: 0,
            queue_offset: 0,
            cancels: None,
            names: known.names,
            topic_hash: 0,
            aim: known.aim,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(due_ms: i64) -> Mark {
        Mark {
            slot_ms: 0,
            due_ms,
            stored_ms: 0,
            queue_offset: 0,
            cancels: None,
            names: [0; 2],
            topic_hash: 0,
            aim: Aim::default(),
        }
    }

    #[test]
    fn what_was_entered_is_known_in_its_slot_in_whatever_order_it_is_asked_for() {
        let mut near = Near::default();
        (0..10).for_each(|at| near.note((1_000, at * 100), &mark(at.cast_signed()), 0));
        near.note((2_000, 5), &mark(77), 0);
        near.note((2_000, 6), &Mark { cancels: Some(1), ..mark(77) }, 0);
        near.note((2_000, 7), &Mark { slot_ms: 9_000, ..mark(77) }, 0);
        let mut marks = near.take(1_000);
        let due: Vec<_> = [300, 0, 100, 200, 900, 50].map(|at| marks.find(at).map(|mark| mark.due_ms)).into();
        assert_eq!(due, [Some(3), Some(0), Some(1), Some(2), Some(9), None]);
        assert_eq!(near.take(1_000).find(0), None, "it was taken");
        let mut marks = near.take(2_000);
        let found = [5, 6, 7].map(|at| marks.find(at).map(|mark| (mark.slot_ms, mark.due_ms)));
        assert_eq!(
            found,
            [Some((2_000, 77)), None, None],
            "more of a cancellation and of one that goes on counts"
        );
        assert_eq!(near.count, 0);
    }

    #[test]
    fn a_bounded_number_is_known_and_none_that_is_far_ahead() {
        let mut near = Near::default();
        near.note((AHEAD_MS, 0), &mark(0), 0);
        assert_eq!(near.count, 0);
        (0..KNOWN_MAX as u64 + 10).for_each(|at| near.note((AHEAD_MS, at), &mark(0), 1));
        assert_eq!(near.count, KNOWN_MAX);
        near.take(AHEAD_MS + 5_000);
        near.note((AHEAD_MS, 0), &mark(0), 1);
        assert_eq!(near.count, 1, "what is past makes room");
    }
}
