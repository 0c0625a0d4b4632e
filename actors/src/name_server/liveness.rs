//! Liveness: when each broker was last heard of, and over which connection it registered.
//!
//! Invariants:
//! - a broker is known by cluster and address; one broker has one entry, that of its newest registration;
//! - a broker is gone when it was silent for longer than it promised, or at once when the connection of its
//!   newest registration closes; the end of an older connection means nothing.

use std::collections::HashMap;

use troupemq_codec::Text;
use troupemq_codec::topic::DataVersion;

use crate::net::LinkId;

/// What a broker is known by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrokerAddress {
    /// Its cluster.
    pub cluster: Text,
    /// Where it listens, `host:port`.
    pub address: Text,
}

/// One living broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alive {
    /// The connection of its newest registration.
    pub link: LinkId,
    /// When it was last heard of, epoch ms.
    pub heard_ms: i64,
    /// Longest silence it promised, in ms.
    pub silence_max_ms: i64,
    /// Version of the topics it registered last.
    pub version: DataVersion,
    /// Where its slaves connect, `host:port`.
    pub ha_address: Text,
}

/// All living brokers.
#[derive(Debug, Default)]
pub struct Liveness {
    brokers: HashMap<BrokerAddress, Alive>,
}

impl Liveness {
    /// A broker registered; replaces what was known of it.
    pub fn registered(&mut self, broker: BrokerAddress, alive: Alive) {
        self.brokers.insert(broker, alive);
    }

    /// What is known of a broker.
    pub fn get(&self, broker: &BrokerAddress) -> Option<&Alive> {
        self.brokers.get(broker)
    }

    /// A broker gave a sign of life; tells whether it is known.
    pub fn heard(&mut self, broker: &BrokerAddress, now_ms: i64) -> bool {
        let alive = self.brokers.get_mut(broker);
        if let Some(alive) = alive {
            alive.heard_ms = alive.heard_ms.max(now_ms);
            return true;
        }
        false
    }

    /// Forgets a broker.
    pub fn remove(&mut self, broker: &BrokerAddress) -> Option<Alive> {
        self.brokers.remove(broker)
    }

    /// The brokers whose newest registration came by this connection.
    pub fn by_link(&self, link: LinkId) -> Vec<BrokerAddress> {
        self.select(|alive| alive.link == link)
    }

    /// The brokers that were silent for too long.
    pub fn silent(&self, now_ms: i64) -> Vec<BrokerAddress> {
        self.select(|alive| now_ms.saturating_sub(alive.heard_ms) > alive.silence_max_ms)
    }

    /// How many brokers live.
    pub fn len(&self) -> usize {
        self.brokers.len()
    }

    /// Whether none lives.
    pub fn is_empty(&self) -> bool {
        self.brokers.is_empty()
    }

    fn select(&self, is_wanted: impl Fn(&Alive) -> bool) -> Vec<BrokerAddress> {
        let mut found: Vec<BrokerAddress> = self
            .brokers
            .iter()
            .filter(|(_, alive)| is_wanted(alive))
            .map(|(broker, _)| broker.clone())
            .collect();
        found.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(address: &'static str) -> BrokerAddress {
        BrokerAddress { cluster: Text::from_static("c"), address: Text::from_static(address) }
    }

    fn alive(link: u64, heard_ms: i64) -> Alive {
        Alive {
            link: LinkId(link),
            heard_ms,
            silence_max_ms: 120_000,
            version: DataVersion::default(),
            ha_address: Text::default(),
        }
    }

    #[test]
    fn a_broker_is_silent_only_after_its_whole_silence() {
        let mut liveness = Liveness::default();
        liveness.registered(broker("a:1"), alive(1, 1000));
        assert_eq!(liveness.silent(121_000), []);
        assert_eq!(liveness.silent(121_001), [broker("a:1")]);
        assert!(liveness.heard(&broker("a:1"), 60_000));
        assert_eq!(liveness.silent(180_000), []);
        assert!(!liveness.heard(&broker("b:1"), 60_000));
    }

    #[test]
    fn a_clock_that_goes_back_makes_nobody_silent() {
        let mut liveness = Liveness::default();
        liveness.registered(broker("a:1"), alive(1, 500_000));
        liveness.heard(&broker("a:1"), 1);
        assert_eq!(liveness.silent(0), []);
        assert_eq!(liveness.silent(i64::MIN), []);
        assert_eq!(liveness.silent(620_001), [broker("a:1")]);
    }

    #[test]
    fn a_connection_stands_for_the_brokers_that_registered_last_by_it() {
        let mut liveness = Liveness::default();
        liveness.registered(broker("a:1"), alive(1, 0));
        liveness.registered(broker("b:1"), alive(1, 0));
        liveness.registered(broker("a:1"), alive(2, 0));
        assert_eq!(liveness.by_link(LinkId(1)), [broker("b:1")]);
        assert_eq!(liveness.by_link(LinkId(2)), [broker("a:1")]);
        assert_eq!(liveness.len(), 2);
    }
}
