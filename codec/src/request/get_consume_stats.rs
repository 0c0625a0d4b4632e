//! GET_CONSUME_STATS (208): how far a group has come, queue by queue.
//!
//! Invariants:
//! - the body of the answer has object keys.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group and topics.
    pub struct GetConsumeStatsHeader {
        group: Text = "consumerGroup",
        topic: Option<Text> = "topic",
        /// Several, joined by `;`.
        topics: Option<Text> = "topicList",
    }
}

/// GET_CONSUME_STATS.
pub struct GetConsumeStats;

impl Request for GetConsumeStats {
    const CODE: i32 = 208;
    const NAME: &'static str = "GET_CONSUME_STATS";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetConsumeStatsHeader;
    type Reply = NoHeader;
}
