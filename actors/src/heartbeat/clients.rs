//! Which connections speak for which groups, and when they last did (RocketMQ: `ProducerManager`,
//! `ClientHousekeepingService`).
//!
//! Invariants:
//! - a connection that is silent for 120 s is gone, and so is a closed one, at once;
//! - a connection leaves all of its groups together;
//! - of two connections with one client id the newer answers for the client, and only one that produces does.
//!
//! Deliberately absent: what consumers read. That belongs to their coordinators.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use troupemq_codec::Text;
use troupemq_codec::language::Language;

use crate::net::LinkId;

/// Silence after which a connection is gone (RocketMQ: `channelExpiredTimeout`).
pub const SILENCE_MS: i64 = 120_000;

/// Producer groups that one connection may speak for.
pub const GROUPS_PER_LINK_MAX: usize = 4096;

/// Groups that a connection may not speak for, since it does for as many as it may.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Groups that it consumes for.
    pub consumers: Vec<Text>,
    /// Groups that it produces for.
    pub producers: Vec<Text>,
}

impl LeftOut {
    /// How many they are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.consumers.len() + self.producers.len()
    }
}

/// One connection of a producer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// The client's id.
    pub client_id: Text,
    /// The client's language.
    pub language: Language,
    /// The client's version number.
    pub version: i32,
    /// Its last heartbeat, in epoch milliseconds.
    pub seen_ms: i64,
}

#[derive(Debug, Default)]
struct Seen {
    last_ms: i64,
    consumers: BTreeSet<Text>,
    producers: BTreeSet<Text>,
}

/// The clients of a broker.
#[derive(Debug, Default)]
pub struct Clients {
    links: HashMap<LinkId, Seen>,
    producers: BTreeMap<Text, BTreeMap<LinkId, Producer>>,
    by_client: HashMap<Text, LinkId>,
    turn: usize,
}

impl Clients {
    /// Takes a heartbeat in: the connection lives and speaks for these producer and consumer groups.
    /// Groups beyond [`GROUPS_PER_LINK_MAX`] are left out, and told.
    pub fn beat(
        &mut self,
        link: LinkId,
        producer: &Producer,
        producer_groups: &[Text],
        consumer_groups: &[Text],
    ) -> LeftOut {
        let seen = self.links.entry(link).or_default();
        seen.last_ms = producer.seen_ms;
        let consumers = add(&mut seen.consumers, consumer_groups);
        let producers = add(&mut seen.producers, producer_groups);
        if !seen.producers.is_empty() {
            self.by_client.insert(producer.client_id.clone(), link);
        }
        for group in producer_groups.iter().filter(|group| seen.producers.contains(*group)) {
            self.producers.entry(group.clone()).or_default().insert(link, producer.clone());
        }
        LeftOut { consumers, producers }
    }

    /// The connection no longer speaks for a producer group.
    pub fn leave_producers(&mut self, link: LinkId, group: &str) {
        if let Some(seen) = self.links.get_mut(&link) {
            seen.producers.remove(group);
            if seen.producers.is_empty() {
                self.by_client.retain(|_, known| *known != link);
            }
        }
        self.drop_producer(link, group);
    }

    /// The connection no longer speaks for a consumer group.
    pub fn leave_consumers(&mut self, link: LinkId, group: &str) {
        if let Some(seen) = self.links.get_mut(&link) {
            seen.consumers.remove(group);
        }
    }

    /// The connection is gone; names the consumer groups that lose a member.
    pub fn gone(&mut self, link: LinkId) -> BTreeSet<Text> {
        let Some(seen) = self.links.remove(&link) else { return BTreeSet::new() };
        for group in &seen.producers {
            self.drop_producer(link, group);
        }
        self.by_client.retain(|_, known| *known != link);
        seen.consumers
    }

    /// The connections that were silent for [`SILENCE_MS`].
    #[must_use]
    pub fn silent(&self, now_ms: i64) -> Vec<LinkId> {
        let is_silent = |seen: &Seen| now_ms.saturating_sub(seen.last_ms) >= SILENCE_MS;
        self.links.iter().filter(|(_, seen)| is_silent(seen)).map(|(link, _)| *link).collect()
    }

    /// The connections of a producer group.
    pub fn producers_of(&self, group: &str) -> impl Iterator<Item = (LinkId, &Producer)> {
        self.producers.get(group).into_iter().flatten().map(|(link, producer)| (*link, producer))
    }

    /// All producer groups with their connections.
    pub fn producer_groups(&self) -> impl Iterator<Item = (&Text, &BTreeMap<LinkId, Producer>)> {
        self.producers.iter()
    }

    /// The connections of a producer group, beginning with another one at each call: whom to ask about a
    /// transaction first.
    pub fn producers_in_turn(&mut self, group: &str) -> Vec<LinkId> {
        let mut links: Vec<LinkId> = self.producers_of(group).map(|(link, _)| link).collect();
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn.checked_rem(links.len()).unwrap_or(0);
        links.rotate_left(first);
        links
    }

