//! The route tables of a name server: clusters, brokers, topics and their queues (Java: `RouteInfoManager`).
//!
//! Invariants:
//! - a broker name stands in exactly the cluster it registered with last, and only as long as one of its
//!   addresses is known; a topic stands only as long as one broker has it;
//! - an address stands under one id of its broker name, an id has one address;
//! - topics come from the master, or from the slave with the smallest id where brokers act as masters;
//! - a registration changes the topics it names and no others; without a newer version it changes only those
//!   the broker did not have, so that a wiped permission stays wiped;
//! - what a broker took back or lost with an old connection never removes what it registered by a newer one.

mod lookup;

#[cfg(test)]
mod routes_test;

use std::collections::{BTreeMap, BTreeSet};

use troupemq_codec::Text;
use troupemq_codec::topic::{DataVersion, PERM_READ, PERM_WRITE};

use super::liveness::{Alive, BrokerAddress, Liveness};
use crate::net::LinkId;

pub use lookup::{Route, UnitTopics};

/// The id of a master.
pub const MASTER_ID: i64 = 0;
/// Silence after which a broker is gone that promised nothing, in ms.
pub const SILENCE_MAX_MS: i64 = 120_000;
/// Most (topic, broker) pairs the tables hold; what would go beyond is refused.
pub const PAIRS_MAX: usize = 4_000_000;

/// The queues of one topic on one broker (RocketMQ's `QueueData`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicQueues {
    /// Queues that are read.
    pub read_queues: i32,
    /// Queues that are written.
    pub write_queues: i32,
    /// Permission bits.
    pub perm: i32,
    /// System flag of the topic.
    pub sys_flag: i32,
}

/// One broker name: a master and its slaves (RocketMQ's `BrokerData`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BrokerEntry {
    /// The cluster.
    pub cluster: Text,
    /// Address of each id; 0 is the master.
    pub addresses: BTreeMap<i64, Text>,
    /// Whether the slave with the smallest id stands in for a lost master.
    pub acting_master: bool,
    /// Where the brokers stand, if they said so.
    pub zone: Option<Text>,
}

/// What a broker tells about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registration {
    /// The cluster.
    pub cluster: Text,
    /// The broker name.
    pub name: Text,
    /// Its id, 0 for a master.
    pub id: i64,
    /// Where it listens, `host:port`.
    pub address: Text,
    /// Where its slaves connect, `host:port`.
    pub ha_address: Text,
    /// Where it stands.
    pub zone: Option<Text>,
    /// Longest silence it promises, in ms.
    pub silence_max_ms: Option<i64>,
    /// Whether slaves act as masters; `None` from brokers that do not know of it.
    pub acting_master: Option<bool>,
    /// Version of its topics.
    pub version: DataVersion,
    /// Its topics: all, or those that changed.
    pub topics: Vec<(Text, TopicQueues)>,
    /// Whether topics that are missing are to be removed.
    pub drops_missing: bool,
}

/// What became of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// It counts. A slave learns its master.
    Accepted {
        /// The living master of the broker name, for a slave.
        master: Option<MasterOf>,
    },
    /// Another address holds this id with a newer state: ignored.
    Outdated,
    /// The first registration of an id has to name more than one topic: refused.
    Incomplete,
    /// The tables are full: refused.
    Full {
        /// (topic, broker) pairs they hold.
        has: usize,
        /// Pairs that would come on top.
        new: usize,
        /// Pairs they hold at most.
        limit: usize,
    },
}

/// Where a slave finds its master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterOf {
    /// Where the master listens.
    pub address: Text,
    /// Where its slaves connect.
    pub ha_address: Text,
}

/// The tables.
#[derive(Debug)]
pub struct RouteTables {
    /// Topic → broker name → queues.
    topics: BTreeMap<Text, BTreeMap<Text, TopicQueues>>,
    /// Broker name → addresses.
    brokers: BTreeMap<Text, BrokerEntry>,
    /// Cluster → broker names.
    clusters: BTreeMap<Text, BTreeSet<Text>>,
    liveness: Liveness,
    /// (topic, broker) pairs in `topics`.
    pairs: usize,
    pairs_max: usize,
}

