//! What the route tables answer: routes, clusters, lists of topics.
//!
//! Invariants:
//! - nothing here changes a table;
//! - a route has at least one broker and one set of queues, or there is no route;
//! - lists are sorted by name.

use std::collections::BTreeMap;

use troupemq_codec::Text;
use troupemq_codec::topic::PERM_WRITE;

use super::{BrokerEntry, MASTER_ID, RouteTables, TopicQueues};
use crate::topic::{UNIT, UNIT_SUBSCRIBED};

/// Topics with this prefix show the members of a broker name as they are.
const MEMBER_TOPIC_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";
/// The route of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// The brokers that have the topic, by name.
    pub brokers: BTreeMap<Text, BrokerEntry>,
    /// Its queues, by broker name.
    pub queues: BTreeMap<Text, TopicQueues>,
}

/// Topics by the bits of their system flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitTopics {
    /// Those of a unit.
    OfUnit,
    /// Those a unit subscribes to.
    Subscribed,
    /// Those a unit subscribes to and that are of none.
    SubscribedOfNoUnit,
}

impl RouteTables {
    /// The route of a topic. With `acting_master` a broker name that lost its master shows its smallest id as
    /// master, where it was told to act as one.
    pub fn route(&self, topic: &str, acting_master: bool) -> Option<Route> {
        let queues = self.topics.get(topic)?;
        let mut route = Route { queues: queues.clone(), brokers: BTreeMap::new() };
        for name in queues.keys() {
            if let Some(entry) = self.brokers.get(name) {
                route.brokers.insert(name.clone(), entry.clone());
            }
        }
        if acting_master && !topic.starts_with(MEMBER_TOPIC_PREFIX) {
            route.show_acting_masters();
        }
        (!route.brokers.is_empty() && !route.queues.is_empty()).then_some(route)
    }

    /// All brokers by name.
    pub fn brokers(&self) -> &BTreeMap<Text, BrokerEntry> {
        &self.brokers
    }

    /// All clusters with their broker names.
    pub fn clusters(&self) -> impl Iterator<Item = (&Text, impl Iterator<Item = &Text>)> {
        self.clusters.iter().map(|(cluster, names)| (cluster, names.iter()))
    }

    /// The members of a broker name in a cluster.
    pub fn members(&self, cluster: &str, name: &str) -> Option<&BrokerEntry> {
        self.brokers.get(name).filter(|entry| entry.cluster == cluster)
    }

    /// The names of all topics.
    pub fn topics(&self) -> Vec<Text> {
        self.topics.keys().cloned().collect()
    }

    /// The topics that some broker of a cluster has.
    pub fn topics_of_cluster(&self, cluster: &str) -> Vec<Text> {
        let Some(names) = self.clusters.get(cluster) else { return Vec::new() };
        let is_there =
            |brokers: &BTreeMap<Text, TopicQueues>| brokers.keys().any(|name| names.contains(name));
        self.topics.iter().filter(|(_, brokers)| is_there(brokers)).map(|(topic, _)| topic.clone()).collect()
    }

    /// The topics that brokers make for themselves: one for each cluster and broker name; and the address of
    /// some broker that can tell the rest.
    pub fn system_topics(&self) -> (Vec<Text>, Option<Text>) {
        let mut topics = Vec::new();
        for (cluster, names) in &self.clusters {
            topics.push(cluster.clone());
            topics.extend(names.iter().cloned());
        }
        let address = self.brokers.values().find_map(|entry| entry.addresses.values().next().cloned());
        (topics, address)
    }

    /// Topics by the bits of their system flag.
    pub fn unit_topics(&self, wanted: UnitTopics) -> Vec<Text> {
        let is_wanted = |brokers: &BTreeMap<Text, TopicQueues>| {
            let flag = brokers.values().next().map_or(0, |queues| queues.sys_flag);
            match wanted {
                UnitTopics::OfUnit => flag & UNIT != 0,
                UnitTopics::Subscribed => flag & UNIT_SUBSCRIBED != 0,
                UnitTopics::SubscribedOfNoUnit => flag & (UNIT | UNIT_SUBSCRIBED) == UNIT_SUBSCRIBED,
            }
        };
        self.topics.iter().filter(|(_, brokers)| is_wanted(brokers)).map(|(topic, _)| topic.clone()).collect()
    }
}

impl Route {
    /// Keeps the brokers of one zone (case does not matter) and those that lost their master.
    pub fn keep_zone(&mut self, zone: &str) {
        self.brokers.retain(|_, entry| {
            let is_there = entry.zone.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(zone));
            is_there || !entry.addresses.contains_key(&MASTER_ID)
        });
        self.queues.retain(|name, _| self.brokers.contains_key(name));
    }

    fn show_acting_masters(&mut self) {
        for (name, entry) in &mut self.brokers {
            let is_lost = entry.acting_master && !entry.addresses.contains_key(&MASTER_ID);
            let is_read_only = self.queues.get(name).is_some_and(|queues| queues.perm & PERM_WRITE == 0);
            if !is_lost || !is_read_only {
                continue;
            }
            if let Some((_, address)) = entry.addresses.pop_first() {
                entry.addresses.insert(MASTER_ID, address);
            }
        }
    }
}
