//! Room: how many pulls the whole node holds.
//!
//! Invariants:
//! - of a room no more places are taken than the limit says, and below it nobody is turned away;
//! - a place is given back when it is dropped, on whatever thread that happens; nobody waits for a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the pulls on hold at all queues; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Room(Arc<AtomicUsize>);

/// The place of one pull; dropping it gives it back.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

/// There is no place: who asks is answered SYSTEM_BUSY with these figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{taken} pulls held at the node, heldPullsNodeMax = {max} allows no more")]
pub struct NoPlace {
    /// Pulls on hold.
    pub taken: usize,
    /// The most that may be.
    pub max: usize,
}

impl Room {
    /// Takes a place of `max`, or says how many are taken.
    pub fn take(&self, max: usize) -> Result<Place, NoPlace> {
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => Ok(Place(self.0.clone())),
            Err(taken) => Err(NoPlace { taken, max }),
        }
    }

    /// Places that are taken now.
    pub fn taken(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_says_how_full_it_is_and_has_a_place_again_when_one_is_dropped() {
        let room = Room::default();
        let (first, second) = (room.take(2).unwrap(), room.clone().take(2).unwrap());
        assert_eq!(room.take(2).unwrap_err(), NoPlace { taken: 2, max: 2 });
        drop(first);
        assert_eq!(room.taken(), 1);
        let third = room.take(2).unwrap();
        assert_eq!(room.take(1).unwrap_err(), NoPlace { taken: 2, max: 1 }, "the limit may have sunk");
        drop((second, third));
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn threads_that_come_at_once_get_all_places_and_not_one_more() {
        const THREADS: usize = 4;
        let room = Room::default();
        let takers: Vec<_> = (0..THREADS)
            .map(|_| {
                let room = room.clone();
                std::thread::spawn(move || (0..100).filter_map(|_| room.take(250).ok()).collect::<Vec<_>>())
            })
            .collect();
        let places: Vec<_> = takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
        assert_eq!((places.len(), room.taken()), (250, 250));
        drop(places);
        assert_eq!(room.taken(), 0);
    }
}
