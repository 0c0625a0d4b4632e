//! GET_ALL_TOPIC_CONFIG (21): all topics of a broker; a slave copies them.
//!
//! Invariants:
//! - a client that sends no fields wants everything in one body;
//! - the body of the answer is a [`TopicConfigTable`](crate::topic::TopicConfigTable).

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which page.
    pub struct GetAllTopicConfigHeader {
        /// Number of the first topic wanted, in the order of their names; from 0 on.
        topic_seq: Option<i32> = "topicSeq",
        /// Version of the page before, as JSON.
        data_version: Option<Text> = "dataVersion",
        /// Topics wanted.
        topics_max: Option<i32> = "maxTopicNum",
    }
}

header! {
    /// How many there are; old brokers do not say.
    pub struct GetAllTopicConfigReplyHeader {
        topics_total: Option<i32> = "totalTopicNum",
    }
}

/// GET_ALL_TOPIC_CONFIG.
pub struct GetAllTopicConfig;

impl Request for GetAllTopicConfig {
    const CODE: i32 = 21;
    const NAME: &'static str = "GET_ALL_TOPIC_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetAllTopicConfigHeader;
    type Reply = GetAllTopicConfigReplyHeader;
}
