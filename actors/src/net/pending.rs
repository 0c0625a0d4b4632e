//! Calls of ours that wait for the peer's answer: opaque to waiter.
//!
//! Invariants:
//! - an opaque is not used again while its call waits;
//! - a waiter is answered at most once; a dropped table fails all who wait;
//! - the table is bounded: beyond `max` a call is refused, after those whose waiter has given up are forgotten.

use std::collections::HashMap;

use crate::held::Held;

/// Most calls that wait for one peer. Java clients allow 65 535.
pub const CALLS_MAX: usize = 65_535;

/// The table of one connection.
#[derive(Debug)]
pub struct Pending<T> {
    next_opaque: i32,
    max: usize,
    waiters: HashMap<i32, Held<T>>,
}

impl<T> Pending<T> {
    /// An empty table for at most `max` calls.
    pub fn new(max: usize) -> Pending<T> {
        Pending { next_opaque: 0, max, waiters: HashMap::new() }
    }

    /// Takes a call in and numbers it; gives the waiter back when too many wait.
    pub fn add(&mut self, waiter: Held<T>) -> Result<i32, Held<T>> {
        if self.waiters.len() >= self.max {
            self.waiters.retain(|_, waiter| !waiter.is_abandoned());
        }
        if self.waiters.len() >= self.max {
            return Err(waiter);
        }
        while self.waiters.contains_key(&self.next_opaque) {
            self.next_opaque = next(self.next_opaque);
        }
        let opaque = self.next_opaque;
        self.next_opaque = next(opaque);
        self.waiters.insert(opaque, waiter);
        Ok(opaque)
    }

    /// The waiter of an answer that came; none when it is not waited for.
    pub fn take(&mut self, opaque: i32) -> Option<Held<T>> {
        self.waiters.remove(&opaque)
    }

    /// How many calls wait.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
}

/// The number after `opaque`; never negative, as some clients mask the sign away.
fn next(opaque: i32) -> i32 {
    opaque.checked_add(1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::hold;

    #[test]
    fn an_answer_finds_its_waiter_once() {
        let mut pending = Pending::new(4);
        let (held, _waiting) = hold::<u8>();
        let opaque = pending.add(held).expect("there is room");
        assert!(pending.take(opaque).is_some());
        assert!(pending.take(opaque).is_none());
    }

    #[test]
    fn numbers_go_round_and_skip_those_in_use() {
        let mut pending = Pending::new(4);
        let (first, _first) = hold::<u8>();
        assert_eq!(pending.add(first).expect("there is room"), 0);
        pending.next_opaque = i32::MAX;
        let (second, _second) = hold();
        assert_eq!(pending.add(second).expect("there is room"), i32::MAX);
        let (third, _third) = hold();
        assert_eq!(pending.add(third).expect("there is room"), 1);
    }

    #[test]
    fn a_full_table_forgets_who_gave_up_and_then_refuses() {
        let mut pending = Pending::new(1);
        let (first, waiting) = hold::<u8>();
        pending.add(first).expect("there is room");
        let (second, _second) = hold();
        let refused = pending.add(second).expect_err("full");
        drop(waiting);
        assert_eq!(pending.add(refused).expect("the first gave up"), 1);
        assert_eq!(pending.len(), 1);
    }
}
