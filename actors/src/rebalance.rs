//! `RebalanceCoordinator`: the members of one consumer group, what they read, and who holds which queue
//! (RocketMQ: `ConsumerManager`, `RebalanceLockManager`).
//!
//! Invariants:
//! - a member that comes or goes, and a topic that comes or goes, is told to every member at once;
//! - what the group reads is published before the heartbeat that said so is answered;
//! - members of a broadcasting group divide nothing and are told nothing.
//!
//! Contents: `members` who belongs to the group, `locks` leases on queues, `assign` who reads which queue,
//! `awaited` pulls ahead of their heart-beat, `answers` the requests of clients.

pub mod answers;
pub mod assign;
mod awaited;
pub mod locks;
pub mod members;

use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler, Message, MessageResult};
use troupemq_codec::filter::MessageFilter;
use troupemq_codec::heartbeat_data::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use troupemq_codec::request::{NotifyConsumerIdsChanged, NotifyConsumerIdsChangedHeader};
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{Command, Text};

use crate::commit_log::MAILBOX;
use crate::config::NodeClock;
use crate::directory::{Directory, GroupSubscription, GroupView, OnlineGroup};
use crate::filters::{Filters, GroupFilters, PropertyFilter};
use crate::held::{Waiting, hold};
use crate::net::LinkId;
use awaited::Awaited;
use locks::Locks;
use members::{Beat, Changed, Member, Members};

// ---- messages

/// A heartbeat of one member. Sent by the heartbeat's handler, answered when the group is published.
#[derive(Debug, Message)]
#[rtype(result = "Changed")]
pub struct MemberBeat(pub Beat);

/// A member left or its connection is gone. Sent by the heartbeat scanner and by UNREGISTER_CLIENT.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct MemberLeft(pub LinkId);

/// The client ids of the group, sorted, each once. Sent by GET_CONSUMER_LIST_BY_GROUP and QUERY_ASSIGNMENT.
#[derive(Debug, Message)]
#[rtype(result = "Vec<Text>")]
pub struct ClientIds;

/// Lease these queues to a client. Sent by LOCK_BATCH_MQ; the answer names those it holds now.
#[derive(Debug, Clone, Message)]
#[rtype(result = "Vec<MessageQueue>")]
pub struct LockQueues {
    /// Who asks.
    pub client_id: Text,
    /// What for.
    pub queues: Vec<MessageQueue>,
}

/// Give leases back. Sent by UNLOCK_BATCH_MQ.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct UnlockQueues {
    /// Who gives back.
    pub client_id: Text,
    /// What.
    pub queues: Vec<MessageQueue>,
}

/// Give all leases up: the group is deleted. Sent by the owner of the groups, which keeps them on.
#[derive(Debug, Message)]
#[rtype(result = "Locks")]
pub struct GiveLeases;

/// Whether any lease of the group is unexpired. Sent by sends to the retry topic of the group.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct IsOrderly;

/// Whether a connection is a member that reads where it is put (push or pop), not where it likes (pull). Sent by
/// commits that go back.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct ReadsWherePut(pub LinkId);

/// Say when the subscription of a topic is at least this new. Sent by pulls that came before their heart-beat.
#[derive(Debug, Message)]
#[rtype(result = "Waiting<()>")]
pub struct WhenSubscribed {
    /// The topic.
    pub topic: Text,
    /// The client's version of its subscription.
    pub version: i64,
}

/// Who is online and how. Sent by administration; `None` when nobody is.
#[derive(Debug, Message)]
#[rtype(result = "Option<GroupOnline>")]
pub struct DescribeGroup;

/// What administration sees of a group that is online.
#[derive(Debug, Clone)]
pub struct GroupOnline {
    /// Push, pull or pop.
    pub consume_type: ConsumeType,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Where a queue without progress starts.
    pub consume_from_where: ConsumeFromWhere,
    /// What the group reads.
    pub subscriptions: Vec<SubscriptionData>,
    /// Its connections.
    pub members: Vec<(LinkId, Member)>,
}

// ---- actor

/// One consumer group.
#[derive(Debug)]
pub struct RebalanceCoordinator {
    /// Where the group is published; its configuration is read there.
    view: Arc<GroupView>,
    /// Connections by their names.
    directory: Arc<Directory>,
    /// Who keeps what groups filter by properties.
    filters: Addr<Filters>,
    /// Whether `filters` could not be told of the last change.
    is_untold: bool,
    /// Where the time comes from.
    clock: NodeClock,
    members: Members,
    locks: Locks,
    awaited: Awaited,
}

