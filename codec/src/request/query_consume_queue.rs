//! QUERY_CONSUME_QUEUE (321): units of a consume queue.
//!
//! Invariants:
//! - the body of the answer is JSON.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which units.
    pub struct QueryConsumeQueueHeader {
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        queue_offset: i64 = "index",
        units_max: i32 = "count",
        /// Whose filter is to be shown.
        group: Option<Text> = "consumerGroup",
    }
}

/// QUERY_CONSUME_QUEUE.
pub struct QueryConsumeQueue;

impl Request for QueryConsumeQueue {
    const CODE: i32 = 321;
    const NAME: &'static str = "QUERY_CONSUME_QUEUE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QueryConsumeQueueHeader;
    type Reply = NoHeader;
}
