//! Room: how many pulls are held, of one connection or in the whole node.
//!
//! Invariants:
//! - of a room no more places are taken than the limit says, and below it nobody is turned away;
//! - a place is given back when it is dropped, on whatever thread that happens; nobody waits for a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts pulls on hold, at whatever queues; cheap to clone.
#[derive(Debug, Clone)]
pub struct Room {
    /// Whose pulls they are, and the setting that limits them.
    of: [&'static str; 2],
    taken: Arc<AtomicUsize>,
}

/// The place of one pull; dropping it gives it back.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

/// There is no place: who asks is answered SYSTEM_BUSY with these figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{taken} pulls held {}, {} = {max} allows no more", of[0], of[1])]
pub struct NoPlace {
    /// Whose, and the setting that limits them.
    of: [&'static str; 2],
    /// Pulls on hold.
    pub taken: usize,
    /// The most that may be.
    pub max: usize,
}

impl Room {
    /// The room of a whole node.
    pub fn of_node() -> Room {
        Room { of: ["at the node", "heldPullsNodeMax"], taken: Arc::default() }
    }

    /// The room of one connection.
    pub fn of_connection() -> Room {
        Room { of: ["for the connection", "heldPullsConnectionMax"], taken: Arc::default() }
    }

    /// Takes a place of `max`, or says how many are taken.
    pub fn take(&self, max: usize) -> Result<Place, NoPlace> {
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        match self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => Ok(Place(self.taken.clone())),
            Err(taken) => Err(NoPlace { of: self.of, taken, max }),
        }
    }

    /// Places that are taken now.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
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
        let room = Room::of_node();
        let (first, second) = (room.take(2).unwrap(), room.clone().take(2).unwrap());
        let full = room.take(2).unwrap_err();
        assert_eq!(full.to_string(), "2 pulls held at the node, heldPullsNodeMax = 2 allows no more");
        drop(first);
        assert_eq!(room.taken(), 1);
        let third = room.take(2).unwrap();
        let full = room.take(1).unwrap_err();
        assert_eq!((full.taken, full.max), (2, 1), "the limit may have sunk");
        drop((second, third));
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn threads_that_come_at_once_get_all_places_and_not_one_more() {
        const THREADS: usize = 4;
        let room = Room::of_node();
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
