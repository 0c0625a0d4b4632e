//! `Together`: what comes one by one and is stored in batches. Plain state.
//!
//! Invariants:
//! - one batch is under way; what comes meanwhile is the next one, in its order: nothing waits for the disk behind
//!   another but once;
//! - a batch has a limit of number and of bytes, but for a single piece that is larger;
//! - the number of those that wait, and of those that places are reserved for, is bounded.

use std::collections::VecDeque;

/// Pieces that are stored together, and their bytes; one at least.
const TOGETHER_MAX: usize = 256;
const TOGETHER_BYTES: usize = 1 << 20;
/// Pieces that wait or are awaited; there is no place for one more.
pub const WAITING_MAX: usize = 65_536;

/// Pieces that wait for the batch under way.
#[derive(Debug)]
pub struct Together<T> {
    waiting: VecDeque<T>,
    reserved: usize,
    is_storing: bool,
}

impl<T> Default for Together<T> {
    fn default() -> Together<T> {
        Together { waiting: VecDeque::new(), reserved: 0, is_storing: false }
    }
}

impl<T> Together<T> {
    /// Reserves a place for a piece that will be added, or released; tells whether there was one.
    pub fn reserve(&mut self) -> bool {
        let has_room = self.waiting.len() + self.reserved < WAITING_MAX;
        self.reserved += usize::from(has_room);
        has_room
    }

    /// Gives a place back: its piece does not come.
    pub fn release(&mut self) {
        self.reserved -= 1;
    }

    /// Takes in a piece that a place was reserved for; tells whether it is the first, so that somebody has to see to
    /// the batch.
    pub fn add(&mut self, piece: T) -> bool {
        self.release();
        self.waiting.push_back(piece);
        self.waiting.len() == 1 && !self.is_storing
    }

    /// Whether something waits.
    pub fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether as many wait as are stored together.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= TOGETHER_MAX
    }

    /// The next batch, in the order in which its pieces came; none while one is under way.
    pub fn begin(&mut self, bytes_of: impl Fn(&T) -> usize) -> Option<Vec<T>> {
        if self.is_storing || self.waiting.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let fits = |piece: &&T| {
            bytes += bytes_of(piece);
            bytes <= TOGETHER_BYTES
        };
        let count = self.waiting.iter().take(TOGETHER_MAX).take_while(fits).count().max(1);
        self.is_storing = true;
        Some(self.waiting.drain(..count).collect())
    }

    /// The batch is stored, or refused.
    pub fn ended(&mut self) {
        self.is_storing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece: its number and its bytes.
    type Piece = (usize, usize);

    fn add(together: &mut Together<Piece>, piece: Piece) -> bool {
        assert!(together.reserve(), "there is room");
        together.add(piece)
    }

    fn taken(together: &mut Together<Piece>) -> Option<Vec<usize>> {
        together.begin(|piece| piece.1).map(|batch| batch.iter().map(|piece| piece.0).collect())
    }

    #[test]
    fn what_comes_while_a_batch_is_stored_is_the_next_batch() {
        let mut together = Together::default();
        assert_eq!(taken(&mut together), None);
        assert_eq!([1, 2].map(|at| add(&mut together, (at, 10))), [true, false]);
        assert_eq!(taken(&mut together), Some(vec![1, 2]));
        assert!(!add(&mut together, (3, 10)), "a batch is under way");
        assert_eq!(taken(&mut together), None);
        together.ended();
        assert_eq!(taken(&mut together), Some(vec![3]));
    }

    #[test]
    fn what_is_stored_together_has_a_limit_of_number_and_bytes_but_for_a_single_piece() {
        let mut together = Together::default();
        (0..300).for_each(|at| {
            add(&mut together, (at, 100));
            assert_eq!((together.has_more(), together.is_full()), (true, at + 1 >= TOGETHER_MAX));
        });
        assert_eq!(taken(&mut together).map(|batch| batch.len()), Some(TOGETHER_MAX));
        together.ended();
        assert_eq!(taken(&mut together).map(|batch| batch.len()), Some(44));
        together.ended();
        for bytes in [TOGETHER_BYTES + 1, 10, TOGETHER_BYTES - 10, 1] {
            add(&mut together, (0, bytes));
        }
        let sizes: Vec<_> = std::iter::from_fn(|| {
            together.ended();
            taken(&mut together).map(|batch| batch.len())
        })
        .collect();
        assert_eq!(sizes, [1, 2, 1]);
    }

    #[test]
    fn what_waits_and_what_is_awaited_is_bounded_and_every_end_makes_room() {
        let mut together = Together::default();
        (0..WAITING_MAX - 2).for_each(|at| _ = add(&mut together, (at, 0)));
        assert!(together.reserve() && together.reserve() && !together.reserve());
        together.release();
        assert!(together.reserve() && !together.reserve());
        together.add((0, 0));
        assert!(!together.reserve(), "it waits now");
        taken(&mut together).expect("a batch");
        (0..TOGETHER_MAX).for_each(|_| assert!(together.reserve()));
        assert!(!together.reserve());
    }
}
