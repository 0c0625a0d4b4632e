//! Who belongs to a consumer group, and what it reads (RocketMQ: `ConsumerGroupInfo`).
//!
//! Invariants:
//! - a member is a connection: two connections with one client id are two members, listed once;
//! - a subscription is replaced only by one with a greater version; a topic no longer named is dropped;
//! - a change is a new connection, a topic more or a topic less: only these call for a rebalance, and all of them do;
//! - what a group reads is forgotten with its last member: the next one begins it anew, whatever its versions are;
//! - a member that reads otherwise than another is told once: messages of such a group are skipped, or read by none.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use troupemq_codec::Text;
use troupemq_codec::heartbeat_data::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use troupemq_codec::language::Language;

use crate::net::LinkId;

/// Connections that one group may have; one more is refused.
pub const MEMBERS_MAX: usize = 65_536;

/// One connection of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Client id that the connection gave in its heartbeat.
    pub client_id: Text,
    /// Language of the client.
    pub language: Language,
    /// Version number of the client.
    pub version: i32,
}

/// What a heartbeat says of one group.
#[derive(Debug, Clone)]
pub struct Beat {
    /// The connection.
    pub link: LinkId,
    /// Its member, as it will stand in the table.
    pub member: Member,
    /// Kind of consumer: push, pull or pop.
    pub consume_type: ConsumeType,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Where a queue without progress starts.
    pub consume_from_where: ConsumeFromWhere,
    /// What the group reads; `None` when the client says that it is what it said last time.
    pub subscriptions: Option<Vec<SubscriptionData>>,
    /// Fingerprint of the client's heartbeat, 0 for the old form.
    pub fingerprint: i32,
}

/// What a heartbeat changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// A connection or a topic came or went: the members must divide the queues anew.
    pub members_or_topics: bool,
    /// The client must send its full subscription again.
    pub fingerprint: bool,
    /// The group is full, the connection was not taken.
    pub refused: bool,
    /// From now on the member reads otherwise than this one.
    pub differs_from: Option<LinkId>,
}

/// Members and subscriptions of one consumer group.
#[derive(Debug, Default)]
pub struct Members {
    members: BTreeMap<LinkId, Member>,
    subscriptions: BTreeMap<Text, SubscriptionData>,
    /// What each connection said it reads, in short; not of those that never said it.
    prints: BTreeMap<LinkId, u64>,
    /// How many connections said the same.
    alike: HashMap<u64, usize>,
    kind: Option<(ConsumeType, MessageModel, ConsumeFromWhere)>,
    fingerprint: i32,
}

impl Members {
    /// Takes a heartbeat in.
    pub fn beat(&mut self, beat: Beat) -> Changed {
        let is_new = !self.members.contains_key(&beat.link);
        if is_new && self.members.len() >= MEMBERS_MAX {
            return Changed { refused: true, ..Changed::default() };
        }
        self.members.insert(beat.link, beat.member);
        self.kind = Some((beat.consume_type, beat.message_model, beat.consume_from_where));
        let Some(subscriptions) = beat.subscriptions else {
            let fingerprint = self.fingerprint != beat.fingerprint;
            return Changed { members_or_topics: is_new, fingerprint, ..Changed::default() };
        };
        let fingerprint = beat.fingerprint == 0 || self.fingerprint != beat.fingerprint;
        self.fingerprint = beat.fingerprint;
        let differs_from = self.compare(beat.link, &subscriptions);
        let topics = self.subscribe(subscriptions);
        Changed { members_or_topics: is_new || topics, fingerprint, differs_from, refused: false }
    }

    /// A member that reads otherwise than `link`, if that has just said something new.
    fn compare(&mut self, link: LinkId, reads: &[SubscriptionData]) -> Option<LinkId> {
        let print = print_of(reads);
        if self.prints.get(&link) == Some(&print) {
            return None;
        }
        self.forget_print(link);
        self.prints.insert(link, print);
        *self.alike.entry(print).or_default() += 1;
        if self.alike.len() == 1 {
            return None;
        }
        self.prints.iter().find(|(_, other)| **other != print).map(|(other, _)| *other)
    }

    fn forget_print(&mut self, link: LinkId) {
        let Some(print) = self.prints.remove(&link) else { return };
        if let Some(count) = self.alike.get_mut(&print) {
            *count -= 1;
            if *count == 0 {
                self.alike.remove(&print);
            }
        }
    }

