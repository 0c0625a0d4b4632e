//! How far each delay level has been delivered, and what is due next.
//!
//! Invariants:
//! - plain state: time is an argument;
//! - a level is delivered in the order of its queue: what is not due holds up what is behind it;
//! - what its record says of a message counts more than its unit, where that was looked up;
//! - what waits in a level that the setting has no more is delivered as well, when it was to be;
//! - the place of a level moves on only past what was stored;
//! - what the disk cannot read now is left behind and tried again, and the place that is saved stays in front of it:
//!   what was delivered from behind it is found in the log after a start.

use std::collections::BTreeMap;

use troupemq_store::Unit;
use troupemq_store::dispatch::delay_levels::DelayLevels;

use crate::delayed::pause_ms;

/// Messages taken from one level at a time: the other levels wait no longer than for these.
pub const TAKEN_MAX: usize = 512;
/// Messages that are left behind, as the disk cannot read them; of more the first holds its level up.
const LEFT_MAX: usize = 4_096;

/// A message that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Its level.
    pub level: i32,
    /// Its unit.
    pub unit: Unit,
}

impl Due {
    fn place(&self) -> (i32, i64) {
        (self.level, self.unit.queue_offset)
    }

    /// When it is due. One that lies further ahead than its level allows was stored under another clock and is due at
    /// once, and so is one that is lost: it is only passed.
    pub fn due_ms(&self, levels: &DelayLevels, now_ms: i64) -> i64 {
        let stored = self.unit.tags_code;
        let is_far = levels.of(self.level).is_some_and(|delay_ms| stored > now_ms.saturating_add(delay_ms));
        if is_far || self.unit.is_hole() { now_ms } else { stored }
    }
}

/// The places of all levels.
#[derive(Debug)]
pub struct Places {
    levels: DelayLevels,
    /// The last level in which something may wait.
    last: i32,
    next: BTreeMap<i32, i64>,
    /// The message of each level that was last looked up, as its record has it.
    looked_up: BTreeMap<i32, Unit>,
    /// Messages that others have passed, as the disk could not read them, by level and queue offset.
    left: BTreeMap<(i32, i64), Left>,
}

/// A message that is tried again.
#[derive(Debug)]
struct Left {
    unit: Unit,
    tries: u32,
    again_ms: i64,
}

impl Places {
    /// Levels that were delivered up to these queue offsets, up to the last one that has a queue.
    pub fn new(levels: DelayLevels, saved: BTreeMap<i32, i64>, last: i32) -> Places {
        let last = last.max(levels.max());
        Places { levels, last, next: saved, looked_up: BTreeMap::new(), left: BTreeMap::new() }
    }

    /// The levels in which something may wait.
    pub fn levels(&self) -> impl Iterator<Item = i32> + use<> {
        1..=self.last
    }

    /// The next offset of each level.
    pub fn next(&self) -> &BTreeMap<i32, i64> {
        &self.next
    }

    /// Where each level goes on after the next start: not behind what it has left.
    pub fn table(&self) -> BTreeMap<i32, i64> {
        let mut table = self.next.clone();
        for (level, queue_offset) in self.left.keys() {
            table.entry(*level).and_modify(|next| *next = (*next).min(*queue_offset));
        }
        table
    }

    /// Where a level goes on, within what its queue has.
    pub fn place(&self, level: i32, min: i64, max: i64) -> i64 {
        self.next.get(&level).copied().unwrap_or(min).clamp(min, max.max(min))
    }

    /// Takes what is due from the units of a level, which begin at its place. Then says which is the next and when it
    /// is due, if there is one.
    pub fn take(
        &self,
        level: i32,
        units: impl IntoIterator<Item = Unit>,
        now_ms: i64,
        due: &mut Vec<Due>,
    ) -> Option<(Due, i64)> {
        for unit in units.into_iter().take(TAKEN_MAX) {
            let next = Due { level, unit: self.as_looked_up(level, &unit).unwrap_or(unit) };
            let at_ms = self.due_ms(&next, now_ms);
            if at_ms > now_ms {
                return Some((next, at_ms));
            }
            due.push(next);
        }
        None
    }

    /// A message of a level was looked up.
    pub fn looked_up(&mut self, one: Due) {
        self.looked_up.insert(one.level, one.unit);
    }

    /// What the record of a unit says, if it was the last of its level to be looked up.
    pub fn as_looked_up(&self, level: i32, unit: &Unit) -> Option<Unit> {
        self.looked_up.get(&level).filter(|known| known.queue_offset == unit.queue_offset).copied()
    }

    /// What was taken is stored, or need not be.
    pub fn passed(&mut self, due: &Due) {
        if self.left.remove(&due.place()).is_none() {
            self.next.insert(due.level, due.unit.next_offset());
        }
    }

    /// What was taken cannot be read now: it is left behind, and tried again after a while. Answers how often it was
    /// tried.
    pub fn leave(&mut self, due: &Due, now_ms: i64) -> u32 {
        let left = self.left.entry(due.place()).or_insert_with(|| {
            self.next.insert(due.level, due.unit.next_offset());
            Left { unit: due.unit, tries: 0, again_ms: 0 }
        });
        left.tries = left.tries.saturating_add(1);
        left.again_ms = now_ms.saturating_add(pause_ms(left.tries));
        left.tries
    }

    /// How many more may be left behind.
    pub fn room(&self) -> usize {
        LEFT_MAX.saturating_sub(self.left.len())
    }

    /// Whether something is left behind.
    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Takes what is to be tried again; answers when the next is.
    pub fn again(&self, now_ms: i64, due: &mut Vec<Due>) -> Option<i64> {
        let (again, later): (Vec<_>, Vec<_>) =
            self.left.iter().partition(|(_, left)| left.again_ms <= now_ms);
        due.extend(
            again.iter().take(TAKEN_MAX).map(|((level, _), left)| Due { level: *level, unit: left.unit }),
        );
        later.iter().map(|(_, left)| left.again_ms).min()
    }

