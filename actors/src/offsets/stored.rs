//! Offsets as `config/consumerOffset.json` keeps them.
//!
//! Invariants:
//! - a key is `topic@group`; of more `@` the first divides, so that `topic@group@broadcast` is read as the
//!   group `group@broadcast`;
//! - a key without `@` belongs to nobody and is left out.

use std::collections::BTreeMap;

use troupemq_codec::Text;
use troupemq_codec::request::ConsumerOffsetTable;
use troupemq_codec::topic::DataVersion;

use super::progress::Progress;

/// The offsets of a table that was read.
pub(super) fn restored(table: ConsumerOffsetTable) -> (Progress, DataVersion) {
    let mut progress = Progress::default();
    for (key, queues) in table.offset_table {
        let Some((topic, group)) = key.split_once('@') else {
            tracing::warn!(%key, "an entry of the consumer offsets names no group");
            continue;
        };
        let (topic, group) = (Text::from(topic), Text::from(group));
        for (queue_id, queue_offset) in queues {
            progress.commit(&group, &topic, queue_id, queue_offset);
        }
    }
    progress.take_changes();
    (progress, table.data_version)
}

/// The table to be written.
pub(super) fn stored(progress: &Progress, data_version: DataVersion) -> ConsumerOffsetTable {
    let mut offset_table: BTreeMap<Text, BTreeMap<i32, i64>> = BTreeMap::new();
    let mut key = String::new();
    for (group, topic, queue_id, queue_offset) in progress.stored() {
        key.clear();
        key.push_str(topic);
        key.push('@');
        key.push_str(group);
        match offset_table.get_mut(key.as_str()) {
            Some(queues) => {
                queues.insert(queue_id, queue_offset);
            }
            None => {
                offset_table.insert(Text::from(key.as_str()), BTreeMap::from([(queue_id, queue_offset)]));
            }
        }
    }
    ConsumerOffsetTable { data_version, offset_table }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_back_broadcast_groups_included() {
        let mut progress = Progress::default();
        for (group, topic, queue_id, at) in [("g", "t", 0, 5), ("g", "t", 1, 6), ("g@broadcast", "t", 0, 7)] {
            progress.commit(&Text::from(group), &Text::from(topic), queue_id, at);
        }
        let version = DataVersion { counter: 4, state_version: 0, timestamp: 9 };
        let table = stored(&progress, version);
        let keys: Vec<&str> = table.offset_table.keys().map(Text::as_str).collect();
        assert_eq!(keys, ["t@g", "t@g@broadcast"]);
        let (again, again_version) = restored(table.clone());
        assert_eq!(again_version, version);
        assert_eq!(stored(&again, version), table);
    }

    #[test]
    fn a_key_without_a_group_is_left_out() {
        let offset_table = BTreeMap::from([(Text::from("t"), BTreeMap::from([(0, 1)]))]);
        let (progress, _) = restored(ConsumerOffsetTable { offset_table, ..Default::default() });
        assert_eq!(progress.stored().count(), 0);
    }

    #[test]
    fn reading_is_no_change() {
        let offset_table = BTreeMap::from([(Text::from("t@g"), BTreeMap::from([(0, 1)]))]);
        let (mut progress, _) = restored(ConsumerOffsetTable { offset_table, ..Default::default() });
        assert_eq!(progress.query("g", "t", 0), Some(1));
        assert_eq!(progress.take_changes(), None);
    }
}
