//! Slots of the wheel that are open: their timers in the order in which they are due.
//!
//! Invariants:
//! - plain state: time is an argument;
//! - nothing is taken before it is due, and nothing that is cancelled in its slot;
//! - a unit that stands twice in the files counts once;
//! - a slot is done when all its units were read and each was delivered, cancelled or entered again.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::deliver::READ_MAX;
use super::enqueue::Mark;
use crate::delayed::{Aim, pause_ms};

/// Timers taken at a time.
pub const TAKEN_MAX: usize = 512;
/// Slots opened at a time.
const OPENED_MAX: usize = 256;
/// Times whose room is kept when they are over, and how many timers it is for at most: 6 MB.
const SPARE_MAX: usize = 64;
const SPARE_TIMERS: usize = 512;
/// Timers in open slots above which no further slot is opened ahead.
const OPEN_MAX: usize = 65_536;

/// A timer of an open slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// When something is to be done with it, epoch ms.
    pub due_ms: i64,
    /// The slot in which it stands, epoch ms.
    pub slot_ms: i64,
    /// When it was entered, epoch ms.
    pub entered_ms: i64,
    /// Its record.
    pub log_offset: u64,
    /// Bytes of its record.
    pub size: u32,
    /// Hashes of its names.
    pub names: [u64; 2],
    /// Where it goes.
    pub aim: Aim,
    /// What its record says, if it goes to another slot instead of to its topic.
    pub rolls: Option<Box<Mark>>,
    /// How often its record could not be read.
    pub tries: u32,
}

/// The open slots.
#[derive(Debug)]
pub struct OpenSlots {
    /// By the time when they are due; those of one time in the order of the log.
    waiting: BTreeMap<i64, VecDeque<Waiting>>,
    /// Room of times that are over, for those that come.
    spare: Vec<VecDeque<Waiting>>,
    count: usize,
    slots: BTreeMap<i64, Slot>,
    open_to_ms: i64,
    cancelled: u64,
}

#[derive(Debug, Default)]
struct Slot {
    /// Units that are not read yet.
    unread: usize,
    /// Timers that are not done.
    left: usize,
    cancelled: HashSet<u64>,
}

impl OpenSlots {
    /// No open slot; those before `open_to_ms` are over.
    pub fn new(open_to_ms: i64) -> OpenSlots {
        let (waiting, slots) = (BTreeMap::new(), BTreeMap::new());
        OpenSlots { waiting, spare: Vec::new(), count: 0, slots, open_to_ms, cancelled: 0 }
    }

    /// The first slot that is not open.
    pub fn open_to_ms(&self) -> i64 {
        self.open_to_ms
    }

    /// Notes that all slots before this time are open or empty.
    pub fn opened_to(&mut self, open_to_ms: i64) {
        self.open_to_ms = self.open_to_ms.max(open_to_ms);
    }

    /// Opens slots before `to_ms`, each `step_ms` wide, as many as there is room for; the others when there is.
    /// `next` gives the first slot from a time on that has units, and how many.
    pub fn open_ahead<E>(
        &mut self,
        to_ms: i64,
        step_ms: i64,
        mut next: impl FnMut(i64) -> Result<Option<(i64, usize)>, E>,
    ) -> Result<(), E> {
        let (mut slots, mut units) = (0, 0);
        while self.waiting() < OPEN_MAX && units < READ_MAX && slots < OPENED_MAX {
            let Some((slot_ms, more)) = next(self.open_to_ms)? else {
                self.opened_to(to_ms);
                break;
            };
            (slots, units) = (slots + 1, units + more);
            self.opened_to(slot_ms + step_ms);
        }
        Ok(())
    }

    /// Timers that wait in open slots.
    pub fn waiting(&self) -> usize {
        self.count
    }

    /// Timers that were cancelled so far.
    pub fn cancelled(&self) -> u64 {
        self.cancelled
    }

    /// Notes that so many units of a slot will be read.
    pub fn will_read(&mut self, slot_ms: i64, units: usize) {
        self.slots.entry(slot_ms).or_default().unread += units;
    }

    /// Notes that a unit of a slot was read.
    pub fn read(&mut self, slot_ms: i64) {
        self.read_all(slot_ms, 1);
    }

    /// Notes that so many units of a slot were read.
    pub fn read_all(&mut self, slot_ms: i64, units: usize) {
        let slot = self.slots.entry(slot_ms).or_default();
        slot.unread = slot.unread.saturating_sub(units);
    }

    /// Takes in a timer that stands in an open slot.
    pub fn add(&mut self, waiting: Waiting) {
        let slot_ms = waiting.slot_ms;
        if self.put(waiting) {
            self.slots.entry(slot_ms).or_default().left += 1;
        }
    }

    /// Puts a timer in its place; tells whether it was not there yet. Mostly it is the last of its time.
    fn put(&mut self, waiting: Waiting) -> bool {
        let due = self.waiting.entry(waiting.due_ms).or_insert_with(|| self.spare.pop().unwrap_or_default());
        if due.back().is_none_or(|last| last.log_offset < waiting.log_offset) {
            due.push_back(waiting);
        } else {
            let at = due.binary_search_by_key(&waiting.log_offset, |one| one.log_offset);
            let Err(at) = at else { return false };
            due.insert(at, waiting);
        }
        self.count += 1;
        true
    }