impl RebalanceCoordinator {
    /// The coordinator of the group that `view` publishes, with the leases that were given before.
    pub fn new(
        view: Arc<GroupView>,
        locks: Locks,
        directory: Arc<Directory>,
        filters: Addr<Filters>,
        clock: NodeClock,
    ) -> RebalanceCoordinator {
        let (members, awaited) = (Members::default(), Awaited::default());
        RebalanceCoordinator { view, directory, filters, is_untold: false, clock, members, locks, awaited }
    }

    fn publish(&mut self) {
        let before = self.view.online();
        let now = online(&self.members, before.as_deref());
        let (filtered, filters) = (property_filters(before.as_deref()), property_filters(now.as_ref()));
        self.view.publish_online(now);
        self.directory.note_change();
        if self.is_untold || !is_alike(&filtered, &filters) {
            let told = GroupFilters { group: self.view.name().clone(), filters };
            // Nothing depends on it but speed; where the mailbox is full, the next heartbeat tells again.
            self.is_untold = self.filters.try_send(told).is_err();
        }
        self.tell_awaited();
    }

    /// Tells pulls that wait for a subscription that is published now.
    fn tell_awaited(&mut self) {
        let online = self.view.online();
        let version = |topic: &str| Some(online.as_ref()?.subscriptions.get(topic)?.version);
        self.awaited.tell(version);
    }

    /// Says that two members do not read the same: the newer subscription counts for both.
    fn tell_difference(&self, link: LinkId, other: LinkId) {
        let name = |link| self.members.client_id(link).map_or("", Text::as_str);
        tracing::warn!(group = %self.view.name(), client = name(link), other = name(other),
            "members of a group read other topics or by other filters: what one does not read may be skipped");
    }

    /// Tells every member that the queues are to be divided anew (NOTIFY_CONSUMER_IDS_CHANGED).
    fn notify(&self) {
        if self.members.is_broadcast() || !self.view.config().notify_consumer_ids_changed_enable {
            return;
        }
        let header = NotifyConsumerIdsChangedHeader { group: self.view.name().clone() };
        let notice = Command::request::<NotifyConsumerIdsChanged>(&header).oneway();
        for (link, _) in self.members.iter() {
            if let Some(link) = self.directory.link(link) {
                link.send(notice.clone());
            }
        }
    }
}

impl Actor for RebalanceCoordinator {
    type Context = Context<RebalanceCoordinator>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<MemberBeat> for RebalanceCoordinator {
    type Result = MessageResult<MemberBeat>;

    fn handle(&mut self, MemberBeat(beat): MemberBeat, _: &mut Self::Context) -> Self::Result {
        let link = beat.link;
        let changed = self.members.beat(beat);
        if let Some(other) = changed.differs_from {
            self.tell_difference(link, other);
        }
        self.publish();
        if changed.members_or_topics {
            self.notify();
        }
        MessageResult(changed)
    }
}

impl Handler<MemberLeft> for RebalanceCoordinator {
    type Result = ();

    fn handle(&mut self, MemberLeft(link): MemberLeft, _: &mut Self::Context) {
        if self.members.leave(link) {
            self.publish();
            self.notify();
        }
    }
}

impl Handler<ClientIds> for RebalanceCoordinator {
    type Result = Vec<Text>;

    fn handle(&mut self, _: ClientIds, _: &mut Self::Context) -> Vec<Text> {
        self.members.client_ids()
    }
}

impl Handler<LockQueues> for RebalanceCoordinator {
    type Result = Vec<MessageQueue>;

    fn handle(&mut self, wanted: LockQueues, _: &mut Self::Context) -> Vec<MessageQueue> {
        self.locks.lock(&wanted.client_id, wanted.queues, self.clock.0.now_ms())
    }
}

impl Handler<UnlockQueues> for RebalanceCoordinator {
    type Result = ();

    fn handle(&mut self, given: UnlockQueues, _: &mut Self::Context) {
        self.locks.unlock(&given.client_id, &given.queues);
    }
}

impl Handler<GiveLeases> for RebalanceCoordinator {
    type Result = MessageResult<GiveLeases>;

