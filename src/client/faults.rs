//! Which brokers a producer avoids for a while: those that failed, and those that were slow.
//! Java: `MQFaultStrategy`, `LatencyFaultToleranceImpl`.
//!
//! Invariants:
//! - how long a broker is avoided follows from its last answer alone; a quick one makes it welcome at once;
//! - who is avoided is still used when nobody else is left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;
use troupemq_codec::Text;

/// From which latency on a broker is avoided, and how long.
const PENALTIES: [(Duration, Duration); 5] = [
    (Duration::from_secs(15), Duration::from_secs(600)),
    (Duration::from_secs(3), Duration::from_secs(180)),
    (Duration::from_secs(2), Duration::from_secs(120)),
    (Duration::from_secs(1), Duration::from_secs(60)),
    (Duration::from_millis(550), Duration::from_secs(30)),
];
/// What a failure counts as.
const FAILURE: Duration = Duration::from_secs(30);

/// The brokers to avoid.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Until when, by name.
    avoided: DashMap<Text, Instant>,
    /// Whether there ever was one: most producers never look further.
    is_used: AtomicBool,
}

impl Faults {
    /// A broker answered after `latency`.
    pub(crate) fn answered(&self, broker: &Text, latency: Duration, now: Instant) {
        match penalty(latency) {
            Some(penalty) => self.avoid(broker, now + penalty),
            None if !self.is_used() => {}
            None => drop(self.avoided.remove(broker)),
        }
    }

    /// A broker could not be reached or did not answer.
    pub(crate) fn failed(&self, broker: &Text, now: Instant) {
        if let Some(penalty) = penalty(FAILURE) {
            self.avoid(broker, now + penalty);
        }
    }

    /// Whether a broker may be chosen.
    pub(crate) fn is_welcome(&self, broker: &Text, now: Instant) -> bool {
        !self.is_used() || self.avoided.get(broker).is_none_or(|until| *until <= now)
    }

    fn avoid(&self, broker: &Text, until: Instant) {
        tracing::debug!(%broker, "broker avoided for a while");
        self.avoided.insert(broker.clone(), until);
        self.is_used.store(true, Ordering::Release);
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }
}

fn penalty(latency: Duration) -> Option<Duration> {
    PENALTIES.iter().find(|(from, _)| latency >= *from).map(|(_, penalty)| *penalty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_broker_is_avoided_as_long_as_rocketmqs_table_says() {
        let seconds =
            |latency_ms| penalty(Duration::from_millis(latency_ms)).map(|penalty| penalty.as_secs());
        let asked = [1, 549, 550, 999, 1000, 2000, 3000, 14_999, 15_000, 99_999];
        let expected = [0, 0, 30, 30, 60, 120, 180, 180, 600, 600];
        assert_eq!(asked.map(|latency_ms| seconds(latency_ms).unwrap_or(0)), expected);
    }

    #[test]
    fn a_quick_answer_makes_a_broker_welcome_again() {
        let (faults, now) = (Faults::default(), Instant::now());
        let broker = Text::from("b");
        faults.failed(&broker, now);
        assert!(!faults.is_welcome(&broker, now + Duration::from_secs(599)));
        assert!(faults.is_welcome(&broker, now + Duration::from_secs(600)));
        assert!(faults.is_welcome(&"other".into(), now));
        faults.answered(&broker, Duration::from_millis(3), now);
        assert!(faults.is_welcome(&broker, now));
    }
}
