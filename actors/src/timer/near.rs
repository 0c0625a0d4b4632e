//! What is known of timers that were entered a moment ago and are due soon: their records are not read a second time
//! when their slots are opened, nor are their units, if all of a slot are known. Plain state.
//!
//! Invariants:
//! - it is only a short cut: what is not known of a timer its record says;
//! - so many are known at most, however many are entered;
//! - a slot is known whole if each unit that was noted stands behind the one that was noted before it, and none behind
//!   the last;
//! - cancellations, and timers that go to another slot later, are not known: they are few, and more of them counts.

use std::collections::{BTreeMap, VecDeque};

use troupemq_store::timer::{SlotUnits, UnitAt};

use super::dequeue::Waiting;
use super::enqueue::Mark;
use crate::delayed::Aim;

/// Timers that are known: 34 MB at most, and as many as come within a second or two on a fast machine.
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
    /// Whether nothing of the slot is unknown up to the unit at `last`.
    is_whole: bool,
    /// Position of the unit of the last of them in the timer log.
    last: i64,
    /// In the order in which they were entered.
    marks: Vec<Known>,
    /// Where the one stands that is asked for next, if they are asked for in the same order.
    at: usize,
}

/// What counts of a mark once its slot is open.
#[derive(Debug)]
struct Known {
    log_offset: u64,
    size: u32,
    /// How long behind the time of its slot it is due.
    behind_ms: u32,
    /// How long before that time it was entered.
    before_ms: u32,
    names: [u64; 2],
    aim: Aim,
}

impl Near {
    /// Notes a timer that was entered into the slot of `slot_ms`: its record, and where its unit stands.
    pub(super) fn note(
        &mut self,
        slot_ms: i64,
        (log_offset, size): (u64, u32),
        (mark, unit): (&Mark, UnitAt),
        now_ms: i64,
    ) {
        let is_plain = mark.cancels.is_none() && mark.slot_ms <= slot_ms;
        if !is_plain || self.count >= KNOWN_MAX || slot_ms >= now_ms.saturating_add(AHEAD_MS) {
            return;
        }
        let behind_ms = u32::try_from(mark.due_ms.saturating_sub(slot_ms));
        let before_ms = u32::try_from(slot_ms.saturating_sub(unit.written_ms));
        let (Ok(behind_ms), Ok(before_ms)) = (behind_ms, before_ms) else { return };
        let slot = self.slots.entry(slot_ms).or_insert_with(|| Marks::none_of(slot_ms));
        slot.is_whole &= slot.last == unit.previous;
        slot.last = unit.position;
        let Mark { names, aim, .. } = *mark;
        slot.marks.push(Known { log_offset, size, behind_ms, before_ms, names, aim });
        self.count += 1;
    }

    /// Takes what is known of the timers of a slot, which is opened. What is known of earlier ones is forgotten.
    pub(super) fn take(&mut self, slot_ms: i64) -> Marks {
        let later = self.slots.split_off(&slot_ms.saturating_add(1));
        let mut past = std::mem::replace(&mut self.slots, later);
        self.count -= past.values().map(|marks| marks.marks.len()).sum::<usize>();
        past.remove(&slot_ms).unwrap_or_default()
    }
}

/// Opened slots that are known whole, until their timers are taken in.
#[derive(Debug, Default)]
pub(super) struct Whole(VecDeque<Marks>);

impl Whole {
    /// Adds a slot, if nothing of it is unknown; answers how many timers it has then, and gives it back if not.
    pub(super) fn add(&mut self, slot: &SlotUnits, marks: Marks) -> Result<usize, Marks> {
        if !marks.is_all_of(slot.last) {
            return Err(marks);
        }
        let count = marks.marks.len();
        self.0.push_back(marks);
        Ok(count)
    }

    /// Whether nothing is to be taken in.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes so many timers of a slot; tells its time, and how many they are.
    pub(super) fn take(&mut self, max: usize, take: impl FnMut(Waiting)) -> Option<(i64, usize)> {
        let slot = self.0.front_mut()?;
        let slot_ms = slot.slot_ms;
        let end = slot.marks.len().min(slot.at + max);
        let taken = &slot.marks[slot.at..end];
        taken.iter().map(|known| known.waiting(slot_ms)).for_each(take);
        let count = taken.len();
        slot.at = end;
        if end == slot.marks.len() {
            self.0.pop_front();
        }
        Some((slot_ms, count))
    }
}

impl Known {
    fn waiting(&self, slot_ms: i64) -> Waiting {
        Waiting {
            due_ms: slot_ms + i64::from(self.behind_ms),
            slot_ms,
            entered_ms: slot_ms - i64::from(self.before_ms),
            log_offset: self.log_offset,
            size: self.size,
            names: self.names,
            aim: self.aim,
            rolls: None,
            tries: 0,
        }
    }
}

impl Marks {
    /// Of a slot that has no unit yet.
    fn none_of(slot_ms: i64) -> Marks {
        Marks { slot_ms, is_whole: true, last: -1, ..Marks::default() }
    }

