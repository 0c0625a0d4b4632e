//! GET_CONSUME_STATS (208): how far a group has come, queue by queue.
//!
//! Invariants:
//! - the body of the answer is a [`ConsumeStats`], which has object keys.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::MessageQueue;

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

/// How far a group has come (`ConsumeStats`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStats {
    /// Messages a second.
    pub consume_tps: f64,
    /// By queue.
    pub offset_table: BTreeMap<MessageQueue, ConsumedOffset>,
}

/// How far a group has come in a queue (`OffsetWrapper`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumedOffset {
    /// One past the last message of the queue.
    pub broker_offset: i64,
    /// What the group has committed.
    pub consumer_offset: i64,
    /// When the last consumed message was stored, in milliseconds; 0 if unknown.
    pub last_timestamp: i64,
    /// What the group has pulled.
    pub pull_offset: i64,
}

impl ConsumeStats {
    /// Messages that the group has still to consume.
    pub fn total_lag(&self) -> i64 {
        self.offset_table.values().fold(0, |sum, queue| sum.saturating_add(queue.lag()))
    }
}

impl ConsumedOffset {
    /// Messages that are still to be consumed.
    pub fn lag(&self) -> i64 {
        self.broker_offset.saturating_sub(self.consumer_offset)
    }
}
