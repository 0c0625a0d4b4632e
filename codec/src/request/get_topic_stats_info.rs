//! GET_TOPIC_STATS_INFO (202): the offsets of all queues of a topic.
//!
//! Invariants:
//! - the body of the answer is a [`TopicStats`], which has object keys.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::MessageQueue;

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

/// Where each queue of a topic begins and ends (`TopicStatsTable`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStats {
    /// By queue.
    pub offset_table: BTreeMap<MessageQueue, TopicOffset>,
    /// Messages a second; brokers up to 5.3.1 do not tell.
    pub topic_put_tps: Option<f64>,
}

/// Where a queue begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicOffset {
    /// When the last message was stored, in milliseconds; 0 for none.
    pub last_update_timestamp: i64,
    /// One past the last message.
    pub max_offset: i64,
    /// The first message.
    pub min_offset: i64,
}
