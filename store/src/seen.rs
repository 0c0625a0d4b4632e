//! What of a file was seen in memory a moment ago, so that readers need not ask the system for each record.
//!
//! Invariants:
//! - only a stretch whose pages were all in memory is remembered, and for no longer than `FRESH_S`;
//! - a wrong memory costs a wait for the disk, nothing else.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a stretch.
const STRETCH_BYTES: usize = 1 << 20;
/// How long a look holds, in seconds: what was in memory and is read now is not what the system gives up next.
const FRESH_S: u32 = 2;

/// When each stretch of a file was seen in memory: seconds of any clock, plus one; 0 = never. Made on first need.
#[derive(Debug, Default)]
pub(crate) struct Seen(OnceLock<Box<[AtomicU32]>>);

impl Seen {
    /// Where the pages end that are in memory from the start of `range` on, or were a moment ago; none if they do not
    /// reach to its end. The file is written up to `end` of `len` bytes; `is_resident` asks the system.
    pub(crate) fn known_to(
        &self,
        (range, end, len): (Range<usize>, usize, usize),
        now_s: u32,
        is_resident: impl Fn(Range<usize>) -> bool,
    ) -> Option<usize> {
        let make = || (0..len.div_ceil(STRETCH_BYTES)).map(|_| AtomicU32::new(0)).collect();
        let seen = self.0.get_or_init(make);
        let range = range.start..range.end.min(end);
        let first = range.start / STRETCH_BYTES;
        let touched = seen.get(first..range.end.div_ceil(STRETCH_BYTES)).unwrap_or_default();
        let mut known_to = range.end;
        for (index, seen_at) in (first..).zip(touched) {
            let stretch = index * STRETCH_BYTES..((index + 1) * STRETCH_BYTES).min(end);
            if is_fresh(seen_at.load(Ordering::Relaxed), now_s) {
                known_to = stretch.end;
            } else if is_resident(stretch.clone()) {
                seen_at.store(now_s.saturating_add(1), Ordering::Relaxed);
                known_to = stretch.end;
            } else if is_resident(range.start.max(stretch.start)..range.end.min(stretch.end)) {
                known_to = range.end;
            } else {
                return None;
            }
        }
        Some(known_to)
    }
}

fn is_fresh(seen_at: u32, now_s: u32) -> bool {
    seen_at.checked_sub(1).is_some_and(|seen_s| now_s.saturating_sub(seen_s) < FRESH_S)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const LEN: usize = 3 * STRETCH_BYTES;

    #[test]
    fn a_stretch_in_memory_is_asked_about_once_in_two_seconds() {
        let (seen, asked) = (Seen::default(), RefCell::new(Vec::new()));
        let ask = |range: Range<usize>| {
            asked.borrow_mut().push(range);
            true
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
    fn of_a_stretch_that_is_partly_on_the_disk_each_range_is_asked_about() {
        let (seen, end) = (Seen::default(), STRETCH_BYTES + 5000);
        let is_resident = |range: Range<usize>| range.start >= STRETCH_BYTES + 4096 && range.end <= end;
        for now_s in [7, 7, 8] {
            let known_to = |range| seen.known_to((range, end, LEN), now_s, is_resident);
            assert_eq!(known_to(STRETCH_BYTES + 4096..LEN), Some(end));
            assert_eq!(known_to(STRETCH_BYTES..STRETCH_BYTES + 4097), None);
        }
        assert!(
            seen.known_to((LEN..LEN + 1, end, LEN), 7, |_| false).is_some(),
            "nothing is there to be read"
        );
    }
}