    /// Takes in a cancellation that stands in an open slot.
    pub fn cancel(&mut self, slot_ms: i64, name: u64) {
        self.slots.entry(slot_ms).or_default().cancelled.insert(name);
    }

    /// Takes timers that are due at `until_ms`, the earliest first, as many as make a batch: at most
    /// [`TAKEN_MAX`], with `fits` telling whether the next one fits.
    pub fn take(&mut self, until_ms: i64, mut fits: impl FnMut(&Waiting) -> bool) -> Vec<Waiting> {
        let mut taken = Vec::with_capacity(self.count.min(TAKEN_MAX));
        while let Some(mut due) = self.waiting.first_entry().filter(|due| *due.key() <= until_ms) {
            while let Some(waiting) = due.get_mut().pop_front() {
                let slot = self.slots.get_mut(&waiting.slot_ms);
                if taken.len() >= TAKEN_MAX {
                    due.get_mut().push_front(waiting);
                    return taken;
                } else if let Some(slot) =
                    slot.filter(|slot| waiting.rolls.is_none() && slot.cancels(&waiting))
                {
                    slot.left = slot.left.saturating_sub(1);
                    self.cancelled += 1;
                    self.count -= 1;
                } else if fits(&waiting) {
                    taken.push(waiting);
                    self.count -= 1;
                } else {
                    due.get_mut().push_front(waiting);
                    return taken;
                }
            }
            let room = due.remove();
            if self.spare.len() < SPARE_MAX && room.capacity() <= SPARE_TIMERS {
                self.spare.push(room);
            }
        }
        taken
    }

    /// Puts a timer back that was taken and is not done.
    pub fn put_back(&mut self, waiting: Waiting) {
        self.put(waiting);
    }

    /// Puts a timer back that was taken and cannot be read now: it is due again after a while. Answers in how many
    /// milliseconds.
    pub fn put_off(&mut self, mut waiting: Waiting, now_ms: i64) -> i64 {
        waiting.tries = waiting.tries.saturating_add(1);
        let pause_ms = pause_ms(waiting.tries);
        waiting.due_ms = now_ms.saturating_add(pause_ms);
        self.put_back(waiting);
        pause_ms
    }

    /// Notes that a timer that was taken is done.
    pub fn done(&mut self, slot_ms: i64) {
        if let Some(slot) = self.slots.get_mut(&slot_ms) {
            slot.left = slot.left.saturating_sub(1);
        }
    }

    /// Whether an open slot has nothing left.
    pub fn is_done(&self, slot_ms: i64) -> bool {
        let is_done = |slot: &Slot| slot.unread == 0 && slot.left == 0;
        slot_ms < self.open_to_ms && self.slots.get(&slot_ms).is_none_or(is_done)
    }

    /// Forgets the slots before a time: they are over.
    pub fn close_before(&mut self, time_ms: i64) {
        self.slots = self.slots.split_off(&time_ms);
    }

    /// When something is to be done next, epoch ms.
    pub fn next_ms(&self) -> Option<i64> {
        self.waiting.first_key_value().map(|(due_ms, _)| *due_ms)
    }
}

impl Slot {
    fn cancels(&self, waiting: &Waiting) -> bool {
        waiting.names.iter().any(|name| self.cancelled.contains(name))
    }
}

