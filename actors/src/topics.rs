//! `Topics`: what belongs to all topics of a broker together: the list, its version, its file; parent of the
//! topics in use (Java: `TopicConfigManager`).
//!
//! Invariants:
//! - a change is on disk before it is published, and published before the request that asked for it is answered:
//!   no message is acknowledged whose topic a crash could forget;
//! - what a topic becomes is decided by its `Topic`, one change after the other; of a list all are made or none;
//! - a topic is published here when the broker starts, and by its `Topic` ever after;
//! - every change that was published is told to the registrar.
//!
//! Contents: `table` the list, `requests` what others ask.

mod requests;
pub mod table;
#[cfg(test)]
mod table_test;
#[cfg(test)]
mod topics_test;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::{ActorFutureExt, wrap_future};
use actix::{Actor, Addr, AsyncContext, Context, Message, Recipient, ResponseFuture};
use arc_swap::ArcSwap;
use troupemq_codec::Text;
use troupemq_codec::topic::{TopicConfig, TopicConfigTable};
use troupemq_store::QueueTable;
use troupemq_store::tables::TableFile;

use crate::config::{BrokerConfig, NodeClock};
use crate::directory::{Directory, TopicView};
use crate::held::{Held, Waiting, hold};
use crate::net::Refusal;
use crate::poison::Poison;
use crate::retention::Retention;
use crate::saving::{Saving, in_background};
use crate::topic::counters::Counters;
use crate::topic::state::Wish;
use crate::topic::{Decided, Propose, Publish, Rest, Topic, TopicChange, Withdraw, attributes};
use table::{TopicRules, TopicSnapshot, TopicTable};

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
    /// Whether it is an ordered topic if it is made.
    pub order: bool,
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

/// Sent when settings have changed: the template of new topics is there if topics are made on use, with as many queues
/// as are set. Answered when it is published.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct FitTemplate;

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

/// Sent by who counts in a topic that nobody takes samples of.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Attend(pub Text);

/// Sent by a `Topic`: nothing of it is in use, it may end.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Rests(pub Text);

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

/// What the topics and their owner are made of.
#[derive(Debug)]
pub struct TopicParts {
    /// Where views are published.
    pub directory: Arc<Directory>,
    /// The consume queues, for topics that have batches.
    pub queues: QueueTable,
    /// Deletes the queues of topics that go.
    pub retention: Retention,
    /// Where the time comes from.
    pub clock: NodeClock,
    /// The file of the table; none in tests that keep nothing.
    pub file: Option<TableFile<TopicConfigTable>>,
    /// Whether topics are made on demand, and of which types.
    pub config: Arc<ArcSwap<BrokerConfig>>,
    /// Tripped by a topic that panics.
    pub poison: Poison,
}

/// Owner of the topic table.
#[derive(Debug)]
pub struct Topics {
    parts: Arc<TopicParts>,
    table: TopicTable,
    /// The topics in use.
    active: HashMap<Text, Addr<Topic>>,
    saving: Saving<Change>,
    changes: Option<Recipient<TopicsChanged>>,
}

/// A change that is being saved, and who is told when it is public.
#[derive(Debug)]
struct Change {
    topics: Vec<Text>,
    what: What,
    tell: Tell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Put,
    Deleted,
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

impl TopicParts {
    /// Publishes the view of a topic.
    pub(crate) fn publish(&self, config: &TopicConfig, counters: Arc<Counters>) {
        if attributes::is_batch(config) {
            self.queues.declare_batch(&config.topic_name);
        }
        self.directory.publish_topic(config.clone(), counters);
    }
}

impl Topics {
    /// The owner of the topics that were saved and of the built-in ones. All of them are published here.
    pub fn new(parts: TopicParts, saved: TopicConfigTable) -> Topics {
        let table = TopicTable::new(saved, rules(&parts.config.load()));
        for config in table.iter() {
            parts.publish(config, Arc::default());
        }
        let parts = Arc::new(parts);
        Topics { parts, table, active: HashMap::new(), saving: Saving::default(), changes: None }
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
    }

    /// The actor of a topic, started if it is not in use.
    fn active(&mut self, topic: &Text, context: &Context<Topics>) -> &Addr<Topic> {
        self.active.entry(topic.clone()).or_insert_with_key(|topic| {
            let decided = self.table.get(topic).cloned();
            Topic::new(topic.clone(), decided, self.parts.clone(), context.address().recipient()).start()
        })
    }

    /// Tells a topic in use what it is from now on; another learns it when it is next in use.
    #[expect(clippy::disallowed_methods, reason = "a decision may not be lost")]
    fn tell_decided(&self, topic: &str, decided: Option<Arc<TopicConfig>>) {
        if let Some(actor) = self.active.get(topic) {
            actor.do_send(Decided(decided));
        }
    }

    /// Asks topics what they would be, takes that in if none refuses, and tells when it is public. Nothing else
    /// is handled until it is decided.
    fn decide(&mut self, wishes: Vec<(Text, Wish)>, tell: Tell, context: &mut Context<Topics>) {
        let names: Vec<Text> = wishes.iter().map(|(topic, _)| topic.clone()).collect();
        let asked: Vec<_> = wishes
            .into_iter()
            .map(|(topic, wish)| (self.active(&topic, context).clone(), Propose(wish)))
            .collect();
        let decided = async move {
            let mut proposals = Vec::new();
            for (topic, proposal) in asked {
                proposals.push(topic.send(proposal).await??);
            }
            Ok::<_, Refusal>(proposals.into_iter().flatten().map(Arc::new).collect())
        };
        context.wait(wrap_future::<_, Topics>(decided).map(|decided, topics, context| {
            let is_refused = decided.is_err();
            topics.decided(decided, tell, context);
            // What was refused to be made is not kept waiting for its time to rest.
            for topic in names.into_iter().filter(|_| is_refused) {
                topics.let_rest(topic, context);
            }
        }));
    }

