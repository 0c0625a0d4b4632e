//! QUERY_TOPICS_BY_CONSUMER (343): which topics a group reads.
//!
//! Invariants:
//! - the body of the answer is a [`TopicList`](crate::request::TopicList).

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group.
    pub struct QueryTopicsByConsumerHeader {
        group: Text = "group",
    }
}

/// QUERY_TOPICS_BY_CONSUMER.
pub struct QueryTopicsByConsumer;

impl Request for QueryTopicsByConsumer {
    const CODE: i32 = 343;
    const NAME: &'static str = "QUERY_TOPICS_BY_CONSUMER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QueryTopicsByConsumerHeader;
    type Reply = NoHeader;
}
