//! What sends tell of the timers they have stored: these are entered without a look at their records.
//!
//! Invariants:
//! - it is only a short cut: what was not told of a timer its record says;
//! - so many are known at most; what is told beyond that is forgotten, and so is what was entered already.

use std::collections::VecDeque;

use actix::{Context, Handler, Message};
use troupemq_store::Unit;

use super::Timer;
use super::enqueue::Mark;

/// Timers that are known.
const KNOWN_MAX: usize = 65_536;

/// What messages of the timer topic say, by their log offsets, ascending. Sent by sessions when they are stored, for
/// the sake of speed only.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TellTimers(pub Vec<(u64, Mark)>);

impl Handler<TellTimers> for Timer {
    type Result = ();

    fn handle(&mut self, TellTimers(marks): TellTimers, _: &mut Context<Timer>) {
        self.told.note(marks);
    }
}

/// What was told and is not entered.
#[derive(Debug, Default)]
pub(super) struct Told(VecDeque<(u64, Mark)>);

impl Told {
    /// Notes marks by their log offsets, ascending. What stands behind the first of them is gone through once, however
    /// many they are.
    fn note(&mut self, marks: Vec<(u64, Mark)>) {
        let Some((first, _)) = marks.first() else { return };
        // Mostly they stand behind all others: only batches of several threads cross each other.
        let mut behind = match self.0.back() {
            Some((last, _)) if last > first => {
                self.0.split_off(self.0.partition_point(|(known, _)| known < first))
            }
            _ => VecDeque::new(),
        };
        for told in marks {
            while let Some(known) = behind.pop_front_if(|(known, _)| *known < told.0) {
                self.0.push_back(known);
            }
            self.0.push_back(told);
        }
        self.0.append(&mut behind);
        self.0.truncate(KNOWN_MAX);
    }

    /// Takes what was told of a message of the timer topic. They are asked for in their order: what was told of those
    /// before it is forgotten.
    pub(super) fn take(&mut self, unit: &Unit) -> Option<Mark> {
        while self.0.front().is_some_and(|(log_offset, _)| *log_offset < unit.log_offset) {
            self.0.pop_front();
        }
        let is_it = |(log_offset, mark): &mut (u64, Mark)| {
            *log_offset == unit.log_offset && mark.queue_offset == unit.queue_offset
        };
        self.0.pop_front_if(is_it).map(|(_, mark)| mark)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn told(log_offset: u64) -> (u64, Mark) {
        let queue_offset = log_offset.cast_signed();
        let mark = Mark { queue_offset, due_ms: 7, ..Mark::default() };
        (log_offset, mark)
    }

    fn unit(queue_offset: i64) -> Unit {
        Unit { queue_offset, log_offset: queue_offset.cast_unsigned(), size: 100, tags_code: 0, count: 1 }
    }

    #[test]
    fn what_was_told_is_found_by_place_whatever_batch_was_told_first() {
        let mut known = Told::default();
        known.note(vec![told(300), told(400)]);
        known.note(vec![told(100), told(200)]);
        known.note(vec![told(500)]);
        let mut due = |at| known.take(&unit(at)).map(|mark| mark.due_ms);
        assert_eq!([due(100), due(150), due(300), due(300)], [Some(7), None, Some(7), None]);
        assert_eq!(known.take(&Unit { queue_offset: 1, ..unit(400) }), None, "it is another message");
        assert_eq!(known.take(&unit(500)).map(|mark| mark.queue_offset), Some(500));
        assert!(known.0.is_empty(), "what is passed is forgotten");
    }

    #[test]
    fn batches_that_cross_each_other_stand_in_one_order_and_the_last_are_forgotten() {
        let mut known = Told::default();
        let batch = |numbers: Range<u64>, of: u64| numbers.map(|number| told(number * 3 + of)).collect();
        known.note(batch(0..100, 0));
        known.note(batch(20..50, 1));
        known.note(batch(40..110, 2));
        known.note(Vec::new());
        let mut wanted: Vec<u64> = (0..100).map(|number| number * 3).collect();
        wanted.extend((20..50).map(|number| number * 3 + 1).chain((40..110).map(|number| number * 3 + 2)));
        wanted.sort_unstable();
        let found = |known: &Told| known.0.iter().map(|(log_offset, _)| *log_offset).collect::<Vec<_>>();
        assert_eq!(found(&known), wanted);
        known.note(batch(200..KNOWN_MAX as u64 * 2, 0));
        known.note(batch(150..160, 1));
        assert_eq!(known.0.len(), KNOWN_MAX);
        assert!(found(&known).is_sorted() && found(&known).contains(&451));
    }

    #[test]
    fn a_bounded_number_is_told_and_what_was_entered_makes_room() {
        let mut known = Told::default();
        known.note((0..KNOWN_MAX as u64 + 10).map(told).collect());
        assert_eq!(known.0.len(), KNOWN_MAX);
        assert!(known.take(&unit(KNOWN_MAX as i64 + 5)).is_none());
        known.note(vec![told(1 << 40)]);
        assert_eq!(known.0.len(), 1);
    }
}
