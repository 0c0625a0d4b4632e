//! `Topic`: one topic in use: what was decided about it, its queues, its statistics.
//! Java has them apart: `TopicConfigManager`, `PullRequestHoldService`, `BrokerStatsManager`.
//!
//! Invariants:
//! - it is started by `Topics` on first need (a change, a pull on hold, a message) and ends some time after its
//!   last use; what is published of it stays, and carries sends and pulls alone;
//! - nobody reaches it but through `Topics`, so nothing is on its way to it when it ends;
//! - what it publishes is on disk;
//! - a queue that may not be read any more has no pulls on hold: its view is published, then they are answered.
//!
//! Contents: `state` what it knows, `counters` what sends and pulls count, `statistics` sums of them,
//! `names` what a topic may be called, `attributes` how they change, `built_in` topics from the start.

pub mod attributes;
pub mod built_in;
pub mod counters;
pub mod names;
pub mod state;
pub mod statistics;

use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext, Addr, ArbiterHandle, AsyncContext, AtomicResponse, Context, Handler, Message,
    Recipient,
};
use troupemq_codec::Text;
use troupemq_codec::request::BrokerStats;
use troupemq_codec::topic::TopicConfig;
use troupemq_store::light;

use crate::commit_log::MAILBOX;
use crate::directory::QueueView;
use crate::net::Refusal;
use crate::poison::Vital;
use crate::pull::Wakened;
use crate::queue::{EndQueue, Park, Queue};
use crate::topics::{Rests, TopicParts};
use counters::{Counters, Key};
pub use state::TopicChange;
use state::{TopicState, Wish};
use statistics::{Of, Statistics};

/// Bit of a topic's system flag: of a unit.
pub const UNIT: i32 = 1;
/// Bit of a topic's system flag: subscribed by a unit.
pub const UNIT_SUBSCRIBED: i32 = 1 << 1;
/// Time between two samples of the counters.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

// ---- messages

/// Asked by `Topics`: what would the topic be? `None` if it is so already.
#[derive(Debug, Message)]
#[rtype(result = "Result<Option<TopicConfig>, Refusal>")]
pub struct Propose(pub Wish);

/// Sent by `Topics`: this is decided; `None` is the end of the topic. It is published when it is on disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Decided(pub Option<Arc<TopicConfig>>);

/// Sent by `Topics`: this is on disk. Answered when it is published, with whether it differs from what was.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct Publish(pub Arc<TopicConfig>);

/// Sent by `Topics`: it is on disk that the topic is gone. Answered when its queues are gone too.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Withdraw;

/// Sent by a session through `Topics`: hold this pull at a queue that is not in use yet. It comes back as from
/// [`Park`]; at once, if there is no such queue any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ParkFirst {
    /// The queue.
    pub queue: Arc<QueueView>,
    /// Where the session lives: the queue is started beside it.
    pub near: ArbiterHandle,
    /// The pull.
    pub park: Park,
}

/// Sent by tools through `Topics`: sums of what was stored, or of what a group was given. `None` if nothing was.
#[derive(Debug, Clone, Message)]
#[rtype(result = "Option<BrokerStats>")]
pub struct TellSums {
    /// The topic.
    pub topic: Text,
    /// What of it.
    pub key: Key,
    /// Messages or bytes.
    pub of: Of,
}

/// Asked by `Topics`: end, if nothing of you is in use. Answered with whether it ends.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct Rest;

// ---- actor

/// One topic in use.
#[derive(Debug)]
pub struct Topic {
    name: Text,
    parts: Arc<TopicParts>,
    /// Who starts it, knows it and lets it end.
    parent: Recipient<Rests>,
    state: TopicState<Addr<Queue>>,
    /// What sends and pulls count; the published view has them too.
    counters: Arc<Counters>,
    statistics: Statistics,
    _vital: Vital,
}

impl Topic {
    /// A topic as it is decided; its view, if there is one, stays as it is.
    pub fn new(
        name: Text,
        decided: Option<Arc<TopicConfig>>,
        parts: Arc<TopicParts>,
        parent: Recipient<Rests>,
    ) -> Topic {
        // What light queues count they count together, under their common front.
        let is_counted = !parts.directory.is_light(&name) || name.as_str() == light::PREFIX;
        let view = parts.directory.topic(&name).filter(|_| is_counted);
        let counters = view.map(|view| view.counters.clone()).unwrap_or_default();
        Topic {
            state: TopicState::new(decided, parts.clock.0.now_ms()),
            statistics: Statistics::since(counters.rested()),
            counters,
            _vital: parts.poison.guard("Topic"),
            name,
            parts,
            parent,
        }
    }

    fn now_ms(&self) -> i64 {
        self.parts.clock.0.now_ms()
    }

