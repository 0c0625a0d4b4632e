//! `topicQueueMapping.json`: static topics (RocketMQ: `TopicQueueMappingManager`).
//!
//! Invariants:
//! - each mapping names the broker that keeps it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use troupemq_codec::Text;
use troupemq_codec::topic::{DataVersion, TopicQueueMapping};

use super::Table;

/// The static topics of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicQueueMappingTable {
    /// Of the whole table.
    pub data_version: DataVersion,
    /// By topic.
    pub topic_queue_mapping_info_map: BTreeMap<Text, TopicQueueMapping>,
}

impl Table for TopicQueueMappingTable {
    const FILE: &'static str = "topicQueueMapping.json";
}
