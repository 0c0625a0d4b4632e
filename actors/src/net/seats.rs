//! Seats: which arbiter takes the next connection.
//!
//! Invariants:
//! - a connection goes where the fewest are; of equal arbiters the first takes it, since the log is there;
//! - a seat is free again when the connection it was for has ended, however it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The seats of some arbiters, by their numbers.
#[derive(Debug)]
pub struct Seats(Vec<Arc<AtomicUsize>>);

/// The place of one connection; free when it is dropped.
#[derive(Debug)]
pub struct Seat(Arc<AtomicUsize>);

impl Seats {
    /// Nobody sits anywhere yet.
    pub fn of(arbiters: usize) -> Seats {
        Seats((0..arbiters).map(|_| Arc::default()).collect())
    }

    /// A seat, and the number of its arbiter; none if there are no arbiters.
    pub fn take(&self) -> Option<(usize, Seat)> {
        let counts = self.0.iter().map(|taken| taken.load(Ordering::Relaxed));
        let (number, _) = counts.enumerate().min_by_key(|(_, taken)| *taken)?;
        let taken = self.0.get(number)?;
        taken.fetch_add(1, Ordering::Relaxed);
        Some((number, Seat(taken.clone())))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_where_the_fewest_are_and_else_to_the_first() {
        let seats = Seats::of(3);
        let (numbers, mut taken): (Vec<_>, Vec<_>) = (0..4).filter_map(|_| seats.take()).unzip();
        assert_eq!(numbers, [0, 1, 2, 0]);
        drop(taken.remove(1));
        assert_eq!(seats.take().map(|(number, _)| number), Some(1));
        drop(taken);
        assert_eq!(seats.take().map(|(number, _)| number), Some(0));
        assert!(Seats::of(0).take().is_none());
    }
}