    fn due_ms(&self, one: &Due, now_ms: i64) -> i64 {
        one.due_ms(&self.levels, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places::new(DelayLevels::parse("1s 5s").unwrap(), BTreeMap::from([(1, 3)]), 0)
    }

    fn unit(queue_offset: i64, due_ms: i64) -> Unit {
        Unit { queue_offset, log_offset: 100, size: 100, tags_code: due_ms, count: 1 }
    }

    fn taken(places: &Places, level: i32, units: &[Unit], now_ms: i64) -> (Vec<i64>, Option<i64>) {
        let mut due = Vec::new();
        let next = places.take(level, units.iter().copied(), now_ms, &mut due);
        (due.iter().map(|due| due.unit.queue_offset).collect(), next.map(|(_, at_ms)| at_ms))
    }

    #[test]
    fn so_many_of_a_level_are_taken_at_a_time_and_the_next_turn_goes_on() {
        let count = i64::try_from(TAKEN_MAX).unwrap();
        let units: Vec<Unit> = (3..3 + 2 * count).map(|at| unit(at, 1000)).collect();
        assert_eq!(taken(&places(), 1, &units, 1000), ((3..3 + count).collect(), None));
    }

    #[test]
    fn nothing_is_taken_before_its_time_and_nothing_overtakes() {
        let units = [unit(3, 1000), unit(4, 1001), unit(5, 999)];
        let places = places();
        assert_eq!(taken(&places, 1, &units, 999), (vec![], Some(1000)));
        assert_eq!(taken(&places, 1, &units, 1000), (vec![3], Some(1001)));
        assert_eq!(taken(&places, 1, &units, 1001), (vec![3, 4, 5], None));
    }

    #[test]
    fn a_time_beyond_the_level_is_another_clocks_and_due_at_once() {
        assert_eq!(taken(&places(), 1, &[unit(3, 2000)], 1000), (vec![], Some(2000)));
        assert_eq!(taken(&places(), 1, &[unit(3, 2001)], 1000), (vec![3], None));
    }

    #[test]
    fn a_level_that_the_setting_has_no_more_is_looked_at_and_keeps_its_times() {
        let few = || DelayLevels::parse("1s 5s").unwrap();
        assert_eq!(places().levels().collect::<Vec<_>>(), [1, 2]);
        let places = Places::new(few(), BTreeMap::new(), 4);
        assert_eq!(places.levels().collect::<Vec<_>>(), [1, 2, 3, 4]);
        let units = [unit(0, 7_200_000)];
        assert_eq!(taken(&places, 4, &units, 1000), (vec![], Some(7_200_000)));
        assert_eq!(taken(&places, 4, &units, 7_200_000), (vec![0], None));
    }

    #[test]
    fn what_was_looked_up_counts_more_than_the_unit_that_is_there() {
        let mut places = places();
        let units = [unit(3, 1500), unit(4, 1000)];
        assert_eq!(
            taken(&places, 1, &units, 1000),
            (vec![], Some(1500)),
            "a damaged time holds the level up"
        );
        assert_eq!(places.as_looked_up(1, &units[0]), None);
        places.looked_up(Due { level: 1, unit: unit(3, 900) });
        assert_eq!(taken(&places, 1, &units, 1000), (vec![3, 4], None));
        places.looked_up(Due { level: 1, unit: unit(3, 1500).without_record() });
        assert_eq!(taken(&places, 1, &units, 1000), (vec![3, 4], None), "what is lost is only passed");
        assert_eq!(taken(&places, 2, &units, 1000), (vec![], Some(1500)), "another level has its own");
    }

    #[test]
    fn a_place_stays_within_its_queue() {
        let mut places = places();
        assert_eq!((places.place(1, 0, 10), places.place(1, 5, 10), places.place(1, 0, 2)), (3, 5, 2));
        assert_eq!(places.place(2, 7, 10), 7);
        places.passed(&Due { level: 1, unit: unit(3, 0) });
        assert_eq!(places.table(), BTreeMap::from([(1, 4)]));
    }

    #[test]
    fn what_cannot_be_read_is_left_behind_tried_again_and_saved_as_not_delivered() {
        let mut places = places();
        let due = |at| Due { level: 1, unit: unit(at, 1000) };
        assert_eq!(places.leave(&due(3), 1000), 1);
        places.passed(&due(4));
        assert_eq!((places.place(1, 0, 10), places.table()), (5, BTreeMap::from([(1, 3)])));
        assert_eq!(places.next(), &BTreeMap::from([(1, 5)]));
        let again = |places: &Places, now_ms| {
            let mut due = Vec::new();
            let next_ms = places.again(now_ms, &mut due);
            (due.iter().map(|due| due.unit.queue_offset).collect::<Vec<_>>(), next_ms)
        };
        assert_eq!(again(&places, 1_999), (vec![], Some(2_000)));
        assert_eq!(again(&places, 2_000), (vec![3], None));
        assert_eq!(places.leave(&due(3), 2_000), 2);
        assert_eq!(again(&places, 2_001), (vec![], Some(4_000)));
        places.passed(&due(3));
        assert_eq!((places.table(), places.has_left()), (BTreeMap::from([(1, 5)]), false));
    }

    #[test]
    fn a_bounded_number_is_left_behind() {
        let mut places = places();
        for at in (3..).take(LEFT_MAX) {
            assert!(places.room() > 0);
            places.leave(&Due { level: 1, unit: unit(at, 1000) }, 1000);
        }
        assert_eq!(places.room(), 0);
    }
}