    /// The groups that a connection consumes for.
    #[must_use]
    pub fn consumer_groups_of(&self, link: LinkId) -> Vec<Text> {
        self.links.get(&link).into_iter().flat_map(|seen| &seen.consumers).cloned().collect()
    }

    /// The newest connection of a client that produces for some group.
    #[must_use]
    pub fn link_of(&self, client_id: &str) -> Option<LinkId> {
        self.by_client.get(client_id).copied()
    }

    fn drop_producer(&mut self, link: LinkId, group: &str) {
        let Some(links) = self.producers.get_mut(group) else { return };
        links.remove(&link);
        if links.is_empty() {
            self.producers.remove(group);
        }
    }
}

fn add(known: &mut BTreeSet<Text>, groups: &[Text]) -> Vec<Text> {
    let mut left_out = Vec::new();
    for group in groups {
        if known.len() < GROUPS_PER_LINK_MAX {
            known.insert(group.clone());
        } else if !known.contains(group) {
            left_out.push(group.clone());
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text::from(text)
    }

    fn producer(client_id: &str, seen_ms: i64) -> Producer {
        Producer { client_id: text(client_id), language: Language::Java, version: 475, seen_ms }
    }

    #[test]
    fn a_connection_is_silent_120_seconds_after_its_last_heartbeat() {
        let mut clients = Clients::default();
        clients.beat(LinkId(1), &producer("a", 0), &[], &[text("g")]);
        clients.beat(LinkId(2), &producer("b", 30_000), &[], &[text("g")]);
        assert_eq!(clients.silent(119_999), vec![]);
        assert_eq!(clients.silent(120_000), vec![LinkId(1)]);
        clients.beat(LinkId(1), &producer("a", 100_000), &[], &[text("g")]);
        assert_eq!(clients.silent(120_000), vec![]);
    }

    #[test]
    fn a_connection_that_is_gone_leaves_all_of_its_groups() {
        let mut clients = Clients::default();
        clients.beat(LinkId(1), &producer("a", 0), &[text("p")], &[text("g"), text("h")]);
        assert_eq!(clients.gone(LinkId(1)), BTreeSet::from([text("g"), text("h")]));
        assert_eq!(clients.producers_of("p").count(), 0);
        assert_eq!(clients.link_of("a"), None);
        assert_eq!(clients.gone(LinkId(1)), BTreeSet::new());
    }

    #[test]
    fn the_newer_connection_answers_for_its_client() {
        let mut clients = Clients::default();
        clients.beat(LinkId(1), &producer("a", 0), &[text("p")], &[]);
        clients.beat(LinkId(2), &producer("a", 1), &[text("p")], &[]);
        assert_eq!(clients.link_of("a"), Some(LinkId(2)));
        clients.gone(LinkId(1));
        assert_eq!(clients.link_of("a"), Some(LinkId(2)));
        // 3.12 #113: who produces for nobody any more is sent no replies.
        clients.leave_producers(LinkId(2), "p");
        assert_eq!(clients.link_of("a"), None);
        clients.beat(LinkId(3), &producer("c", 1), &[], &[text("g")]);
        assert_eq!(clients.link_of("c"), None);
    }

    #[test]
    fn producers_of_a_group_are_asked_in_turn() {
        let mut clients = Clients::default();
        clients.beat(LinkId(1), &producer("a", 0), &[text("p")], &[]);
        clients.beat(LinkId(2), &producer("b", 0), &[text("p")], &[]);
        let first = clients.producers_in_turn("p");
        let second = clients.producers_in_turn("p");
        assert_eq!((first.len(), second.len()), (2, 2));
        assert_ne!(first, second);
        assert_eq!(clients.producers_in_turn("nobody"), vec![]);
    }

    #[test]
    fn leaving_one_group_keeps_the_others() {
        let mut clients = Clients::default();
        clients.beat(LinkId(1), &producer("a", 0), &[text("p"), text("q")], &[text("g"), text("h")]);
        clients.leave_producers(LinkId(1), "p");
        clients.leave_consumers(LinkId(1), "g");
        assert_eq!(
            clients.producer_groups().map(|(group, _)| group.clone()).collect::<Vec<_>>(),
            [text("q")]
        );
        assert_eq!(clients.gone(LinkId(1)), BTreeSet::from([text("h")]));
    }

    #[test]
    fn a_connection_speaks_for_a_bounded_number_of_groups() {
        let mut clients = Clients::default();
        let groups: Vec<Text> = (0..=GROUPS_PER_LINK_MAX).map(|n| text(&format!("g{n}"))).collect();
        let last = groups[GROUPS_PER_LINK_MAX..].to_vec();
        let left_out = clients.beat(LinkId(1), &producer("a", 0), &groups, &[]);
        assert_eq!(left_out, LeftOut { producers: last.clone(), consumers: Vec::new() });
        assert_eq!(clients.producer_groups().count(), GROUPS_PER_LINK_MAX);
        let left_out = clients.beat(LinkId(1), &producer("a", 0), &[], &groups);
        assert_eq!(left_out, LeftOut { producers: Vec::new(), consumers: last });
        assert_eq!(clients.gone(LinkId(1)).len(), GROUPS_PER_LINK_MAX);
    }
}
