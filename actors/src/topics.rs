//! `Topics`: owner of a broker's topics; publishes their views (Java: `TopicConfigManager`).
//!
//! Invariants:
//! - a change is on disk before it is published, and published before the request that asked for it is answered:
//!   no message is acknowledged whose topic a crash could forget;
//! - nobody else publishes topics;
//! - every change that was published is told to the registrar.

#[cfg(test)]
mod topics_test;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, Message, MessageResult, Recipient, ResponseFuture};
use arc_swap::ArcSwap;
use troupemq_codec::topic::{TopicConfig, TopicConfigTable};
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::QueueTable;
use troupemq_store::tables::TableFile;

use crate::config::{BrokerConfig, NodeClock};
use crate::directory::{Directory, TopicView};
use crate::held::{Held, Waiting, hold};
use crate::net::Refusal;
use crate::saving::{Saving, in_background};
use crate::topic::{TopicChange, TopicRules, TopicSnapshot, TopicTable, attributes, names};

/// Requests that wait at most.
const MAILBOX: usize = 65_536;

// ---- messages

/// Wanted by a send or a pull whose topic is unknown: make it from its template if that is allowed.
/// Answered with the view once it is published, or with why there is none.
#[derive(Debug, Message)]
#[rtype(result = "Result<Arc<TopicView>, Refusal>")]
pub struct EnsureTopic {
    /// The topic wanted.
    pub topic: Text,
    /// The template, usually `TBW102`. A retry or dead-letter topic needs none.
    pub template: Text,
    /// Queues wished; the template's count limits them. A retry or dead-letter topic gets one.
    pub queue_nums: i32,
}

/// Wanted by who serves a group: make its retry or dead-letter topic if there is none. Answered as `EnsureTopic`.
#[derive(Debug, Message)]
#[rtype(result = "Result<Arc<TopicView>, Refusal>")]
pub struct EnsureGroupTopic {
    /// The topic wanted.
    pub topic: Text,
    /// Queues it gets if it is made.
    pub queue_nums: i32,
    /// System flag it gets if it is made.
    pub sys_flag: i32,
}

/// UPDATE_AND_CREATE_TOPIC, UPDATE_AND_CREATE_TOPIC_LIST: all of them or none. Answered when they are published.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct ChangeTopics(pub Vec<TopicChange>);

/// DELETE_TOPIC_IN_BROKER: a topic, and the topics that were made for it. Answered when their queues are gone.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct DeleteTopic {
    /// The topic.
    pub topic: Text,
    /// Retry topics of pop that groups had for it.
    pub with: Vec<Text>,
}

/// Sent by the registrar: a name server says that these topics are ordered.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct MarkOrdered(pub Vec<Text>);

/// Everything there is. Sent by the registrar, by tools and by slaves.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "TopicSnapshot")]
pub struct AllTopics;

/// These topics, as far as they exist, with the version of all. Sent by the registrar.
#[derive(Debug, Clone, Message)]
#[rtype(result = "TopicSnapshot")]
pub struct TheseTopics(pub Vec<Text>);

/// The names of the system's own topics. Sent by tools.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "Vec<Text>")]
pub struct SystemTopics;

/// Sent once, when the node is built: whom to tell of changes.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TellChanges(pub Recipient<TopicsChanged>);

/// Sent by `Topics` after each change: the names of the topics that are new or different.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TopicsChanged {
    /// Which ones.
    pub topics: Vec<Text>,
    /// Answered when the name servers that can be reached know it.
    pub told: Held<()>,
}

// ---- actor

/// How long a change of topics waits for the name servers before it is answered all the same.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(3);

/// What the owner of the topics is made of.
#[derive(Debug)]
pub struct TopicParts {
    /// Where views are published.
    pub directory: Arc<Directory>,
    /// The consume queues, for topics that go or have batches.
    pub queues: QueueTable,
    /// Where the time comes from.
    pub clock: NodeClock,
    /// The file of the table; none in tests that keep nothing.
    pub file: Option<TableFile<TopicConfigTable>>,
    /// Whether topics are made on demand, and of which types.
    pub config: Arc<ArcSwap<BrokerConfig>>,
}

/// Owner of the topic table.
#[derive(Debug)]
pub struct Topics {
    parts: TopicParts,
    table: TopicTable,
    saving: Saving<Change>,
    changes: Option<Recipient<TopicsChanged>>,
}

/// A change that is being saved: what is to be published, and who is told then.
#[derive(Debug)]
struct Change {
    topics: Vec<Text>,
    tell: Tell,
}

#[derive(Debug)]
enum Tell {
    View(Held<Result<Arc<TopicView>, Refusal>>),
    Done(Held<Result<(), Refusal>>),
    Nobody,
}

impl Change {
    /// Tells who waits for the change what became of it.
    fn tell(self, directory: &Directory, saved: &Result<(), Refusal>) {
        match self.tell {
            Tell::Done(held) => held.answer(saved.clone()),
            Tell::View(held) => held.answer(saved.clone().and_then(|()| {
                let view = self.topics.first().and_then(|topic| directory.topic(topic));
                view.ok_or_else(|| Refusal::gone("the topic"))
            })),
            Tell::Nobody => {}
        }
    }
}