impl Default for RouteTables {
    fn default() -> RouteTables {
        RouteTables {
            topics: BTreeMap::new(),
            brokers: BTreeMap::new(),
            clusters: BTreeMap::new(),
            liveness: Liveness::default(),
            pairs: 0,
            pairs_max: PAIRS_MAX,
        }
    }
}

impl RouteTables {
    /// A broker registers, by this connection.
    pub fn register(&mut self, registration: Registration, link: LinkId, now_ms: i64) -> Registered {
        if let Some(refusal) = self.refuses(&registration) {
            return refusal;
        }
        let key =
            BrokerAddress { cluster: registration.cluster.clone(), address: registration.address.clone() };
        self.leave_other_name(&registration, &key);
        let is_first = self.enter_broker(&registration);
        if self.gives_topics(&registration) {
            self.enter_topics(&registration, &key, is_first);
        }
        self.liveness.registered(
            key,
            Alive {
                link,
                heard_ms: now_ms,
                silence_max_ms: registration.silence_max_ms.unwrap_or(SILENCE_MAX_MS),
                version: registration.version,
                ha_address: registration.ha_address,
            },
        );
        let master = match registration.id {
            MASTER_ID => None,
            _ => self.master_of(&registration.name),
        };
        Registered::Accepted { master }
    }

    /// A broker takes its registration back (UNREGISTER_BROKER). Nothing happens if the address registered
    /// under another id or by another connection since. Tells whether something was removed.
    pub fn unregister(&mut self, broker: &BrokerAddress, name: &str, id: i64, link: LinkId) -> bool {
        let is_newest = self.liveness.get(broker).is_none_or(|alive| alive.link == link);
        let stands = self.brokers.get(name).is_some_and(|entry| entry.holds(broker) == Some(id));
        if is_newest && stands {
            self.remove_broker(broker);
        }
        is_newest && stands
    }

    /// A connection is closed: the brokers that registered last by it are gone. Tells which.
    pub fn link_closed(&mut self, link: LinkId) -> Vec<BrokerAddress> {
        let gone = self.liveness.by_link(link);
        gone.iter().for_each(|broker| self.remove_broker(broker));
        gone
    }

    /// Removes the brokers that were silent for too long; gives them and their connections, to be closed.
    pub fn expire(&mut self, now_ms: i64) -> Vec<(BrokerAddress, LinkId)> {
        let silent = self.liveness.silent(now_ms);
        let mut gone = Vec::with_capacity(silent.len());
        for broker in silent {
            let link = self.liveness.get(&broker).map(|alive| alive.link);
            self.remove_broker(&broker);
            gone.extend(link.map(|link| (broker, link)));
        }
        gone
    }

    /// A broker gave a sign of life; tells whether it is known.
    pub fn heard(&mut self, broker: &BrokerAddress, now_ms: i64) -> bool {
        self.liveness.heard(broker, now_ms)
    }

    /// The version of the topics a broker registered last.
    pub fn version(&self, broker: &BrokerAddress) -> Option<DataVersion> {
        self.liveness.get(broker).map(|alive| alive.version)
    }

    /// Enters queues of a topic on known brokers (REGISTER_TOPIC_IN_NAMESRV); stops at an unknown broker, or where
    /// the tables are full, and tells whether all were entered.
    pub fn enter_topic(&mut self, topic: &Text, queues: &[(Text, TopicQueues)]) -> bool {
        for (broker, queues) in queues {
            let has_room = self.pairs < self.pairs_max || self.has_queues(topic, broker);
            if !self.brokers.contains_key(broker) || !has_room {
                return false;
            }
            self.enter_queues(topic, broker, *queues);
        }
        true
    }

