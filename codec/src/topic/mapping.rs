//! Static topics: logical queues that move between brokers (RocketMQ's `TopicQueueMappingDetail` and
//! `…Info`).
//!
//! Invariants:
//! - a mapping without `hosted_queues` is the short form that is registered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// Where the queues of a static topic are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicQueueMapping {
    /// The broker that tells it.
    pub bname: Text,
    /// Its own queue by logical queue.
    pub curr_id_map: Option<BTreeMap<i32, i32>>,
    /// Left by a change that did not finish.
    pub dirty: bool,
    /// Which change it was.
    pub epoch: i64,
    /// All moves of each logical queue.
    pub hosted_queues: Option<BTreeMap<i32, Vec<QueueMappingItem>>>,
    /// Mostly `__global__`.
    pub scope: Option<Text>,
    /// The topic.
    pub topic: Text,
    /// Number of logical queues.
    pub total_queues: i32,
}

/// One stretch of a logical queue on one broker (`LogicQueueMappingItem`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueMappingItem {
    /// The broker.
    pub bname: Text,
    /// First offset that is not in it, -1 while it grows.
    pub end_offset: i64,
    /// Number of the move.
    pub r#gen: i32,
    /// Logical offset of its first message.
    pub logic_offset: i64,
    /// The queue on the broker.
    pub queue_id: i32,
    /// Its first offset there.
    pub start_offset: i64,
    /// When it ended, in milliseconds; -1 while it grows.
    pub time_of_end: i64,
    /// When it began, in milliseconds.
    pub time_of_start: i64,
}