impl Topics {
    /// The owner of the topics that were saved and of the built-in ones. All of them are published here.
    pub fn new(parts: TopicParts, saved: TopicConfigTable) -> Topics {
        let table = TopicTable::new(saved, rules(&parts.config.load()));
        let topics = Topics { parts, table, saving: Saving::default(), changes: None };
        for config in topics.table.iter() {
            topics.publish(config);
        }
        topics
    }

    /// Starts the actor on this arbiter.
    pub fn launch(self) -> Addr<Topics> {
        self.start()
    }

    fn now_ms(&self) -> i64 {
        self.parts.clock.0.now_ms()
    }

    /// Takes over what may have changed in the configuration.
    fn reload(&mut self) {
        let config = self.parts.config.load();
        self.table.rules.auto_create = config.auto_create_topic_enable;
        self.table.rules.mixed_types = config.enable_mixed_message_type;
    }

    fn publish(&self, config: &TopicConfig) -> Arc<TopicView> {
        if attributes::is_batch(config) {
            self.parts.queues.declare_batch(&config.topic_name);
        }
        self.parts.directory.publish_topic(config.topic_name.clone(), config.clone())
    }

    /// Saves what changed, unless a save runs: then it follows.
    fn save(&mut self, context: &mut Context<Topics>) {
        if !self.saving.begins() {
            return;
        }
        let (snapshot, file) = (self.table.snapshot(), self.parts.file.clone());
        let save = move || match file {
            Some(file) => file.save(&snapshot.table()),
            None => Ok(()),
        };
        in_background(context, save, |topics: &mut Topics, saved, context| {
            topics.saved(saved);
            topics.save(context);
        });
    }

    fn saved(&mut self, saved: Result<(), Refusal>) {
        let ended = self.saving.ended();
        let mut topics = Vec::new();
        for change in ended.iter().filter(|_| saved.is_ok()) {
            topics.extend(self.publish_all(&change.topics));
        }
        let directory = self.parts.directory.clone();
        let tell = move || ended.into_iter().for_each(|change| change.tell(&directory, &saved));
        let Some(changes) = self.changes.as_ref().filter(|_| !topics.is_empty()) else { return tell() };
        let (told, known) = hold();
        // The registrar registers everything at its next turn, so what does not fit is not lost.
        let _ = changes.try_send(TopicsChanged { topics, told });
        actix::spawn(async move {
            // A name server that is slow delays the answer, it does not forbid it.
            let _ = tokio::time::timeout(REGISTRATION_PATIENCE, known).await;
            tell();
        });
    }

    /// Publishes topics as they are now, withdraws those that are gone; gives those that were not so before.
    fn publish_all(&self, topics: &[Text]) -> Vec<Text> {
        let mut published = Vec::new();
        for topic in topics {
            let before = self.parts.directory.topic(topic);
            match self.table.get(topic) {
                Some(config) if before.is_some_and(|before| before.config == **config) => continue,
                Some(config) => _ = self.publish(config),
                None => self.withdraw(topic),
            }
            published.push(topic.clone());
        }
        published
    }

    /// A topic is gone. Its queues are removed here and not elsewhere, so that nobody can make the topic anew
    /// and write to it meanwhile; it is rare, and a handful of files.
    fn withdraw(&self, topic: &Text) {
        self.parts.directory.remove_topic(topic);
        if let Err(error) = self.parts.queues.remove(topic) {
            tracing::warn!(%topic, %error, "the queues of a deleted topic were not removed");
        }
    }

    /// Gives the view of a topic that is in the table, once it is published.
    fn view_of(
        &mut self,
        made: Result<Arc<TopicConfig>, Refusal>,
        context: &mut Context<Topics>,
    ) -> ResponseFuture<Result<Arc<TopicView>, Refusal>> {
        let (held, waiting) = hold();
        match made {
            Ok(config) => {
                let topic = config.topic_name.clone();
                let change = Change { topics: vec![topic.clone()], tell: Tell::View(held) };
                self.saving.wait_with(change, |other| other.topics.contains(&topic));
                self.save(context);
            }
            Err(refusal) => held.answer(Err(refusal)),
        }
        answer(waiting)
    }

    fn change_all(&mut self, changes: Vec<TopicChange>) -> Result<Vec<Text>, Refusal> {
        let mut named = BTreeSet::new();
        for change in &changes {
            let config = self.table.check(change)?;
            if let Some(twice) = named.replace(config.topic_name) {
                let remark = format!("the topic {twice} stands twice in the list");
                return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
            }
        }
        let now_ms = self.now_ms();
        let mut changed = Vec::new();
        for change in changes {
            changed.extend(self.table.change(change, now_ms)?.map(|config| config.topic_name.clone()));
        }
        Ok(changed)
    }