impl Waiting {
    /// The timer of a record in the slot of `slot_ms`, as its mark says.
    pub fn of(mark: &Mark, (log_offset, size): (u64, u32), (slot_ms, entered_ms): (i64, i64)) -> Waiting {
        let rolls = (mark.slot_ms > slot_ms).then(|| Box::new(*mark));
        Waiting {
            due_ms: if rolls.is_some() { slot_ms } else { mark.due_ms },
            slot_ms,
            entered_ms,
            log_offset,
            size,
            names: mark.names,
            aim: mark.aim,
            rolls,
            tries: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn timer(log_offset: u64, due_ms: i64) -> Waiting {
        let slot_ms = (due_ms - 1) / 1000 * 1000;
        Waiting {
            due_ms,
            slot_ms,
            entered_ms: 0,
            log_offset,
            size: 100,
            names: [log_offset, log_offset + 500],
            aim: Aim::default(),
            rolls: None,
            tries: 0,
        }
    }

    fn slots(timers: &[(u64, i64)]) -> OpenSlots {
        let mut slots = OpenSlots::new(0);
        slots.opened_to(10_000);
        timers.iter().for_each(|(log_offset, due_ms)| slots.add(timer(*log_offset, *due_ms)));
        slots
    }

    fn taken(slots: &mut OpenSlots, until_ms: i64) -> Vec<u64> {
        slots.take(until_ms, |_| true).iter().map(|waiting| waiting.log_offset).collect()
    }

    #[test]
    fn timers_come_when_they_are_due_and_in_that_order() {
        let mut slots = slots(&[(1, 700), (2, 300), (3, 300), (4, 1300)]);
        assert_eq!((slots.next_ms(), taken(&mut slots, 299)), (Some(300), vec![]));
        assert_eq!(taken(&mut slots, 300), [2, 3]);
        assert_eq!(taken(&mut slots, 1299), [1]);
        assert_eq!((slots.next_ms(), slots.waiting()), (Some(1300), 1));
    }

    #[test]
    fn a_slot_is_done_when_each_of_its_timers_is() {
        let mut slots = slots(&[(1, 700), (2, 300)]);
        slots.will_read(0, 1);
        taken(&mut slots, 1000).into_iter().for_each(|_| slots.done(0));
        assert!(!slots.is_done(0), "a unit is not read");
        slots.read(0);
        assert!(slots.is_done(0) && slots.is_done(5000) && !slots.is_done(10_000));
    }

    #[test]
    fn a_cancellation_counts_in_its_slot_by_either_name_and_before_or_behind_its_timer() {
        let mut slots = slots(&[(1, 700), (2, 800), (3, 1700)]);
        slots.cancel(0, 1);
        slots.cancel(0, 502);
        slots.cancel(0, 3);
        assert_eq!(taken(&mut slots, 5000), [3], "of another slot");
        assert!(slots.is_done(0) && slots.cancelled() == 2);
        slots.cancel(2000, 9);
        slots.add(timer(9, 2500));
        assert!(taken(&mut slots, 5000).is_empty());
    }

    #[test]
    fn what_was_not_delivered_comes_again_and_what_stands_twice_once() {
        let mut slots = slots(&[(1, 700), (1, 700), (2, 800)]);
        let first = slots.take(5000, |waiting| waiting.log_offset == 1);
        assert_eq!(first.len(), 1);
        first.into_iter().for_each(|waiting| slots.put_back(waiting));
        assert_eq!(taken(&mut slots, 5000), [1, 2]);
        slots.done(0);
        assert!(!slots.is_done(0));
        slots.done(0);
        assert!(slots.is_done(0));
    }

    #[test]
    fn what_cannot_be_read_is_due_again_later_and_holds_its_slot_open_but_no_other_timer_up() {
        let mut slots = slots(&[(1, 700), (2, 800)]);
        let mut both = slots.take(1000, |_| true);
        let second = both.remove(1);
        assert_eq!(slots.put_off(both.remove(0), 1000), 1_000);
        slots.done(second.slot_ms);
        assert_eq!((taken(&mut slots, 1_999), slots.is_done(0)), (vec![], false));
        let again = slots.take(2_000, |_| true).remove(0);
        assert_eq!(slots.put_off(again, 2_000), 2_000);
        slots.cancel(0, 1);
        assert_eq!((taken(&mut slots, 9_000), slots.is_done(0)), (vec![], true), "it was recalled meanwhile");
    }

    #[test]
    fn a_wheel_that_cannot_be_read_opens_no_slot() {
        let mut slots = OpenSlots::new(0);
        assert_eq!(slots.open_ahead(9_000, 1000, |_| Err("unreadable")), Err("unreadable"));
        assert_eq!(slots.open_to_ms(), 0);
    }

    /// Opens slots of one second before `to_ms`, each with so many units; the time to which they are open then.
    fn opened(slots: &mut OpenSlots, to_ms: i64, units: usize) -> i64 {
        let next = |from_ms| Ok::<_, Infallible>((from_ms < to_ms).then_some((from_ms, units)));
        let Ok(()) = slots.open_ahead(to_ms, 1000, next);
        slots.open_to_ms()
    }

    #[test]
    fn no_slot_is_opened_ahead_while_too_many_timers_wait_in_open_ones() {
        let many: Vec<_> = (0..OPEN_MAX as u64).map(|number| (number, 500)).collect();
        let mut slots = slots(&many);
        assert_eq!((slots.waiting(), opened(&mut slots, 15_000, 1)), (OPEN_MAX, 10_000));
        assert_eq!(taken(&mut slots, 500).len(), TAKEN_MAX);
        assert_eq!(opened(&mut slots, 15_000, 1), 15_000, "there is room again");
    }

    #[test]
    fn so_many_slots_and_units_are_opened_at_a_time() {
        assert_eq!(opened(&mut OpenSlots::new(0), 1_000_000, 1), 1000 * OPENED_MAX as i64);
        assert_eq!(opened(&mut OpenSlots::new(0), 1_000_000, READ_MAX / 2), 2000);
        assert_eq!(
            opened(&mut OpenSlots::new(0), 1_000_000, READ_MAX + 1),
            1000,
            "a large slot is opened whole"
        );
    }

    #[test]
    fn a_batch_is_bounded() {
        let many: Vec<_> = (0..2000).map(|number| (number, 500)).collect();
        let mut slots = slots(&many);
        assert_eq!(taken(&mut slots, 500).len(), TAKEN_MAX);
    }
}
