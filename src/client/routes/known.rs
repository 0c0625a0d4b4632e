//! A route as it is remembered, and when it is to be asked for again.
//!
//! Invariants:
//! - one at a time asks for it, and after a try that failed nobody does before [`PAUSE`] is over;
//! - a route that every name server denies stands for [`DENIED`]: a name server that has just started knows no broker.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Route;

/// Age at which a route is asked for again.
const FRESH: Duration = Duration::from_secs(30);
/// How long a name server that did not answer is left alone.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a route is believed against name servers that deny it: brokers register every 30 s.
const DENIED: Duration = Duration::from_secs(120);

/// The route of a topic, and how far it can be trusted.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) route: Arc<Route>,
    pub(super) stale_at: Instant,
    is_asked_for: bool,
    denied_since: Option<Instant>,
}

impl Known {
    /// A route that a name server just told.
    pub(super) fn new(route: Arc<Route>, now: Instant) -> Known {
        Known { route, stale_at: now + FRESH, is_asked_for: false, denied_since: None }
    }

    /// Whether it is to be asked for again and nobody does so yet.
    pub(super) fn wants_asking(&self, now: Instant) -> bool {
        !self.is_asked_for && self.stale_at <= now
    }

    /// The same for somebody who comes by seldom: half as old is old enough.
    pub(super) fn wants_asking_soon(&self, now: Instant) -> bool {
        self.wants_asking(now + FRESH / 2)
    }

    /// Somebody asks for it from now on.
    pub(super) fn asked_for(&mut self) {
        self.is_asked_for = true;
    }

    /// It may be wrong: who needs it next has it asked for.
    pub(super) fn doubted(&mut self, now: Instant) {
        self.stale_at = self.stale_at.min(now);
    }

    /// No name server answered.
    pub(super) fn unanswered(&mut self, now: Instant) {
        (self.is_asked_for, self.stale_at) = (false, now + PAUSE);
    }

    /// No name server that answered knows the topic; tells whether the route still stands.
    pub(super) fn denied(&mut self, now: Instant) -> bool {
        self.unanswered(now);
        now < *self.denied_since.get_or_insert(now) + DENIED
    }
}

#[cfg(test)]
mod tests {
    use troupemq_codec::route::TopicRouteData;

    use super::*;

    fn known(now: Instant) -> Known {
        Known::new(Arc::new(Route::new("t", TopicRouteData::default())), now)
    }

    #[test]
    fn a_route_is_asked_for_when_it_is_old_or_doubted_and_by_one_only() {
        let begin = Instant::now();
        let mut route = known(begin);
        assert!(!route.wants_asking(begin + FRESH / 2) && route.wants_asking_soon(begin + FRESH / 2));
        assert!(route.wants_asking(begin + FRESH));
        route.doubted(begin);
        assert!(route.wants_asking(begin));
        route.asked_for();
        assert!(!route.wants_asking(begin + FRESH));
        route.unanswered(begin);
        assert!(!route.wants_asking(begin + PAUSE / 2), "it is asked for again after a pause only");
        assert!(route.wants_asking(begin + PAUSE));
    }

    #[test]
    fn a_route_that_is_denied_stands_until_its_broker_had_time_to_register() {
        let begin = Instant::now();
        let mut route = known(begin);
        let first = begin + Duration::from_secs(300);
        assert!(route.denied(first));
        assert!(route.denied(first + DENIED / 2));
        assert!(!route.denied(first + DENIED));
    }
}
