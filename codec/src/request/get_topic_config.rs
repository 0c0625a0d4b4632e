//! GET_TOPIC_CONFIG (351): one topic of a broker.
//!
//! Invariants:
//! - the body of the answer is a [`TopicConfig`](crate::topic::TopicConfig), with a mapping for static
//!   topics.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which topic.
    pub struct GetTopicConfigHeader {
        topic: Text = "topic",
        is_logical: Option<bool> = "lo",
    }
}

/// GET_TOPIC_CONFIG.
pub struct GetTopicConfig;

impl Request for GetTopicConfig {
    const CODE: i32 = 351;
    const NAME: &'static str = "GET_TOPIC_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetTopicConfigHeader;
    type Reply = NoHeader;
}
