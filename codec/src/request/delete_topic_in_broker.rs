//! DELETE_TOPIC_IN_BROKER (215): deletes a topic with its queues.
//!
//! Invariants:
//! - system topics stay.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which topic.
    pub struct DeleteTopicInBrokerHeader {
        topic: Text = "topic",
    }
}

/// DELETE_TOPIC_IN_BROKER.
pub struct DeleteTopicInBroker;

impl Request for DeleteTopicInBroker {
    const CODE: i32 = 215;
    const NAME: &'static str = "DELETE_TOPIC_IN_BROKER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = DeleteTopicInBrokerHeader;
    type Reply = NoHeader;
}