    /// Whether they are all of a slot whose newest unit stands at this position.
    fn is_all_of(&self, last: i64) -> bool {
        self.is_whole && self.last == last
    }

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
            due_ms: self.slot_ms + i64::from(known.behind_ms),
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
        Mark { due_ms, ..Mark::default() }
    }

    /// The unit at this position, behind one of its slot that stands there.
    fn unit(position: i64, previous: i64) -> UnitAt {
        UnitAt { position, previous, written_ms: 0 }
    }

    fn note(near: &mut Near, (slot_ms, log_offset): (i64, u64), mark: &Mark, now_ms: i64) {
        near.note(slot_ms, (log_offset, 100), (mark, unit(0, 0)), now_ms);
    }

    #[test]
    fn what_was_entered_is_known_in_its_slot_in_whatever_order_it_is_asked_for() {
        let mut near = Near::default();
        (0..10).for_each(|at| note(&mut near, (1_000, at * 100), &mark(1_000 + at.cast_signed()), 0));
        note(&mut near, (2_000, 5), &mark(2_077), 0);
        note(&mut near, (2_000, 6), &Mark { cancels: Some(1), ..mark(2_077) }, 0);
        note(&mut near, (2_000, 7), &Mark { slot_ms: 9_000, ..mark(2_077) }, 0);
        let mut marks = near.take(1_000);
        let due: Vec<_> = [300, 0, 100, 200, 900, 50].map(|at| marks.find(at).map(|mark| mark.due_ms)).into();
        assert_eq!(due, [Some(1_003), Some(1_000), Some(1_001), Some(1_002), Some(1_009), None]);
        assert_eq!(near.take(1_000).find(0), None, "it was taken");
        let mut marks = near.take(2_000);
        let found = [5, 6, 7].map(|at| marks.find(at).map(|mark| (mark.slot_ms, mark.due_ms)));
        assert_eq!(
            found,
            [Some((2_000, 2_077)), None, None],
            "more of a cancellation and of one that goes on counts"
        );
        assert_eq!(near.count, 0);
    }

    #[test]
    fn a_bounded_number_is_known_and_none_that_is_far_ahead() {
        let mut near = Near::default();
        let far = mark(AHEAD_MS);
        note(&mut near, (AHEAD_MS, 0), &far, 0);
        assert_eq!(near.count, 0);
        (0..KNOWN_MAX as u64 + 10).for_each(|at| note(&mut near, (AHEAD_MS, at), &far, 1));
        assert_eq!(near.count, KNOWN_MAX);
        near.take(AHEAD_MS + 5_000);
        note(&mut near, (AHEAD_MS, 0), &far, 1);
        assert_eq!(near.count, 1, "what is past makes room");
    }

    /// What is known of the slot of 1000 whose units are linked so.
    fn linked(units: &[(i64, i64)]) -> Marks {
        let mut near = Near::default();
        for (position, previous) in units {
            let log_offset = position.cast_unsigned();
            near.note(1_000, (log_offset, 100), (&mark(1_500), unit(*position, *previous)), 0);
        }
        near.take(1_000)
    }

    #[test]
    fn a_slot_is_known_whole_only_if_no_unit_is_missing_at_either_end_or_within() {
        let whole = [(52, -1), (104, 52), (208, 104)];
        assert!(linked(&whole).is_all_of(208));
        assert!(!linked(&whole).is_all_of(260), "one stands behind the last");
        assert!(!linked(&[(52, 0), (104, 52)]).is_all_of(104), "one stands in front of the first");
        assert!(!linked(&[(52, -1), (156, 104), (208, 156)]).is_all_of(208), "one is missing");
        assert!(!linked(&[]).is_all_of(-1) && !Marks::default().is_all_of(0), "nothing is known");
    }

    #[test]
    fn the_timers_of_a_slot_that_is_known_whole_are_those_of_its_units() {
        let mut whole = Whole::default();
        let mut near = Near::default();
        for at in 0..5_u64 {
            let known = (&mark(1_001 + at.cast_signed()), unit(at.cast_signed(), at.cast_signed() - 1));
            near.note(1_000, (at * 100, 70), known, 0);
        }
        whole.0.push_back(near.take(1_000));
        let mut taken = Vec::new();
        let mut counts = Vec::new();
        while let Some((slot_ms, count)) = whole.take(2, |waiting| taken.push(waiting)) {
            assert_eq!(slot_ms, 1_000);
            counts.push(count);
        }
        assert_eq!(counts, [2, 2, 1]);
        let of_units = (0..5).map(|at| {
            let mark = Mark { slot_ms: 1_000, ..mark(1_001 + at) };
            Waiting::of(&mark, (at.cast_unsigned() * 100, 70), (1_000, 0))
        });
        assert_eq!(taken, of_units.collect::<Vec<_>>());
        assert!(whole.is_empty());
    }
}
