//! What others ask the owner of the topics.
//!
//! Invariants:
//! - a topic that is published already costs no more than a look at the directory;
//! - what concerns one topic in use is passed on to it.

use std::sync::Arc;

use actix::{Context, Handler, MessageResult, ResponseFuture};
use troupemq_codec::Text;
use troupemq_codec::request::BrokerStats;

use super::{
    AllTopics, Attend, Change, ChangeTopics, DeleteTopic, EnsureGroupTopic, EnsureTopic, FitTemplate,
    MarkOrdered, Rests, SystemTopics, Tell, TellChanges, TheseTopics, Topics, What, answer,
};
use crate::directory::TopicView;
use crate::held::hold;
use crate::net::Refusal;
use crate::pull::Wakened;
use crate::topic::state::Wish;
use crate::topic::{ParkFirst, TellSums, names};

impl Handler<EnsureTopic> for Topics {
    type Result = ResponseFuture<Result<Arc<TopicView>, Refusal>>;

    fn handle(&mut self, wanted: EnsureTopic, context: &mut Context<Topics>) -> Self::Result {
        if let Some(view) = self.parts.directory.topic(&wanted.topic) {
            return Box::pin(std::future::ready(Ok(view)));
        }
        self.reload();
        let (topic, now_ms) = (&wanted.topic, self.now_ms());
        let made = match names::is_of_group(topic) {
            true => {
                let (topic, queue_nums) = (topic.clone(), 1);
                let wanted = EnsureGroupTopic { topic, queue_nums, sys_flag: 0, order: false };
                self.table.create_for_group(&wanted, now_ms)
            }
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
        let made = self.table.create_for_group(&wanted, now_ms);
        self.view_of(made, context)
    }
}

impl Handler<ChangeTopics> for Topics {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, ChangeTopics(changes): ChangeTopics, context: &mut Context<Topics>) -> Self::Result {
        let (held, waiting) = hold();
        match self.table.check_names(&changes) {
            Ok(()) => {
                // A copy: the text that came in a frame would keep the whole frame alive.
                let named = changes.into_iter().map(|change| {
                    (Text::from(change.config.topic_name.as_str()), Wish::Change(Box::new(change)))
                });
                self.decide(named.collect(), Tell::Done(held), context);
            }
            Err(refusal) => held.answer(Err(refusal)),
        }
        answer(waiting)
    }
}

impl Handler<FitTemplate> for Topics {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, FitTemplate: FitTemplate, context: &mut Context<Topics>) -> Self::Result {
        let (held, waiting) = hold();
        self.reload();
        let queues = self.parts.config.load().default_topic_queue_nums;
        let fitted = self.table.fit_template(queues).map(Arc::new);
        self.decided(Ok(fitted.into_iter().collect()), Tell::Done(held), context);
        answer(waiting)
    }
}

impl Handler<DeleteTopic> for Topics {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, delete: DeleteTopic, context: &mut Context<Topics>) -> Self::Result {
        let (held, waiting) = hold();
        match self.delete_all(delete) {
            Ok(topics) if topics.is_empty() => held.answer(Ok(())),
            Ok(topics) => {
                self.saving.changed_for(Change { topics, what: What::Deleted, tell: Tell::Done(held) });
                self.save(context);
            }
            Err(refusal) => held.answer(Err(refusal)),
        }
        answer(waiting)
    }
}

impl Topics {
    fn delete_all(&mut self, delete: DeleteTopic) -> Result<Vec<Text>, Refusal> {
        let now_ms = self.now_ms();
        let mut gone = Vec::new();
        for topic in std::iter::once(delete.topic).chain(delete.with) {
            if let Some(config) = self.table.delete(&topic, now_ms)? {
                self.tell_decided(&topic, None);
                gone.push(config.topic_name.clone());
            } else if self.parts.directory.is_light(&topic) {
                // Nobody configured it: it has a queue and no entry.
                gone.push(Text::from(topic.as_str()));
            }
        }
        Ok(gone)
    }
}

impl Handler<MarkOrdered> for Topics {
    type Result = ();

    fn handle(&mut self, MarkOrdered(topics): MarkOrdered, context: &mut Context<Topics>) {
        let unordered =
            topics.iter().filter_map(|topic| self.table.get(topic).filter(|config| !config.order));
        let wishes: Vec<_> = unordered.map(|config| (config.topic_name.clone(), Wish::Ordered)).collect();
        if !wishes.is_empty() {
            self.decide(wishes, Tell::Nobody, context);
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

impl Handler<ParkFirst> for Topics {
    type Result = ();

    fn handle(&mut self, first: ParkFirst, context: &mut Context<Topics>) {
        let topic = first.queue.topic.clone();
        if self.table.get(&topic).is_none() && !self.parts.directory.is_light(&topic) {
            return first.park.parcel.wake(Wakened::Withdrawn);
        }
        // A pull that is not delivered is dropped, and by that it comes back to its session.
        drop(self.active(&topic, context).try_send(first));
    }
}

impl Handler<TellSums> for Topics {
    type Result = ResponseFuture<Option<BrokerStats>>;

    fn handle(&mut self, wanted: TellSums, _: &mut Context<Topics>) -> Self::Result {
        if let Some(actor) = self.active.get(&wanted.topic) {
            let told = actor.send(wanted);
            return Box::pin(async move { told.await.ok().flatten() });
        }
        // Of a topic at rest all sums are zero.
        let view = self.parts.directory.topic(&wanted.topic);
        let ever = view.is_some_and(|view| view.counters.read().has(&wanted.key, wanted.of));
        Box::pin(std::future::ready(ever.then(BrokerStats::default)))
    }
}

impl Handler<Attend> for Topics {
    type Result = ();

    fn handle(&mut self, Attend(topic): Attend, context: &mut Context<Topics>) {
        if self.table.get(&topic).is_some() || self.parts.directory.is_light(&topic) {
            self.active(&topic, context);
        }
    }
}

impl Handler<Rests> for Topics {
    type Result = ();

    fn handle(&mut self, Rests(topic): Rests, context: &mut Context<Topics>) {
        self.let_rest(topic, context);
    }
}

impl Handler<TellChanges> for Topics {
    type Result = ();

    fn handle(&mut self, TellChanges(changes): TellChanges, _: &mut Context<Topics>) {
        self.changes = Some(changes);
    }
}
