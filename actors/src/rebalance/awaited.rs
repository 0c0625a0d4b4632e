//! Pulls that came before the heart-beat which registers their subscription.
//!
//! Invariants:
//! - each is told once: when its subscription is there, or, where too many wait, at once and in vain;
//! - whoever has gone is forgotten with the next heart-beat.

use troupemq_codec::Text;

use crate::held::Held;

/// Pulls of a group that may wait.
const WAITING_MAX: usize = 4096;

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Awaited(Vec<(Text, i64, Held<()>)>);

impl Awaited {
    /// Has someone told when the subscription of a topic is at least this new.
    pub(super) fn add(&mut self, topic: Text, version: i64, held: Held<()>) {
        match self.0.len() < WAITING_MAX {
            true => self.0.push((topic, version, held)),
            false => held.answer(()),
        }
    }

    /// Tells those whose subscriptions are there; `version` says how new that of a topic is.
    pub(super) fn tell(&mut self, version: impl Fn(&str) -> Option<i64>) {
        let is_told = |(topic, wanted, held): &mut (Text, i64, Held<()>)| {
            held.is_abandoned() || version(topic).is_some_and(|version| version >= *wanted)
        };
        self.0.extract_if(.., is_told).for_each(|(.., held)| held.answer(()));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::held::{Waiting, hold};

    fn add(awaited: &mut Awaited, topic: &str, version: i64) -> Waiting<()> {
        let (held, waiting) = hold();
        awaited.add(Text::from(topic), version, held);
        waiting
    }

    fn is_told(waiting: &mut Waiting<()>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(waiting).poll(&mut context) == Poll::Ready(Ok(()))
    }

    #[test]
    fn who_waits_is_told_when_his_subscription_is_new_enough_and_no_sooner() {
        let mut awaited = Awaited::default();
        let (mut of_t, mut of_u) = (add(&mut awaited, "T", 5), add(&mut awaited, "U", 5));
        awaited.tell(|topic| (topic == "T").then_some(4));
        assert!(!is_told(&mut of_t));
        awaited.tell(|topic| (topic == "T").then_some(5));
        assert!(is_told(&mut of_t) && !is_told(&mut of_u));
        drop(of_u);
        awaited.tell(|_| None);
        assert!(awaited.0.is_empty(), "who has gone is forgotten");
    }

    #[test]
    fn of_too_many_the_next_is_told_at_once() {
        let mut awaited = Awaited::default();
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| add(&mut awaited, "T", 1)).collect();
        assert!(is_told(&mut add(&mut awaited, "T", 1)));
        assert_eq!((awaited.0.len(), waiting.len()), (WAITING_MAX, WAITING_MAX));
    }
}
