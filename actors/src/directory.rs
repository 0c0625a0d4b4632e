//! The directory: published, read-mostly handles, so that a session reaches a queue with no hop.
//!
//! Invariants:
//! - a view is immutable: a change publishes a new one and raises `version`;
//! - the `QueueView` of a queue stays the same object as long as its topic lives, whatever its topic's
//!   configuration becomes, because pulls on hold hang on it;
//! - each entry has one writer: topics are published by their `Topic`, groups by the actor that owns the group,
//!   links by sessions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use actix::Addr;
use arc_swap::{ArcSwap, ArcSwapOption};
use dashmap::DashMap;
use troupemq_codec::Text;
use troupemq_codec::filter::MessageFilter;
use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::topic::{PERM_READ, PERM_WRITE, TopicConfig};
use troupemq_store::{ConsumeQueue, QueueTable, StoreError, light};

use crate::net::{Link, LinkId};
use crate::queue::Queue;
use crate::queue::readers::Readers;
use crate::rebalance::RebalanceCoordinator;
use crate::topic::counters::Counters;

/// The tables of a broker that everybody reads.
#[derive(Debug, Default)]
pub struct Directory {
    topics: DashMap<Text, Arc<TopicView>>,
    queues: DashMap<(Text, i32), Arc<QueueView>>,
    groups: DashMap<Text, Arc<GroupView>>,
    links: DashMap<LinkId, Arc<Link>>,
    version: AtomicU64,
    /// What all light queues count together; none where there are no light queues.
    light: Option<Arc<Counters>>,
}

/// What is published about a topic.
#[derive(Debug)]
pub struct TopicView {
    /// The topic's name, to be cloned wherever a long-lived copy is needed.
    pub name: Text,
    /// Its configuration.
    pub config: TopicConfig,
    /// What sends and pulls count; the same object as long as the topic lives.
    pub counters: Arc<Counters>,
    queues: Box<[OnceLock<Arc<QueueView>>]>,
}

/// What is published about one queue of a topic.
#[derive(Debug)]
pub struct QueueView {
    /// The topic's name.
    pub topic: Text,
    /// The queue's number within its topic.
    pub queue_id: i32,
    /// Its consume queue.
    pub units: Arc<ConsumeQueue>,
    /// How far groups have read it.
    pub readers: Readers,
    waited_for: AtomicBool,
    actor: ArcSwapOption<Addr<Queue>>,
}

/// What is published about a consumer group: its configuration by `Groups`, who is online by its coordinator.
#[derive(Debug)]
pub struct GroupView {
    name: Text,
    config: ArcSwap<SubscriptionGroupConfig>,
    online: ArcSwapOption<OnlineGroup>,
    forbidden: ArcSwap<BTreeSet<Text>>,
    coordinator: Addr<RebalanceCoordinator>,
}

/// What the members of a group said about it in their heart-beats.
#[derive(Debug, Clone, Default)]
pub struct OnlineGroup {
    /// Whether every member gets every message.
    pub is_broadcasting: bool,
    /// What the group reads, by topic.
    pub subscriptions: HashMap<Text, GroupSubscription>,
}

/// One subscription of a group.
#[derive(Debug, Clone, Default)]
pub struct GroupSubscription {
    /// `TAG` or `SQL92`.
    pub expression_type: Text,
    /// The expression as the client wrote it.
    pub expression: Text,
    /// The client's version of it, in epoch ms.
    pub version: i64,
    /// The same, compiled when it came; none if that fails.
    pub filter: Option<Arc<MessageFilter>>,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Directory {
        Directory::default()
    }

    /// An empty directory in which every name of a light queue is a topic of one queue.
    pub fn with_light_queues() -> Directory {
        Directory { light: Some(Arc::default()), ..Directory::default() }
    }

    /// Raised by each change of a topic or group: who keeps a view compares it before use.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The view of a topic.
    pub fn topic(&self, name: &str) -> Option<Arc<TopicView>> {
        let known = self.topics.get(name).map(|entry| entry.value().clone());
        known.or_else(|| self.light_topic(name))
    }

