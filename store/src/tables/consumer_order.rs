//! `consumerOrderInfo.json`: what groups that pop in order have not acknowledged (RocketMQ:
//! `ConsumerOrderInfoManager`).
//!
//! Invariants:
//! - the first of `queue_offsets` is absolute, the others are distances from it;
//! - bit `i` of `acked` is that of the message at index `i`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use troupemq_codec::Text;

use super::Table;

/// What is out, by `topic@group` and queue id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumerOrderTable {
    /// By `topic@group`, then by queue id.
    pub table: BTreeMap<Text, BTreeMap<i32, ConsumerOrder>>,
}

impl Table for ConsumerOrderTable {
    const FILE: &'static str = "consumerOrderInfo.json";
}

/// The messages one pop has handed out in order (`OrderInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumerOrder {
    /// The client's attempt: the same one gets the same messages again.
    #[serde(rename = "a")]
    pub attempt_id: Option<Text>,
    /// Bits of the messages that are acknowledged.
    #[serde(rename = "cm")]
    pub acked: i64,
    /// How long they are invisible, in milliseconds.
    #[serde(rename = "i")]
    pub invisible_ms: Option<i64>,
    /// When they were handed out last, epoch ms.
    #[serde(rename = "l")]
    pub last_consume_timestamp_ms: i64,
    /// The messages.
    #[serde(rename = "o")]
    pub queue_offsets: Vec<i64>,
    /// How many times a message was consumed, by its queue offset.
    #[serde(rename = "oc")]
    pub consumed_counts: Option<BTreeMap<i64, i32>>,
    /// When a message is visible again, by its queue offset; epoch ms.
    #[serde(rename = "ot")]
    pub visible_at_ms: Option<BTreeMap<i64, i64>>,
    /// When they were popped, epoch ms.
    #[serde(rename = "popTime")]
    pub pop_time_ms: i64,
}
