//! `consumerFilter.json`: SQL92 subscriptions (RocketMQ: `ConsumerFilterManager`).
//!
//! Invariants:
//! - tag subscriptions are not kept here;
//! - fields stand in the alphabetical order of their Java names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use troupemq_codec::Text;
use troupemq_codec::filter::BloomFilterData;

use super::Table;

/// Filters of all groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerFilterTable {
    /// By topic.
    pub filter_data_by_topic: BTreeMap<Text, TopicFilters>,
}

impl Table for ConsumerFilterTable {
    const FILE: &'static str = "consumerFilter.json";
}

/// Filters on one topic (`FilterDataMapByTopic`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicFilters {
    /// By group.
    pub group_filter_data: BTreeMap<Text, ConsumerFilter>,
    /// The topic.
    pub topic: Text,
}

/// The filter of one group on one topic (`ConsumerFilterData`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerFilter {
    /// Which bits of the bloom filter are this group's.
    pub bloom_filter_data: Option<BloomFilterData>,
    /// When the subscription came, epoch ms.
    pub born_time: i64,
    /// Version of the subscription: when the client made it, epoch ms.
    pub client_version: i64,
    /// The group.
    pub consumer_group: Text,
    /// Whether it has ended since it came; follows from the times.
    pub dead: bool,
    /// When it ended, epoch ms; 0 if it has not.
    pub dead_time: i64,
    /// The expression.
    pub expression: Text,
    /// Its language.
    pub expression_type: Text,
    /// The topic.
    pub topic: Text,
}
