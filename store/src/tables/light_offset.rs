//! `lmqConsumerOffset.json`: what a broker with light queues writes in place of `consumerOffset.json` (RocketMQ:
//! `LmqConsumerOffsetManager`).
//!
//! Invariants:
//! - groups whose name is that of a light queue have one offset in a topic, all others one in each queue;
//! - ours writes the other file too, so that nothing is lost when light queues are switched off.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use troupemq_codec::Text;
use troupemq_codec::request::ConsumerOffsetTable;
use troupemq_codec::topic::DataVersion;

use super::Table;

/// Offsets of all groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LightOffsetTable {
    /// Version of the table.
    pub data_version: DataVersion,
    /// Groups that are light: `topic@group`, and the next offset of its one queue.
    pub lmq_offset_table: BTreeMap<Text, i64>,
    /// All other groups: `topic@group`, then the queue id.
    pub offset_table: BTreeMap<Text, BTreeMap<i32, i64>>,
}

impl Table for LightOffsetTable {
    const FILE: &'static str = "lmqConsumerOffset.json";
    const DERIVED: &'static [&'static str] = &["groupTopicMap"];
}

impl LightOffsetTable {
    /// Takes the offsets of groups that are not light out, if they are not older than those of `plain`; else the
    /// latter are.
    pub fn newer_of(&mut self, plain: ConsumerOffsetTable) -> ConsumerOffsetTable {
        let age = |version: &DataVersion| (version.timestamp, version.counter);
        let offset_table = std::mem::take(&mut self.offset_table);
        match age(&self.data_version) >= age(&plain.data_version) && !offset_table.is_empty() {
            true => ConsumerOffsetTable { data_version: self.data_version, offset_table },
            false => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use troupemq_codec::loose_json::from_loose;

    use super::*;

    fn plain(timestamp: i64, at: i64) -> ConsumerOffsetTable {
        let data_version = DataVersion { timestamp, ..DataVersion::default() };
        let offset_table = BTreeMap::from([(Text::from("t@g"), BTreeMap::from([(0, at)]))]);
        ConsumerOffsetTable { data_version, offset_table }
    }

    #[test]
    fn javas_file_is_read_and_the_newer_of_both_files_counts() {
        let text = r#"{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":9},"groupTopicMap":{"g":["t"]},
            "lmqOffsetTable":{"%LMQ%a@%LMQ%g":7},"offsetTable":{"t@g":{0:5}}}"#;
        let read = || from_loose::<LightOffsetTable>(text.as_bytes()).unwrap();
        assert_eq!(read().lmq_offset_table, BTreeMap::from([(Text::from("%LMQ%a@%LMQ%g"), 7)]));
        assert_eq!(read().newer_of(plain(8, 1)).offset_table, plain(0, 5).offset_table);
        assert_eq!(read().newer_of(plain(10, 1)), plain(10, 1));
        assert_eq!(LightOffsetTable::default().newer_of(plain(0, 1)), plain(0, 1), "there was no file");
    }
}