    /// A light queue, made on first need.
    pub fn light_queue(&self, name: &str, table: &QueueTable) -> Result<Arc<QueueView>, StoreError> {
        let disabled =
            || StoreError::Config { key: "enableLmq", why: format!("\"{name}\" is no light queue") };
        let topic = self.light_topic(name).ok_or_else(disabled)?;
        self.queue(&topic, light::QUEUE_ID, table)?.ok_or_else(disabled)
    }

    /// Whether this is a light queue, or a group that reads as one.
    pub fn is_light(&self, name: &str) -> bool {
        self.light.is_some() && light::is_light(name)
    }

    /// The view of a light queue: nobody keeps it, there may be very many.
    fn light_topic(&self, name: &str) -> Option<Arc<TopicView>> {
        let counters = self.light.as_ref().filter(|_| light::is_light(name))?;
        let config = TopicConfig {
            topic_name: Text::from(name),
            read_queue_nums: 1,
            write_queue_nums: 1,
            perm: PERM_READ | PERM_WRITE,
            ..TopicConfig::default()
        };
        let queues = std::iter::once(OnceLock::new()).collect();
        let view = TopicView { name: config.topic_name.clone(), config, counters: counters.clone(), queues };
        Some(Arc::new(view))
    }

    /// All topics, in no order.
    pub fn topics(&self) -> Vec<Arc<TopicView>> {
        self.topics.iter().map(|entry| entry.value().clone()).collect()
    }

    /// Runs a look at a topic, with nothing cloned.
    pub fn look_at_topic(&self, name: &str, look: impl FnOnce(&TopicView)) {
        if let Some(entry) = self.topics.get(name) {
            look(entry.value());
        } else if let Some(light) = self.light_topic(name) {
            look(&light);
        }
    }

    /// Publishes a topic or its new configuration. Called by `Topics` at the start, then by its `Topic` only.
    pub(crate) fn publish_topic(&self, config: TopicConfig, counters: Arc<Counters>) {
        let name = config.topic_name.clone();
        let count = usize::try_from(config.read_queue_nums.max(config.write_queue_nums)).unwrap_or(0);
        let queues = (0..count).map(|_| OnceLock::new()).collect();
        let view = Arc::new(TopicView { name: name.clone(), config, counters, queues });
        self.topics.insert(name, view);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a topic and the views of its queues. Called by its `Topic` only.
    pub(crate) fn remove_topic(&self, name: &str) -> Option<Arc<TopicView>> {
        let view = self.topics.remove(name).map(|(_, view)| view);
        self.queues.retain(|(topic, _), _| topic.as_str() != name);
        self.version.fetch_add(1, Ordering::AcqRel);
        view
    }

    /// The view of a queue, made on first need; it is the same object at every call.
    pub fn queue(
        &self,
        topic: &TopicView,
        queue_id: i32,
        table: &QueueTable,
    ) -> Result<Option<Arc<QueueView>>, StoreError> {
        let Some(slot) = usize::try_from(queue_id).ok().and_then(|at| topic.queues.get(at)) else {
            return Ok(None);
        };
        if let Some(view) = slot.get() {
            return Ok(Some(view.clone()));
        }
        let units = match self.is_light(&topic.name) {
            true => table.open_light(&topic.name)?,
            false => table.open_or_create(&topic.name, queue_id)?,
        };
        let entry = self.queues.entry((topic.name.clone(), queue_id)).or_insert_with(|| {
            Arc::new(QueueView {
                topic: topic.name.clone(),
                queue_id,
                units,
                readers: Readers::default(),
                waited_for: AtomicBool::new(false),
                actor: ArcSwapOption::empty(),
            })
        });
        Ok(Some(slot.get_or_init(|| entry.value().clone()).clone()))
    }

    /// Whether this is the view of a queue of today: its topic may have been deleted, and made again.
    pub(crate) fn is_current(&self, queue: &Arc<QueueView>) -> bool {
        let entry = self.queues.get(&(queue.topic.clone(), queue.queue_id));
        entry.is_some_and(|entry| Arc::ptr_eq(entry.value(), queue))
    }

    /// The view of a consumer group.
    pub fn group(&self, name: &str) -> Option<Arc<GroupView>> {
        self.groups.get(name).map(|entry| entry.value().clone())
    }

    /// All groups, in no order.
    pub fn groups(&self) -> Vec<Arc<GroupView>> {
        self.groups.iter().map(|entry| entry.value().clone()).collect()
    }

    /// Publishes a group that is new. Called by `Groups` only.
    pub(crate) fn publish_group(&self, view: Arc<GroupView>) {
        self.groups.insert(view.name.clone(), view);
        self.note_change();
    }

    /// Raises the version: a published view has changed.
    pub(crate) fn note_change(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Withdraws a group.
    pub fn withdraw_group(&self, name: &str) -> Option<Arc<GroupView>> {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.groups.remove(name).map(|(_, view)| view)
    }

    /// A connection by its name.
    pub fn link(&self, id: LinkId) -> Option<Arc<Link>> {
        self.links.get(&id).map(|entry| entry.value().clone())
    }

    /// How many connections there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn publish_link(&self, link: Arc<Link>) {
        self.links.insert(link.id(), link);
    }

    pub(crate) fn withdraw_link(&self, id: LinkId) {
        self.links.remove(&id);
    }
}

impl GroupView {
    /// A group that nobody has registered with yet.
    pub fn new(config: Arc<SubscriptionGroupConfig>, coordinator: Addr<RebalanceCoordinator>) -> GroupView {
        let name = config.group_name.clone();
        GroupView {
            name,
            config: ArcSwap::new(config),
            online: ArcSwapOption::empty(),
            forbidden: ArcSwap::default(),
            coordinator,
        }
    }

