//! A queue of a topic on one broker (RocketMQ's `MessageQueue`).
//!
//! Invariants:
//! - the order is by topic, broker, id: every member of a group must sort queues alike.

use std::fmt;

use troupemq_codec::Text;
use troupemq_codec::topic::MessageQueue;

/// One queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Queue {
    /// The topic.
    pub topic: Text,
    /// The broker's name, which a master shares with its slaves.
    pub broker_name: Text,
    /// The number of the queue on this broker.
    pub queue_id: i32,
}

impl From<&Queue> for MessageQueue {
    fn from(queue: &Queue) -> MessageQueue {
        let Queue { topic, broker_name, queue_id } = queue.clone();
        MessageQueue { topic, broker_name, queue_id }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.topic, self.broker_name, self.queue_id)
    }
}
