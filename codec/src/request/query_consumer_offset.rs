//! QUERY_CONSUMER_OFFSET (14): how far a group has come in a queue.
//!
//! Invariants:
//! - QUERY_NOT_FOUND, and no other code, tells a client that the group is new.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Group and queue.
    pub struct QueryConsumerOffsetHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        /// Explicitly false: never answer 0 for a queue without a stored offset.
        zero_if_not_found: Option<bool> = "setZeroIfNotFound",
    }
}

header! {
    /// The stored offset.
    pub struct QueryConsumerOffsetReplyHeader {
        queue_offset: i64 = "offset",
    }
}

/// QUERY_CONSUMER_OFFSET.
pub struct QueryConsumerOffset;

impl Request for QueryConsumerOffset {
    const CODE: i32 = 14;
    const NAME: &'static str = "QUERY_CONSUMER_OFFSET";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QueryConsumerOffsetHeader;
    type Reply = QueryConsumerOffsetReplyHeader;
}