    /// The group's name.
    pub fn name(&self) -> &Text {
        &self.name
    }

    /// Its configuration.
    pub fn config(&self) -> Arc<SubscriptionGroupConfig> {
        self.config.load_full()
    }

    /// Who is online, as of the last heart-beats; none when nobody has registered.
    pub fn online(&self) -> Option<Arc<OnlineGroup>> {
        self.online.load_full()
    }

    /// Whether it may not read this topic.
    pub fn is_forbidden(&self, topic: &str) -> bool {
        self.forbidden.load().contains(topic)
    }

    /// Who keeps its members and leases.
    pub fn coordinator(&self) -> &Addr<RebalanceCoordinator> {
        &self.coordinator
    }

    /// Publishes a new configuration. Called by `Groups` only.
    pub(crate) fn publish_config(&self, config: Arc<SubscriptionGroupConfig>) {
        self.config.store(config);
    }

    /// Publishes the topics that it may not read. Called by `Groups` only.
    pub(crate) fn publish_forbidden(&self, topics: BTreeSet<Text>) {
        self.forbidden.store(Arc::new(topics));
    }

    /// Publishes who is online. Called by the coordinator only.
    pub(crate) fn publish_online(&self, online: Option<OnlineGroup>) {
        self.online.store(online.map(Arc::new));
    }
}

impl TopicView {
    /// How many queues it has, readable or writable.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The view of a queue, if anybody has needed it yet.
    pub(crate) fn known_queue(&self, queue_id: i32) -> Option<&QueueView> {
        let slot = usize::try_from(queue_id).ok().and_then(|at| self.queues.get(at));
        slot.and_then(OnceLock::get).map(|queue| &**queue)
    }

    /// Whether the topic may be written to.
    pub fn is_writable(&self) -> bool {
        self.config.perm & PERM_WRITE != 0
    }

    /// Whether the topic may be read from.
    pub fn is_readable(&self) -> bool {
        self.config.perm & PERM_READ != 0
    }
}

impl QueueView {
    /// Says that somebody waits for messages of this queue (or no longer). After `true` the caller looks at
    /// the queue once more: either it sees the new messages, or the dispatcher sees that it is waited for.
    pub(crate) fn mark_waited_for(&self, waited_for: bool) {
        self.waited_for.store(waited_for, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether somebody waits. The caller has published its units before it asks.
    pub(crate) fn is_waited_for(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waited_for.load(Ordering::SeqCst)
    }

    /// The actor of the queue, while it is active.
    pub fn actor(&self) -> Option<Arc<Addr<Queue>>> {
        self.actor.load_full()
    }

    /// Names the actor of the queue. Called by its topic only, when there is none.
    pub(crate) fn activate(&self, actor: Addr<Queue>) {
        self.actor.store(Some(Arc::new(actor)));
    }

    /// Forgets the actor: it is about to end.
    pub(crate) fn passivate(&self) {
        self.actor.store(None);
    }
}