    /// Every 10 s: the next sample, and a look at what is still in use.
    fn sample(&mut self) {
        let now_ms = self.now_ms();
        let counted = self.counters.read();
        self.state.forget_ended(Addr::connected, now_ms);
        if self.state.is_idle(now_ms) && self.statistics.is_at_rest(&counted) {
            // A parent that is busy is told with the next sample.
            let _ = self.parent.try_send(Rests(self.name.clone()));
        }
        self.statistics.sample(now_ms, counted);
    }

    /// Ends queues; the pulls they hold are answered with what is published now.
    #[expect(clippy::disallowed_methods, reason = "one for each queue of a change, and none may be lost")]
    fn end(queues: Vec<Addr<Queue>>) {
        queues.into_iter().for_each(|queue| queue.do_send(EndQueue));
    }
}

impl Actor for Topic {
    type Context = Context<Topic>;

    fn started(&mut self, context: &mut Context<Topic>) {
        context.set_mailbox_capacity(MAILBOX);
        self.counters.claim();
        self.statistics.sample(self.now_ms(), self.counters.read());
        context.run_interval(SAMPLE_EVERY, |topic, _| topic.sample());
    }
}

impl Handler<Propose> for Topic {
    type Result = Result<Option<TopicConfig>, Refusal>;

    fn handle(&mut self, Propose(wish): Propose, _: &mut Context<Topic>) -> Self::Result {
        self.state.propose(wish, self.parts.config.load().enable_mixed_message_type)
    }
}

impl Handler<Decided> for Topic {
    type Result = ();

    fn handle(&mut self, Decided(decided): Decided, _: &mut Context<Topic>) {
        self.state.decide(decided, self.now_ms());
    }
}

impl Handler<Publish> for Topic {
    type Result = bool;

    fn handle(&mut self, Publish(config): Publish, _: &mut Context<Topic>) -> bool {
        let shut = self.state.published(&config, self.now_ms());
        let before = self.parts.directory.topic(&self.name);
        let differs = before.is_none_or(|before| before.config != *config);
        if differs {
            self.parts.publish(&config, self.counters.clone());
        }
        Topic::end(shut);
        differs
    }
}

impl Handler<Withdraw> for Topic {
    type Result = AtomicResponse<Topic, ()>;

    /// What is sent to it meanwhile waits, so that a topic made anew gets no queue that is about to be deleted.
    fn handle(&mut self, _: Withdraw, _: &mut Context<Topic>) -> Self::Result {
        self.parts.directory.remove_topic(&self.name);
        Topic::end(self.state.withdrawn(self.now_ms()));
        (self.counters, self.statistics) = (Arc::default(), Statistics::default());
        self.counters.claim();
        let (retention, topic) = (self.parts.retention.clone(), self.name.clone());
        let removed = async move {
            if let Err(refusal) = retention.remove_queues(vec![topic.clone()]).await {
                tracing::warn!(%topic, remark = refusal.remark, "the queues of a deleted topic were not removed");
            }
        };
        AtomicResponse::new(Box::pin(wrap_future(removed)))
    }
}

impl Handler<ParkFirst> for Topic {
    type Result = ();

    fn handle(&mut self, ParkFirst { queue, near, park }: ParkFirst, _: &mut Context<Topic>) {
        if !self.parts.directory.is_current(&queue) {
            return park.parcel.wake(Wakened::Withdrawn);
        }
        let now_ms = self.now_ms();
        self.state.forget_ended(Addr::connected, now_ms);
        let actor = self.state.queue(queue.queue_id, now_ms, || {
            let held_max = self.parts.config.load().held_pulls_max;
            Queue::launch(queue.clone(), self.parts.clock.clone(), held_max, &near)
        });
        // A park that is not delivered is dropped, and by that the pull comes back to its session.
        drop(actor.try_send(park));
    }
}

impl Handler<TellSums> for Topic {
    type Result = Option<BrokerStats>;

    fn handle(&mut self, TellSums { key, of, .. }: TellSums, _: &mut Context<Topic>) -> Self::Result {
        self.counters.read().has(&key, of).then(|| self.statistics.of(&key, of))
    }
}

impl Handler<Rest> for Topic {
    type Result = bool;

    fn handle(&mut self, _: Rest, context: &mut Context<Topic>) -> bool {
        // From here on who counts asks for the topic again; what was counted before is seen below.
        self.counters.release();
        let counted = self.counters.read();
        let rests = self.state.is_idle(self.now_ms()) && self.statistics.is_at_rest(&counted);
        match rests {
            true => {
                self.counters.rest(counted);
                context.stop();
            }
            false => _ = self.counters.claim(),
        }
        rests
    }
}