    fn handle(&mut self, _: GiveLeases, _: &mut Self::Context) -> Self::Result {
        MessageResult(std::mem::take(&mut self.locks))
    }
}

impl Handler<IsOrderly> for RebalanceCoordinator {
    type Result = bool;

    fn handle(&mut self, _: IsOrderly, _: &mut Self::Context) -> bool {
        self.locks.any_live(self.clock.0.now_ms())
    }
}

impl Handler<ReadsWherePut> for RebalanceCoordinator {
    type Result = bool;

    fn handle(&mut self, ReadsWherePut(link): ReadsWherePut, _: &mut Self::Context) -> bool {
        let pulls = matches!(self.members.kind(), Some((ConsumeType::Actively, ..)));
        self.members.contains(link) && !pulls
    }
}

impl Handler<WhenSubscribed> for RebalanceCoordinator {
    type Result = MessageResult<WhenSubscribed>;

    fn handle(&mut self, wanted: WhenSubscribed, _: &mut Self::Context) -> Self::Result {
        let (held, waiting) = hold();
        self.awaited.add(wanted.topic, wanted.version, held);
        self.tell_awaited();
        MessageResult(waiting)
    }
}

impl Handler<DescribeGroup> for RebalanceCoordinator {
    type Result = Option<GroupOnline>;

    fn handle(&mut self, _: DescribeGroup, _: &mut Self::Context) -> Option<GroupOnline> {
        describe(&self.members)
    }
}

// ---- state

/// What pulls of the group need to know; nothing while nobody is online. What was compiled `before` is used again.
fn online(members: &Members, before: Option<&OnlineGroup>) -> Option<OnlineGroup> {
    if members.is_empty() {
        return None;
    }
    let subscriptions = members.subscriptions().values().map(|subscription| {
        let known = before.and_then(|before| before.subscriptions.get(&subscription.topic));
        let known = known.filter(|known| is_written_so(known, subscription));
        let published = GroupSubscription {
            expression_type: subscription.expression_type.clone(),
            expression: subscription.sub_string.clone(),
            version: subscription.sub_version,
            filter: known.map_or_else(|| compiled(subscription), |known| known.filter.clone()),
        };
        (subscription.topic.clone(), published)
    });
    Some(OnlineGroup { is_broadcasting: members.is_broadcast(), subscriptions: subscriptions.collect() })
}

fn is_written_so(known: &GroupSubscription, subscription: &SubscriptionData) -> bool {
    known.filter.is_some()
        && known.expression_type == subscription.expression_type
        && known.expression == subscription.sub_string
}

/// The filter of a subscription; none if it does not compile, or if a class should do it, which nobody runs.
fn compiled(subscription: &SubscriptionData) -> Option<Arc<MessageFilter>> {
    if subscription.class_filter_mode {
        return None;
    }
    MessageFilter::compile(Some(&subscription.expression_type), &subscription.sub_string).map(Arc::new).ok()
}

/// What a group filters by properties, sorted by topic.
fn property_filters(online: Option<&OnlineGroup>) -> Vec<PropertyFilter> {
    let subscriptions = online.into_iter().flat_map(|online| &online.subscriptions);
    let filters = subscriptions.filter_map(|(topic, subscription)| {
        let filter =
            subscription.filter.clone().filter(|filter| matches!(**filter, MessageFilter::Sql(_)))?;
        let GroupSubscription { expression, expression_type, version, .. } = subscription.clone();
        Some(PropertyFilter { topic: topic.clone(), expression, expression_type, version, filter })
    });
    let mut filters: Vec<_> = filters.collect();
    filters.sort_by(|one, other| one.topic.cmp(&other.topic));
    filters
}

fn is_alike(one: &[PropertyFilter], other: &[PropertyFilter]) -> bool {
    let key = |filter: &PropertyFilter| (filter.topic.clone(), filter.version, filter.expression.clone());
    one.iter().map(key).eq(other.iter().map(key))
}

fn describe(members: &Members) -> Option<GroupOnline> {
    let (consume_type, message_model, consume_from_where) = members.kind()?;
    if members.is_empty() {
        return None;
    }
    Some(GroupOnline {
        consume_type,
        message_model,
        consume_from_where,
        subscriptions: members.subscriptions().values().cloned().collect(),
        members: members.iter().map(|(link, member)| (link, member.clone())).collect(),
    })
}
