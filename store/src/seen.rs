//! What of a file was seen in memory a moment ago, so that readers need not ask the system for each record.
//!
//! Invariants:
//! - only a part whose pages were all in memory is remembered as such, and for no longer than `FRESH_S`;
//! - what was not in memory is asked about again each time, but no more than is wanted of it;
//! - a wrong memory costs a wait for the disk, nothing else.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a stretch: the system is asked about all of it at once.
pub(crate) const STRETCH_BYTES: usize = 1 << 20;
/// Bytes of a part of a stretch, of which one bit says whether it was in memory.
pub(crate) const PART_BYTES: usize = STRETCH_BYTES / 32;
/// How long a look holds, in seconds: what was in memory and is read now is not what the system gives up next.
const FRESH_S: u32 = 2;

/// The last look at each stretch of a file: a bit for each part that was in memory, and above them when that was, in
/// seconds of any clock, plus one; 0 = never. Made on first need.
#[derive(Debug, Default)]
pub(crate) struct Seen(OnceLock<Box<[AtomicU64]>>);

impl Seen {
    /// Where the pages end that are in memory from the start of `range` on, or were a moment ago; none if they do not
    /// reach to its end. The file is written up to `end` of `len` bytes; `resident` asks the system about a range of
    /// one stretch: a bit for each part of the stretch, the first is the lowest, of which all that the range has is in
    /// memory.
    pub(crate) fn known_to(
        &self,
        (range, end, len): (Range<usize>, usize, usize),
        now_s: u32,
        resident: impl Fn(Range<usize>) -> u32,
    ) -> Option<usize> {
        let make = || (0..len.div_ceil(STRETCH_BYTES)).map(|_| AtomicU64::new(0)).collect();
        let seen = self.0.get_or_init(make);
        let range = range.start..range.end.min(end);
        if range.is_empty() {
            return Some(range.end);
        }
        let first = range.start / STRETCH_BYTES;
        let touched = seen.get(first..range.end.div_ceil(STRETCH_BYTES)).unwrap_or_default();
        let mut known_to = range.end;
        for (index, look) in (first..).zip(touched) {
            let stretch = index * STRETCH_BYTES..((index + 1) * STRETCH_BYTES).min(end);
            let wanted = range.start.max(stretch.start)..range.end.min(stretch.end);
            let there = fresh(look.load(Ordering::Relaxed), now_s).unwrap_or_else(|| {
                let there = resident(stretch.clone());
                look.store(u64::from(now_s.saturating_add(1)) << 32 | u64::from(there), Ordering::Relaxed);
                there
            });
            let (from, to) = (part_of(wanted.start), part_of(wanted.end - 1));
            let run = (there >> from).trailing_ones() as usize;
            if run > to - from {
                known_to = (stretch.start + (from + run) * PART_BYTES).min(stretch.end);
            } else if (resident(wanted.clone()) >> from).trailing_ones() as usize > to - from {
                known_to = wanted.end;
            } else {
                return None;
            }
        }
        Some(known_to)
    }
}

/// The number of the part that holds byte `at` of a file, in its stretch.
pub(crate) fn part_of(at: usize) -> usize {
    at % STRETCH_BYTES / PART_BYTES
}

/// The bits of a look, if it still holds.
fn fresh(look: u64, now_s: u32) -> Option<u32> {
    let [seen_at, there] =
        [look >> 32, look & u64::from(u32::MAX)].map(|half| u32::try_from(half).expect("32 bits"));
    let seen_s = seen_at.checked_sub(1)?;
    (now_s.saturating_sub(seen_s) < FRESH_S).then_some(there)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const LEN: usize = 3 * STRETCH_BYTES;

    /// What a system answers that has the bytes of `there` in memory.
    fn answer(there: &Range<usize>, asked: Range<usize>) -> u32 {
        let stretch = asked.start / STRETCH_BYTES * STRETCH_BYTES;
        (0..32).fold(0, |bits, part| {
            let part_from = stretch + part * PART_BYTES;
            let of_part = asked.start.max(part_from)..asked.end.min(part_from + PART_BYTES);
            let is_there = of_part.is_empty() || there.start <= of_part.start && of_part.end <= there.end;
            bits | u32::from(is_there) << part
        })
    }

    #[test]
    fn a_stretch_in_memory_is_asked_about_once_in_two_seconds() {
        let (seen, asked) = (Seen::default(), RefCell::new(Vec::new()));
        let ask = |range: Range<usize>| {
            asked.borrow_mut().push(range.clone());
            answer(&(0..LEN), range)
        };
        let border = STRETCH_BYTES - 10..STRETCH_BYTES + 10;
        for now_s in [0, 1] {
            assert_eq!(seen.known_to((border.clone(), LEN, LEN), now_s, ask), Some(2 * STRETCH_BYTES));
            assert_eq!(asked.borrow()[..], [0..STRETCH_BYTES, STRETCH_BYTES..2 * STRETCH_BYTES]);
        }
        assert!(seen.known_to((border, LEN, LEN), 2, ask).is_some());
        assert_eq!(asked.borrow().len(), 4);
    }

    #[test]
    fn of_a_stretch_that_is_partly_on_the_disk_what_is_there_is_asked_about_once() {
        let (seen, asked) = (Seen::default(), RefCell::new(Vec::new()));
        let there = PART_BYTES + 4096..3 * PART_BYTES;
        let ask = |range: Range<usize>| {
            asked.borrow_mut().push(range.clone());
            answer(&there, range)
        };
        let known_to = |range, now_s| seen.known_to((range, LEN, LEN), now_s, ask);
        for now_s in [7, 8] {
            assert_eq!(known_to(2 * PART_BYTES + 1..2 * PART_BYTES + 9, now_s), Some(there.end));
        }
        assert_eq!(asked.take().len(), 1);
        let in_part = there.start..2 * PART_BYTES + 9;
        for now_s in [7, 8] {
            assert_eq!(
                known_to(in_part.clone(), now_s),
                Some(in_part.end),
                "it begins in the midst of a part"
            );
        }
        assert_eq!(asked.take(), [in_part.clone(), in_part.clone()]);
        for beyond in [there.start - 1..there.end, there.start..there.end + 1, LEN - 1..LEN] {
            assert_eq!(known_to(beyond, 8), None);
        }
    }

    #[test]
    fn nothing_is_asked_about_behind_the_end_of_what_is_written() {
        let (seen, end) = (Seen::default(), STRETCH_BYTES + 5000);
        let resident = |asked: Range<usize>| {
            assert!(asked.end <= end, "{asked:?}");
            answer(&(STRETCH_BYTES + 4096..end), asked)
        };
        for now_s in [7, 7, 8] {
            let known_to = |range| seen.known_to((range, end, LEN), now_s, resident);
            assert_eq!(known_to(STRETCH_BYTES + 4096..LEN), Some(end));
            assert_eq!(known_to(STRETCH_BYTES..STRETCH_BYTES + 4097), None);
        }
        for behind in [end + PART_BYTES, LEN] {
            for nothing in [behind..behind + 1, end..end, end - 1..end - 1] {
                let known_to = seen.known_to((nothing, end, LEN), 7, |_| 0);
                assert!(known_to.is_some(), "nothing is there to be read");
            }
        }
    }
}