    fn delete_all(&mut self, delete: DeleteTopic) -> Result<Vec<Text>, Refusal> {
        let now_ms = self.now_ms();
        let mut gone = Vec::new();
        for topic in std::iter::once(delete.topic).chain(delete.with) {
            gone.extend(self.table.delete(&topic, now_ms)?.map(|config| config.topic_name.clone()));
        }
        Ok(gone)
    }

    fn done_after(
        &mut self,
        changed: Result<Vec<Text>, Refusal>,
        context: &mut Context<Topics>,
    ) -> ResponseFuture<Result<(), Refusal>> {
        let (held, waiting) = hold();
        match changed {
            Ok(topics) if topics.is_empty() => held.answer(Ok(())),
            Ok(topics) => {
                self.saving.changed_for(Change { topics, tell: Tell::Done(held) });
                self.save(context);
            }
            Err(refusal) => held.answer(Err(refusal)),
        }
        answer(waiting)
    }
}

fn rules(broker: &BrokerConfig) -> TopicRules {
    TopicRules {
        cluster: Text::from(broker.broker_cluster_name.as_str()),
        broker: Text::from(broker.broker_name.as_str()),
        auto_create: broker.auto_create_topic_enable,
        default_queues: broker.default_topic_queue_nums,
        revive_queues: broker.revive_queue_num,
        mixed_types: broker.enable_mixed_message_type,
    }
}

/// The answer, or that nobody is left to give it.
fn answer<T: 'static>(waiting: Waiting<Result<T, Refusal>>) -> ResponseFuture<Result<T, Refusal>> {
    Box::pin(async move { waiting.await.unwrap_or_else(|_| Err(Refusal::gone("the owner of the topics"))) })
}

impl Actor for Topics {
    type Context = Context<Topics>;

    fn started(&mut self, context: &mut Context<Topics>) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<EnsureTopic> for Topics {
    type Result = ResponseFuture<Result<Arc<TopicView>, Refusal>>;

    fn handle(&mut self, wanted: EnsureTopic, context: &mut Context<Topics>) -> Self::Result {
        if let Some(view) = self.parts.directory.topic(&wanted.topic) {
            return Box::pin(std::future::ready(Ok(view)));
        }
        self.reload();
        let (topic, now_ms) = (&wanted.topic, self.now_ms());
        let made = match names::is_of_group(topic) {
            true => self.table.create_for_group(topic, 1, 0, now_ms),
            false => self.table.create_from(topic, &wanted.template, wanted.queue_nums, now_ms),
        };
        self.view_of(made, context)
    }
}

impl Handler<EnsureGroupTopic> for Topics {
    type Result = ResponseFuture<Result<Arc<TopicView>, Refusal>>;

    fn handle(&mut self, wanted: EnsureGroupTopic, context: &mut Context<Topics>) -> Self::Result {
        if let Some(view) = self.parts.directory.topic(&wanted.topic) {
            return Box::pin(std::future::ready(Ok(view)));
        }
        let now_ms = self.now_ms();
        let made = self.table.create_for_group(&wanted.topic, wanted.queue_nums, wanted.sys_flag, now_ms);
        self.view_of(made, context)
    }
}

impl Handler<ChangeTopics> for Topics {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, ChangeTopics(changes): ChangeTopics, context: &mut Context<Topics>) -> Self::Result {
        self.reload();
        let changed = self.change_all(changes);
        self.done_after(changed, context)
    }
}

impl Handler<DeleteTopic> for Topics {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, delete: DeleteTopic, context: &mut Context<Topics>) -> Self::Result {
        let gone = self.delete_all(delete);
        self.done_after(gone, context)
    }
}

impl Handler<MarkOrdered> for Topics {
    type Result = ();

    fn handle(&mut self, MarkOrdered(topics): MarkOrdered, context: &mut Context<Topics>) {
        let now_ms = self.now_ms();
        let changed = self.table.mark_ordered(topics.iter().map(Text::as_str), now_ms);
        if !changed.is_empty() {
            let topics = changed.iter().map(|config| config.topic_name.clone()).collect();
            self.saving.changed_for(Change { topics, tell: Tell::Nobody });
            self.save(context);
        }
    }
}

impl Handler<AllTopics> for Topics {
    type Result = MessageResult<AllTopics>;

    fn handle(&mut self, _: AllTopics, _: &mut Context<Topics>) -> Self::Result {
        MessageResult(self.table.snapshot())
    }
}

impl Handler<TheseTopics> for Topics {
    type Result = MessageResult<TheseTopics>;

    fn handle(&mut self, TheseTopics(topics): TheseTopics, _: &mut Context<Topics>) -> Self::Result {
        MessageResult(self.table.snapshot_of(&topics))
    }
}

impl Handler<SystemTopics> for Topics {
    type Result = MessageResult<SystemTopics>;

    fn handle(&mut self, _: SystemTopics, _: &mut Context<Topics>) -> Self::Result {
        MessageResult(self.table.system_topics().into_iter().collect())
    }
}

impl Handler<TellChanges> for Topics {
    type Result = ();

    fn handle(&mut self, TellChanges(changes): TellChanges, _: &mut Context<Topics>) {
        self.changes = Some(changes);
    }
}