    /// Removes a topic, of all brokers or of one cluster's; it comes back when a broker registers it anew.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let Some(cluster) = cluster else {
            let removed = self.topics.remove(topic);
            self.pairs -= removed.map_or(0, |brokers| brokers.len());
            return;
        };
        let names = self.clusters.get(cluster).cloned().unwrap_or_default();
        for name in &names {
            self.remove_queues(topic, name);
        }
    }

    /// Takes the write permission of all queues of a broker (WIPE_WRITE_PERM_OF_BROKER); tells how many topics
    /// it has.
    pub fn wipe_write_perm(&mut self, broker: &str) -> usize {
        self.change_perms(broker, |perm| perm & !PERM_WRITE)
    }

    /// Makes all queues of a broker readable and writable (ADD_WRITE_PERM_OF_BROKER); tells how many topics it
    /// has.
    pub fn add_write_perm(&mut self, broker: &str) -> usize {
        self.change_perms(broker, |_| PERM_READ | PERM_WRITE)
    }

    /// Why a registration does not count, if it does not.
    fn refuses(&self, new: &Registration) -> Option<Registered> {
        let known = self.brokers.get(&new.name).and_then(|entry| entry.addresses.get(&new.id));
        if let Some(known) = known.filter(|known| **known != new.address) {
            let holder = BrokerAddress { cluster: new.cluster.clone(), address: known.clone() };
            let is_newer = |alive: &Alive| alive.version.state_version > new.version.state_version;
            if self.liveness.get(&holder).is_some_and(is_newer) {
                return Some(Registered::Outdated);
            }
        }
        if known.is_none() && new.topics.len() == 1 {
            return Some(Registered::Incomplete);
        }
        let (has, limit) = (self.pairs, self.pairs_max);
        if has.saturating_add(new.topics.len()) <= limit {
            return None;
        }
        // What a broker tells again takes no further room.
        let new = new.topics.iter().filter(|(topic, _)| !self.has_queues(topic, &new.name)).count();
        (has + new > limit).then_some(Registered::Full { has, new, limit })
    }

    fn has_queues(&self, topic: &str, broker: &str) -> bool {
        self.topics.get(topic).is_some_and(|brokers| brokers.contains_key(broker))
    }

    /// A broker that changed its name stands under the new one only.
    fn leave_other_name(&mut self, new: &Registration, key: &BrokerAddress) {
        let is_elsewhere =
            |(name, entry): (&Text, &BrokerEntry)| *name != new.name && entry.holds(key).is_some();
        if self.brokers.iter().any(is_elsewhere) {
            self.remove_broker(key);
        }
    }

    /// Enters cluster, name and address; tells whether this id of this name is new.
    fn enter_broker(&mut self, new: &Registration) -> bool {
        let entry = self.brokers.entry(new.name.clone()).or_default();
        if entry.cluster != new.cluster {
            // The name moves with all it has: what is left in the other cluster has to register anew.
            let cluster = std::mem::replace(&mut entry.cluster, new.cluster.clone());
            leave_cluster(&mut self.clusters, &cluster, &new.name);
            for address in std::mem::take(&mut entry.addresses).into_values() {
                self.liveness.remove(&BrokerAddress { cluster: cluster.clone(), address });
            }
        }
        self.clusters.entry(new.cluster.clone()).or_default().insert(new.name.clone());
        entry.acting_master = new.acting_master.unwrap_or(false);
        entry.zone.clone_from(&new.zone);
        // A broker that changed its role stands under its new id only.
        entry.addresses.retain(|id, address| *address != new.address || *id == new.id);
        let before = entry.addresses.insert(new.id, new.address.clone());
        if let Some(before) = before.as_ref().filter(|before| **before != new.address) {
            // Whoever held the id is replaced, its silence must not remove the name.
            let holder = BrokerAddress { cluster: new.cluster.clone(), address: before.clone() };
            self.liveness.remove(&holder);
        }
        before.is_none()
    }

    /// Whether the topics of this registration count.
    fn gives_topics(&self, new: &Registration) -> bool {
        let is_smallest = || {
            let entry = self.brokers.get(&new.name);
            entry.and_then(|entry| entry.addresses.keys().next()) == Some(&new.id)
        };
        new.id == MASTER_ID || (new.acting_master.is_some() && is_smallest())
    }

    fn enter_topics(&mut self, new: &Registration, key: &BrokerAddress, is_first: bool) {
        if new.drops_missing {
            self.drop_missing(new);
        }
        let is_changed = is_first || self.version(key) != Some(new.version);
        let is_read_only = new.id != MASTER_ID && new.acting_master == Some(true);
        for (topic, queues) in &new.topics {
            if !is_changed && self.has_queues(topic, &new.name) {
                continue;
            }
            let mut queues = *queues;
            if is_read_only {
                queues.perm &= !PERM_WRITE;
            }
            self.enter_queues(topic, &new.name, queues);
        }
    }

    fn drop_missing(&mut self, new: &Registration) {
        let named: BTreeSet<&str> = new.topics.iter().map(|(topic, _)| topic.as_str()).collect();
        let missing: Vec<Text> = self
            .topics
            .iter()
            .filter(|(topic, brokers)| brokers.contains_key(&new.name) && !named.contains(topic.as_str()))
            .map(|(topic, _)| topic.clone())
            .collect();
        for topic in &missing {
            self.remove_queues(topic, &new.name);
        }
    }

    fn enter_queues(&mut self, topic: &Text, broker: &Text, queues: TopicQueues) {
        let brokers = self.topics.entry(topic.clone()).or_default();
        if brokers.insert(broker.clone(), queues).is_none() {
            self.pairs += 1;
        }
    }

    fn remove_queues(&mut self, topic: &str, broker: &str) {
        let Some(brokers) = self.topics.get_mut(topic) else { return };
        if brokers.remove(broker).is_some() {
            self.pairs -= 1;
        }
        if brokers.is_empty() {
            self.topics.remove(topic);
        }
    }

    fn master_of(&self, name: &str) -> Option<MasterOf> {
        let entry = self.brokers.get(name)?;
        let address = entry.addresses.get(&MASTER_ID)?.clone();
        let master = BrokerAddress { cluster: entry.cluster.clone(), address: address.clone() };
        let ha_address = self.liveness.get(&master)?.ha_address.clone();
        Some(MasterOf { address, ha_address })
    }

    /// Forgets one address, and with the last one of a name the name and its queues.
    fn remove_broker(&mut self, broker: &BrokerAddress) {
        self.liveness.remove(broker);
        let named = self.brokers.iter_mut().find(|(_, entry)| entry.holds(broker).is_some());
        let Some((name, entry)) = named else { return };
        entry.addresses.retain(|_, address| *address != broker.address);
        let name = name.clone();
        if entry.addresses.is_empty() {
            self.brokers.remove(&name);
            leave_cluster(&mut self.clusters, &broker.cluster, &name);
            self.remove_queues_of(&name);
        } else if entry.acting_master && !entry.addresses.contains_key(&MASTER_ID) {
            self.wipe_write_perm(&name);
        }
    }

    fn remove_queues_of(&mut self, name: &str) {
        let mut removed = 0;
        self.topics.retain(|_, brokers| {
            removed += usize::from(brokers.remove(name).is_some());
            !brokers.is_empty()
        });
        self.pairs -= removed;
    }

    fn change_perms(&mut self, broker: &str, change: impl Fn(i32) -> i32) -> usize {
        let mut topics = 0;
        for queues in self.topics.values_mut().filter_map(|brokers| brokers.get_mut(broker)) {
            queues.perm = change(queues.perm);
            topics += 1;
        }
        topics
    }
}

impl BrokerEntry {
    /// The id under which an address stands here.
    fn holds(&self, broker: &BrokerAddress) -> Option<i64> {
        if self.cluster != broker.cluster {
            return None;
        }
        self.addresses.iter().find(|(_, address)| **address == broker.address).map(|(id, _)| *id)
    }
}

fn leave_cluster(clusters: &mut BTreeMap<Text, BTreeSet<Text>>, cluster: &str, name: &str) {
    let Some(names) = clusters.get_mut(cluster) else { return };
    names.remove(name);
    if names.is_empty() {
        clusters.remove(cluster);
    }
}
