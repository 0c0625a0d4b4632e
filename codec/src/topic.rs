//! Topics as brokers configure and register them, and the names of queues.
//!
//! Invariants:
//! - fields stand in the alphabetical order of their Java names, as fastjson writes them;
//! - a missing key has the default of Java, so a short text is a whole value.

mod mapping;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::Text;

pub use mapping::{QueueMappingItem, TopicQueueMapping};

/// Bit of `perm`: a topic without routes takes this one as its template.
pub const PERM_INHERIT: i32 = 1;
/// Bit of `perm`: producers may write.
pub const PERM_WRITE: i32 = 1 << 1;
/// Bit of `perm`: consumers may read.
pub const PERM_READ: i32 = 1 << 2;
/// Bit of `perm`: reserved.
pub const PERM_PRIORITY: i32 = 1 << 3;

/// Begins the name of the topic in which messages come again to a group.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Begins the name of the topic of what a group has given up.
pub const DEAD_LETTER_PREFIX: &str = "%DLQ%";

/// One queue of a topic on one broker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueue {
    /// The broker.
    pub broker_name: Text,
    /// From 0 on.
    pub queue_id: i32,
    /// The topic.
    pub topic: Text,
}

/// Which state of a table is meant; two are the same only if all three numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVersion {
    /// Goes up with each change.
    pub counter: i64,
    /// Of the replica state; decides between two brokers with the same id.
    pub state_version: i64,
    /// When it changed last, in milliseconds.
    pub timestamp: i64,
}

impl DataVersion {
    /// The version after a change at `now_ms`.
    pub fn next(self, now_ms: i64) -> DataVersion {
        DataVersion { counter: self.counter.wrapping_add(1), timestamp: now_ms, ..self }
    }
}

/// How tags of one message are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TopicFilterType {
    /// One tag.
    #[default]
    SingleTag,
    /// Several.
    MultiTag,
}

/// A topic on one broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// Such as `message.type`, without a sign.
    pub attributes: BTreeMap<Text, Text>,
    /// Whether its order is configured at the name server.
    pub order: bool,
    /// The `PERM_…` bits.
    pub perm: i32,
    /// Queues that are read.
    pub read_queue_nums: i32,
    /// How tags are counted.
    pub topic_filter_type: TopicFilterType,
    /// The name; absent in old registrations, where the key of the table is the name.
    pub topic_name: Text,
    /// Bit 0: unit, bit 1: has a unit subscription.
    pub topic_sys_flag: i32,
    /// Queues that are written.
    pub write_queue_nums: i32,
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            attributes: BTreeMap::new(),
            order: false,
            perm: PERM_READ | PERM_WRITE,
            read_queue_nums: 16,
            topic_filter_type: TopicFilterType::SingleTag,
            topic_name: Text::default(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

/// All topics of a broker, or those that changed (`TopicConfigAndMappingSerializeWrapper`,
/// `config/topics.json`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfigTable {
    /// Of the whole table, also if only a part is here.
    pub data_version: DataVersion,
    /// Of the mappings of static topics.
    pub mapping_data_version: Option<DataVersion>,
    /// By name.
    pub topic_config_table: BTreeMap<Text, TopicConfig>,
    /// Static topics with their queues.
    pub topic_queue_mapping_detail_map: Option<BTreeMap<Text, TopicQueueMapping>>,
    /// Static topics without them.
    pub topic_queue_mapping_info_map: Option<BTreeMap<Text, TopicQueueMapping>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loose_json::{from_loose, to_fastjson};

    #[test]
    fn a_topic_is_written_as_java_writes_it() {
        let topic = TopicConfig { topic_name: Text::from("T"), read_queue_nums: 8, ..TopicConfig::default() };
        let wanted = concat!(
            r#"{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","#,
            r#""topicName":"T","topicSysFlag":0,"writeQueueNums":16}"#
        );
        assert_eq!(String::from_utf8(to_fastjson(&topic)).unwrap(), wanted);
        assert_eq!(from_loose::<TopicConfig>(wanted.as_bytes()), Ok(topic));
    }

    #[test]
    fn a_table_of_4_9_has_no_mappings_and_gets_none() {
        let text = r#"{"dataVersion":{"counter":3,"timestamp":5},"topicConfigTable":{}}"#;
        let table: TopicConfigTable = from_loose(text.as_bytes()).unwrap();
        assert_eq!(table.data_version, DataVersion { counter: 3, state_version: 0, timestamp: 5 });
        let wanted = r#"{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},"topicConfigTable":{}}"#;
        assert_eq!(String::from_utf8(to_fastjson(&table)).unwrap(), wanted);
    }
}
