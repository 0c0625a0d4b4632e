//! Who waits until the name servers know of a change.
//!
//! Invariants:
//! - a name server without a connection is not waited for, and one whose step failed no longer;
//! - what is on its way when the change comes does not tell it: the step after it does.

use crate::held::Held;

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<Waiter>);

#[derive(Debug)]
struct Waiter {
    /// Steps to go, by name server.
    steps: Vec<u8>,
    held: Held<()>,
}

impl Waiters {
    /// Somebody waits for these steps of the name servers.
    pub(super) fn add(&mut self, steps: Vec<u8>, held: Held<()>) {
        self.0.push(Waiter { steps, held });
        self.settle();
    }

    /// A step of a name server is done.
    pub(super) fn done(&mut self, server: usize) {
        for steps in self.0.iter_mut().filter_map(|waiter| waiter.steps.get_mut(server)) {
            *steps = steps.saturating_sub(1);
        }
        self.settle();
    }

    /// A name server cannot be told now.
    pub(super) fn failed(&mut self, server: usize) {
        for steps in self.0.iter_mut().filter_map(|waiter| waiter.steps.get_mut(server)) {
            *steps = 0;
        }
        self.settle();
    }

    fn settle(&mut self) {
        let is_over =
            |waiter: &mut Waiter| waiter.held.is_abandoned() || waiter.steps.iter().all(|left| *left == 0);
        for waiter in self.0.extract_if(.., is_over) {
            waiter.held.answer(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::{Waiting, hold};

    fn waiting(waiters: &mut Waiters, steps: &[u8]) -> Waiting<()> {
        let (held, waiting) = hold();
        waiters.add(steps.to_vec(), held);
        waiting
    }

    fn is_told(waiting: &mut Waiting<()>) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(waiting).poll(&mut context).is_ready()
    }

    #[test]
    fn each_connected_name_server_is_waited_for_and_the_others_are_not() {
        let mut waiters = Waiters::default();
        let mut nobody = waiting(&mut waiters, &[0, 0]);
        let mut both = waiting(&mut waiters, &[1, 2]);
        assert!(is_told(&mut nobody));
        waiters.done(0);
        waiters.done(1);
        assert!(!is_told(&mut both));
        waiters.done(1);
        assert!(is_told(&mut both));
    }

    #[test]
    fn a_name_server_that_fails_is_waited_for_no_longer() {
        let mut waiters = Waiters::default();
        let mut told = waiting(&mut waiters, &[2, 0]);
        waiters.failed(1);
        assert!(!is_told(&mut told));
        waiters.failed(0);
        assert!(is_told(&mut told));
    }

    #[test]
    fn who_no_longer_waits_is_forgotten() {
        let mut waiters = Waiters::default();
        drop(waiting(&mut waiters, &[1]));
        waiters.failed(7);
        assert!(waiters.0.is_empty());
    }
}
