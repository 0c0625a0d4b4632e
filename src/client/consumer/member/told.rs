//! What a member answers to brokers that ask for tools.
//!
//! Invariants:
//! - what is told is how it is at this moment; only a reset changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use troupemq_codec::Text;
use troupemq_codec::request::ConsumerRunningInfo;
use troupemq_codec::topic::MessageQueue;

use super::Member;
use crate::client::consumer::asked::Asked;
use crate::client::consumer::{Delivery, Settle, Subscription};
use crate::client::message::Received;
use crate::client::progress::Progress;
use crate::client::queue::Queue;

impl Member {
    /// Answers what brokers ask.
    pub(super) fn on_asked(&mut self, asked: Asked) {
        match asked {
            // Whoever asked may have gone meanwhile.
            Asked::RunningInfo(reply) => drop(reply.send(self.running_info())),
            Asked::Status(topic, reply) => drop(reply.send(self.status(&topic))),
            Asked::Reset(offsets) => {
                for (at, queue_offset) in offsets {
                    let queue = Queue { topic: at.topic, broker_name: at.broker_name, queue_id: at.queue_id };
                    if let Some(assigned) = self.lanes.remove(&queue) {
                        tracing::info!(%queue, queue_offset, "offset reset");
                        drop(assigned);
                        self.resume(&queue, queue_offset);
                        // If a commit of what was before is under way, this one follows with the next round.
                        self.begin_commit(&queue);
                    }
                }
            }
            Asked::Directly(message, tool) => {
                let queue = Queue {
                    topic: message.topic.clone(),
                    broker_name: Text::default(),
                    queue_id: message.queue_id,
                };
                let message = Received::new(*message, Arc::new(queue));
                let delivery = Delivery::new(message, Settle::Tool(tool));
                // A full stream refuses: the tool hears that nothing was returned.
                drop(self.deliveries.try_send(Ok(delivery)));
            }
        }
    }

    /// Begins a queue anew at an offset.
    fn resume(&mut self, queue: &Queue, queue_offset: i64) {
        let of_topic = |subscription: &&Subscription| subscription.topic == queue.topic;
        if let Some(subscription) = self.settings.subscriptions.iter().find(of_topic).cloned() {
            self.begin(&subscription, queue.clone(), Progress::new(queue_offset));
        }
    }

    fn status(&self, topic: &str) -> BTreeMap<MessageQueue, i64> {
        let of_topic = self.lanes.iter().filter(|(queue, _)| topic.is_empty() || queue.topic == topic);
        of_topic.map(|(queue, assigned)| (queue.into(), assigned.progress.position())).collect()
    }

    fn running_info(&self) -> ConsumerRunningInfo {
        let properties = [
            ("PROP_CLIENT_VERSION", "V5_3_1".to_owned()),
            ("PROP_CONSUMEORDERLY", self.settings.in_order.to_string()),
            ("PROP_CONSUMER_START_TIMESTAMP", self.begun_ms.to_string()),
            ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY".to_owned()),
        ];
        let heartbeat = self.settings.to_heartbeat();
        ConsumerRunningInfo {
            pulled_queues: self
                .lanes
                .iter()
                .map(|(queue, assigned)| (queue.into(), assigned.info()))
                .collect(),
            properties: properties.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            subscription_set: heartbeat.subscription_data_set.into_iter().collect(),
            ..Default::default()
        }
    }
}
