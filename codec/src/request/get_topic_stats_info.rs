//! GET_TOPIC_STATS_INFO (202): the offsets of all queues of a topic.
//!
//! Invariants:
//! - the body of the answer has object keys.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which topic.
    pub struct GetTopicStatsInfoHeader {
        topic: Text = "topic",
    }
}

/// GET_TOPIC_STATS_INFO.
pub struct GetTopicStatsInfo;

impl Request for GetTopicStatsInfo {
    const CODE: i32 = 202;
    const NAME: &'static str = "GET_TOPIC_STATS_INFO";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetTopicStatsInfoHeader;
    type Reply = NoHeader;
}