    fn decided(
        &mut self,
        decided: Result<Vec<Arc<TopicConfig>>, Refusal>,
        tell: Tell,
        context: &mut Context<Topics>,
    ) {
        let mut change = Change { topics: Vec::new(), what: What::Put, tell };
        let now_ms = self.now_ms();
        match decided {
            Ok(configs) if configs.is_empty() => change.tell(&self.parts.directory, &Ok(())),
            Ok(configs) => {
                for config in configs {
                    change.topics.push(config.topic_name.clone());
                    self.tell_decided(&config.topic_name, Some(config.clone()));
                    self.table.put(config, now_ms);
                }
                self.saving.changed_for(change);
                self.save(context);
            }
            Err(refusal) => change.tell(&self.parts.directory, &Err(refusal)),
        }
    }

    /// Lets a topic end if nothing of it is in use. Nothing else is handled meanwhile, so that nothing is sent to
    /// one that ends.
    fn let_rest(&mut self, topic: Text, context: &mut Context<Topics>) {
        let Some(actor) = self.active.get(&topic) else { return };
        let rests = wrap_future::<_, Topics>(actor.send(Rest));
        context.wait(rests.map(move |rests, topics, _| {
            if rests.unwrap_or(true) {
                topics.active.remove(&topic);
            }
        }));
    }

    /// Saves what changed, unless a save runs: then it follows.
    fn save(&mut self, context: &mut Context<Topics>) {
        if !self.saving.begins() {
            return;
        }
        let snapshot = self.table.snapshot();
        let (file, saved) = (self.parts.file.clone(), snapshot.clone());
        let save = move || match file {
            Some(file) => file.save(&saved.table()),
            None => Ok(()),
        };
        let then = move |topics: &mut Topics, saved, context: &mut Context<Topics>| {
            topics.saved(saved, &snapshot, context);
            topics.save(context);
        };
        in_background(context, save, then, |topics: &mut Topics, context| {
            topics.saving.again();
            topics.save(context);
        });
    }

    /// Publishes what was saved, tells the registrar, then those who wait.
    fn saved(&mut self, saved: Result<(), Refusal>, snapshot: &TopicSnapshot, context: &Context<Topics>) {
        let ended = self.saving.ended(&saved);
        // What could not be saved is told to who waits, and published once a later save has it.
        let late = ended.iter().filter(|_| saved.is_err()).map(|change| Change {
            topics: change.topics.clone(),
            what: change.what,
            tell: Tell::Nobody,
        });
        self.saving.put_back(late, |one, other| (&one.topics, one.what) == (&other.topics, other.what));
        let mut asked = Vec::new();
        for change in ended.iter().filter(|_| saved.is_ok()) {
            asked.extend(change.topics.iter().filter_map(|topic| {
                let published = self.publish(topic, (change.what, snapshot), context)?;
                let topic = topic.clone();
                Some(async move { published.await.then_some(topic) })
            }));
        }
        let (directory, changes) = (self.parts.directory.clone(), self.changes.clone());
        actix::spawn(async move {
            let mut topics = Vec::new();
            for published in asked {
                topics.extend(published.await);
            }
            if let Some(changes) = changes.filter(|_| !topics.is_empty()) {
                tell_registrar(&changes, topics).await;
            }
            ended.into_iter().for_each(|change| change.tell(&directory, &saved));
        });
    }

    /// Has a topic published as it was saved, or withdrawn. The future says whether that changed anything; there
    /// is none for a topic that was deleted before the save began: its withdrawal follows.
    fn publish(
        &mut self,
        topic: &Text,
        (what, snapshot): (What, &TopicSnapshot),
        context: &Context<Topics>,
    ) -> Option<ResponseFuture<bool>> {
        let actor = self.active(topic, context);
        Some(match (what, snapshot.get(topic)) {
            (What::Deleted, _) => {
                let withdrawn = actor.send(Withdraw);
                Box::pin(async move { withdrawn.await.is_ok() })
            }
            (What::Put, Some(config)) => {
                let published = actor.send(Publish(config.clone()));
                Box::pin(async move { published.await.unwrap_or(false) })
            }
            (What::Put, None) => return None,
        })
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
                self.tell_decided(&topic, Some(config));
                let change = Change { topics: vec![topic.clone()], what: What::Put, tell: Tell::View(held) };
                let is_alike = |other: &Change| other.what == What::Put && other.topics.contains(&topic);
                self.saving.wait_with(change, is_alike);
                self.save(context);
            }
            Err(refusal) => held.answer(Err(refusal)),
        }
        answer(waiting)
    }
}

/// Tells the registrar of changes; a name server that is slow delays the answer, it does not forbid it.
async fn tell_registrar(changes: &Recipient<TopicsChanged>, topics: Vec<Text>) {
    let (told, known) = hold();
    // The registrar registers everything at its next turn, so what does not fit is not lost.
    let _ = changes.try_send(TopicsChanged { topics, told });
    // However it ends, those who wait for the topic are answered.
    let _ = tokio::time::timeout(REGISTRATION_PATIENCE, known).await;
}

/// What a broker with these settings decides by when it makes topics.
pub(crate) fn rules(broker: &BrokerConfig) -> TopicRules {
    TopicRules {
        cluster: Text::from(broker.broker_cluster_name.as_str()),
        broker: Text::from(broker.broker_name.as_str()),
        auto_create: broker.auto_create_topic_enable,
        default_queues: broker.default_topic_queue_nums,
        revive_queues: broker.revive_queue_num,
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
