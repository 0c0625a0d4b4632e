//! Batch queues: the unit of an offset is searched, its place does not follow from the offset.
//!
//! Invariants:
//! - units are sorted by the offset of their first message and leave no gap;
//! - the search reads only units below the published end.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use super::unit::BATCH_UNIT_BYTES;
use super::{ConsumeQueue, Unit};

const BYTES: u64 = BATCH_UNIT_BYTES as u64;

impl ConsumeQueue {
    /// Byte position of the unit that holds the message with this offset.
    pub(super) fn batch_position(&self, queue_offset: i64) -> Option<u64> {
        let Ok(found) =
            self.search_batch(queue_offset, |position| Ok::<_, Infallible>(self.unit_at(position)));
        found
    }

    /// The same where the units, read by `unit_at`, may not be had.
    pub(super) fn search_batch<E>(
        &self,
        queue_offset: i64,
        unit_at: impl Fn(u64) -> Result<Option<Unit>, E>,
    ) -> Result<Option<u64>, E> {
        let Some(first) = self.files.list().first().map(|file| file.start() / BYTES) else { return Ok(None) };
        let end = self.end.load(Ordering::Acquire) / BYTES;
        let starts_after =
            |index: u64| Ok(unit_at(index * BYTES)?.is_none_or(|unit| unit.queue_offset > queue_offset));
        let behind = try_search(first, end, starts_after)?;
        let last = behind.checked_sub(1).filter(|index| *index >= first);
        let Some(position) = last.map(|index| index * BYTES) else { return Ok(None) };
        let holds = unit_at(position)?.is_some_and(|unit| queue_offset < unit.next_offset());
        Ok(holds.then_some(position))
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