    fn subscribe(&mut self, wanted: Vec<SubscriptionData>) -> bool {
        let before = self.subscriptions.len();
        self.subscriptions.retain(|topic, _| wanted.iter().any(|one| one.topic == *topic));
        let mut is_changed = self.subscriptions.len() != before;
        for subscription in wanted {
            match self.subscriptions.get_mut(&subscription.topic) {
                Some(known) if known.sub_version >= subscription.sub_version => {}
                Some(known) => *known = subscription,
                None => {
                    is_changed = true;
                    self.subscriptions.insert(subscription.topic.clone(), subscription);
                }
            }
        }
        is_changed
    }

    /// Removes a connection; tells whether it was a member.
    pub fn leave(&mut self, link: LinkId) -> bool {
        let was_member = self.members.remove(&link).is_some();
        self.forget_print(link);
        if self.members.is_empty() {
            *self = Members::default();
        }
        was_member
    }

    /// The client id of a connection, if it is a member.
    #[must_use]
    pub fn client_id(&self, link: LinkId) -> Option<&Text> {
        self.members.get(&link).map(|member| &member.client_id)
    }

    /// Whether a connection is a member.
    #[must_use]
    pub fn contains(&self, link: LinkId) -> bool {
        self.members.contains_key(&link)
    }

    /// Whether nobody is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Client ids, sorted, each once (GET_CONSUMER_LIST_BY_GROUP).
    #[must_use]
    pub fn client_ids(&self) -> Vec<Text> {
        let mut ids: Vec<Text> = self.members.values().map(|member| member.client_id.clone()).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Connections with their members.
    pub fn iter(&self) -> impl Iterator<Item = (LinkId, &Member)> {
        self.members.iter().map(|(link, member)| (*link, member))
    }

    /// A connection of the client, if it is a member.
    #[must_use]
    pub fn link_of(&self, client_id: &str) -> Option<LinkId> {
        self.members.iter().find(|(_, member)| member.client_id.as_str() == client_id).map(|(link, _)| *link)
    }

    /// What the group reads, by topic.
    #[must_use]
    pub fn subscriptions(&self) -> &BTreeMap<Text, SubscriptionData> {
        &self.subscriptions
    }

    /// Kind of consumer, model and starting point as the last heartbeat said.
    #[must_use]
    pub fn kind(&self) -> Option<(ConsumeType, MessageModel, ConsumeFromWhere)> {
        self.kind
    }

    /// Whether every member reads everything; then nobody divides queues.
    #[must_use]
    pub fn is_broadcast(&self) -> bool {
        self.kind.is_some_and(|(_, model, _)| model == MessageModel::Broadcasting)
    }
}

/// What is read, in short: the same for the same topics with the same filters.
fn print_of(reads: &[SubscriptionData]) -> u64 {
    let mut parts: Vec<_> =
        reads.iter().map(|one| (&*one.topic, &*one.expression_type, &*one.sub_string)).collect();
    parts.sort_unstable();
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(topic: &str, sub_version: i64) -> SubscriptionData {
        SubscriptionData { topic: Text::from(topic), sub_version, ..SubscriptionData::default() }
    }

    fn beat(link: u64, client_id: &str, topics: &[(&str, i64)]) -> Beat {
        let member = Member { client_id: Text::from(client_id), language: Language::Java, version: 475 };
        let subscriptions = topics.iter().map(|(topic, version)| subscription(topic, *version)).collect();
        Beat {
            link: LinkId(link),
            member,
            consume_type: ConsumeType::Passively,
            message_model: MessageModel::Clustering,
            consume_from_where: ConsumeFromWhere::LastOffset,
            subscriptions: Some(subscriptions),
            fingerprint: 0,
        }
    }

    #[test]
    fn a_new_connection_and_a_new_or_dropped_topic_are_changes_and_a_newer_version_is_none() {
        let mut members = Members::default();
        assert!(members.beat(beat(1, "a", &[("t", 1)])).members_or_topics);
        assert!(!members.beat(beat(1, "a", &[("t", 1)])).members_or_topics);
        assert!(!members.beat(beat(1, "a", &[("t", 2)])).members_or_topics);
        assert_eq!(members.subscriptions()["t"].sub_version, 2);
        assert!(members.beat(beat(1, "a", &[("t", 2), ("u", 2)])).members_or_topics);
        assert!(members.beat(beat(1, "a", &[("u", 2)])).members_or_topics);
        assert!(members.beat(beat(2, "b", &[("u", 2)])).members_or_topics);
    }

    #[test]
    fn an_older_version_does_not_replace_a_subscription() {
        let mut members = Members::default();
        members.beat(beat(1, "a", &[("t", 5)]));
        members.beat(beat(2, "b", &[("t", 4)]));
        assert_eq!(members.subscriptions()["t"].sub_version, 5);
    }

    /// 4.9: the entry of a group disappears with its last channel.
    #[test]
    fn a_group_that_all_have_left_begins_anew() {
        let mut members = Members::default();
        members.beat(Beat { fingerprint: 77, ..beat(1, "a", &[("t", 5)]) });
        members.beat(beat(2, "b", &[("t", 5)]));
        members.leave(LinkId(1));
        assert_eq!(members.subscriptions()["t"].sub_version, 5);
        members.leave(LinkId(2));
        assert!(members.subscriptions().is_empty() && members.kind().is_none());
        members.beat(beat(3, "a", &[("t", 4)]));
        assert_eq!(members.subscriptions()["t"].sub_version, 4, "a clock that is behind counts too");
    }

    #[test]
    fn a_member_that_reads_otherwise_than_another_is_told_once_for_each_thing_it_says() {
        let mut members = Members::default();
        let mut differs = |link, topics: &[(&str, &str)]| {
            let reads = topics.iter().map(|(topic, tags)| SubscriptionData {
                sub_string: Text::from(*tags),
                ..subscription(topic, 1)
            });
            let subscriptions = Some(reads.collect());
            members.beat(Beat { subscriptions, ..beat(link, "c", &[]) }).differs_from
        };
        assert_eq!(differs(1, &[("t", "a"), ("u", "*")]), None);
        assert_eq!(differs(2, &[("u", "*"), ("t", "a")]), None, "the same in another order");
        assert_eq!(differs(2, &[("t", "b"), ("u", "*")]), Some(LinkId(1)), "another filter");
        assert_eq!(differs(2, &[("t", "b"), ("u", "*")]), None, "it was told");
        assert_eq!(differs(3, &[("t", "a")]), Some(LinkId(1)), "a topic less");
        assert_eq!(differs(2, &[("t", "a"), ("u", "*")]), Some(LinkId(3)));
        members.leave(LinkId(3));
        let full = |link| Beat { subscriptions: Some(vec![subscription("v", 9)]), ..beat(link, "c", &[]) };
        for link in [1, 2] {
            members.leave(LinkId(link));
        }
        assert_eq!(members.beat(full(1)).differs_from, None, "those that left are not compared with");
        let short = Beat { subscriptions: None, fingerprint: 7, ..beat(2, "c", &[]) };
        assert_eq!(members.beat(short).differs_from, None, "who says nothing");
    }

    #[test]
    fn two_connections_of_one_client_are_listed_once() {
        let mut members = Members::default();
        members.beat(beat(1, "b", &[("t", 1)]));
        members.beat(beat(2, "a", &[("t", 1)]));
        members.beat(beat(3, "b", &[("t", 1)]));
        assert_eq!(members.client_ids(), vec![Text::from("a"), Text::from("b")]);
        assert!(members.leave(LinkId(1)));
        assert!(!members.leave(LinkId(1)));
        assert_eq!(members.link_of("b"), Some(LinkId(3)));
    }

    #[test]
    fn a_short_heartbeat_keeps_the_subscriptions_and_asks_for_the_full_one_when_the_print_differs() {
        let mut members = Members::default();
        let full = Beat { fingerprint: 77, ..beat(1, "a", &[("t", 1)]) };
        assert!(members.beat(full.clone()).fingerprint);
        let short = Beat { subscriptions: None, ..full };
        assert_eq!(members.beat(short.clone()), Changed::default());
        assert!(members.beat(Beat { fingerprint: 78, ..short }).fingerprint);
        assert_eq!(members.subscriptions().len(), 1);
    }

    /// 3.6 #50: whoever comes back without saying what it reads is a member that comes, too.
    #[test]
    fn a_new_connection_is_a_change_whether_its_heartbeat_is_short_or_full() {
        let mut members = Members::default();
        let full = Beat { fingerprint: 77, ..beat(1, "a", &[("t", 1)]) };
        members.beat(full.clone());
        let short = Beat { link: LinkId(2), subscriptions: None, ..full.clone() };
        let wanted = Changed { members_or_topics: true, ..Changed::default() };
        assert_eq!(members.beat(short.clone()), wanted);
        assert_eq!(members.beat(short.clone()), Changed::default());
        for link in [LinkId(1), LinkId(2)] {
            members.leave(link);
        }
        // After the last has left, even the kind of the group is what the next one says.
        let short = Beat { message_model: MessageModel::Broadcasting, ..short };
        assert!(members.beat(short).fingerprint && members.is_broadcast());
    }

    #[test]
    fn a_full_group_refuses_one_more_connection_and_keeps_the_others() {
        let mut members = Members::default();
        for link in 0..MEMBERS_MAX as u64 {
            members.beat(beat(link, "a", &[("t", 1)]));
        }
        assert!(members.beat(beat(MEMBERS_MAX as u64, "b", &[("t", 1)])).refused);
        assert!(!members.beat(beat(0, "a", &[("t", 1)])).refused);
    }
}
