//! Batch queues: the unit of an offset is searched, its place does not follow from the offset.
//!
//! Invariants:
//! - units are sorted by the offset of their first message and leave no gap;
//! - the search reads only units below the published end.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use super::ConsumeQueue;
use super::unit::BATCH_UNIT_BYTES;

const BYTES: u64 = BATCH_UNIT_BYTES as u64;

impl ConsumeQueue {
    /// Byte position of the unit that holds the message with this offset.
    pub(super) fn batch_position(&self, queue_offset: i64) -> Option<u64> {
        let first = self.files.list().first()?.start() / BYTES;
        let end = self.end.load(Ordering::Acquire) / BYTES;
        let starts_after =
            |index: u64| self.unit_at(index * BYTES).is_none_or(|unit| unit.queue_offset > queue_offset);
        let behind = search(first, end, starts_after);
        let position = behind.checked_sub(1).filter(|index| *index >= first)? * BYTES;
        let unit = self.unit_at(position)?;
        (queue_offset < unit.next_offset()).then_some(position)
    }
}

/// The first index of `from..to` that `is_behind` accepts, or `to`; all behind it are accepted too.
pub(super) fn try_search<E>(
    from: u64,
    to: u64,
    mut is_behind: impl FnMut(u64) -> Result<bool, E>,
) -> Result<u64, E> {
    let (mut low, mut high) = (from, to);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_behind(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

/// The same where nothing can fail.
pub(super) fn search(from: u64, to: u64, mut is_behind: impl FnMut(u64) -> bool) -> u64 {
    let Ok(found) = try_search(from, to, |index| Ok::<bool, Infallible>(is_behind(index)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_the_border() {
        for border in 3..=9 {
            assert_eq!(search(3, 9, |index| index >= border), border);
        }
    }
}
