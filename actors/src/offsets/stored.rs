//! Offsets as `config/consumerOffset.json` keeps them.
//!
//! Invariants:
//! - a key is `topic@group`; of more `@` the first divides, so that `topic@group@broadcast` is read as the
//!   group `group@broadcast`;
//! - a key without `@` belongs to nobody and is left out;
//! - with light queues, groups of their names have a table of their own in `config/lmqConsumerOffset.json`.

use std::collections::BTreeMap;

use troupemq_codec::Text;
use troupemq_codec::request::ConsumerOffsetTable;
use troupemq_codec::topic::DataVersion;
use troupemq_store::StoreError;
use troupemq_store::light::{QUEUE_ID, is_light};
use troupemq_store::tables::{LightOffsetTable, TableFile};

use super::progress::{Progress, Snapshot};

/// The offsets of tables that were read.
pub(super) fn restored(table: ConsumerOffsetTable, light: LightOffsetTable) -> (Progress, DataVersion) {
    // What was kept stays, whatever the limit is now.
    let mut progress = Progress::with_room_for(usize::MAX);
    let of_light = light.lmq_offset_table.into_iter();
    let of_light = of_light.map(|(key, queue_offset)| (key, BTreeMap::from([(QUEUE_ID, queue_offset)])));
    for (key, queues) in table.offset_table.into_iter().chain(of_light) {
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

/// All offsets as they are at one moment, to be laid out by who may take the time.
#[derive(Debug, Clone)]
pub struct Moment {
    pub(super) progress: Snapshot,
    pub(super) version: DataVersion,
    /// Whether groups of light queues have a table of their own.
    pub(super) has_light: bool,
}

impl Moment {
    /// The table, without the groups that have one of their own.
    pub fn table(&self) -> ConsumerOffsetTable {
        let mut offset_table: BTreeMap<Text, BTreeMap<i32, i64>> = BTreeMap::new();
        let mut key = String::new();
        for (group, topic, queue_id, queue_offset) in self.progress.stored() {
            if self.has_light && is_light(group) {
                continue;
            }
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
        ConsumerOffsetTable { data_version: self.version, offset_table }
    }

    /// The table of light groups, beside the `others`.
    fn light_table(&self, others: &ConsumerOffsetTable) -> LightOffsetTable {
        let of_light = self.progress.stored().filter(|(group, _, id, _)| is_light(group) && *id == QUEUE_ID);
        let entry =
            |group, topic, queue_offset| (Text::from(format!("{topic}@{group}").as_str()), queue_offset);
        LightOffsetTable {
            data_version: others.data_version,
            lmq_offset_table: of_light.map(|(group, topic, _, at)| entry(group, topic, at)).collect(),
            offset_table: others.offset_table.clone(),
        }
    }

    /// Writes the table, and that of light groups where they have one.
    pub(super) fn save(
        &self,
        file: &TableFile<ConsumerOffsetTable>,
        light: Option<&TableFile<LightOffsetTable>>,
    ) -> Result<(), StoreError> {
        let table = self.table();
        if let Some(file) = light {
            file.save(&self.light_table(&table))?;
        }
        file.save(&table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(progress: &Progress, version: DataVersion, has_light: bool) -> Moment {
        Moment { progress: progress.snapshot(), version, has_light }
    }

    #[test]
    fn what_is_written_comes_back_broadcast_groups_included() {
        let mut progress = Progress::with_room_for(1000);
        for (group, topic, queue_id, at) in [("g", "t", 0, 5), ("g", "t", 1, 6), ("g@broadcast", "t", 0, 7)] {
            progress.commit(&Text::from(group), &Text::from(topic), queue_id, at);
        }
        let version = DataVersion { counter: 4, state_version: 0, timestamp: 9 };
        let table = moment(&progress, version, false).table();
        let keys: Vec<&str> = table.offset_table.keys().map(Text::as_str).collect();
        assert_eq!(keys, ["t@g", "t@g@broadcast"]);
        let (again, again_version) = restored(table.clone(), LightOffsetTable::default());
        assert_eq!(again_version, version);
        assert_eq!(moment(&again, version, false).table(), table);
    }

    /// 4.21
    #[test]
    fn groups_that_read_as_light_queues_have_a_table_of_their_own() {
        let mut progress = Progress::with_room_for(1000);
        for (group, topic, at) in [("g", "t", 5), ("%LMQ%g", "%LMQ%t", 6), ("%LMQ%g", "t", 7)] {
            progress.commit(&Text::from(group), &Text::from(topic), 0, at);
        }
        let moment = moment(&progress, DataVersion::default(), true);
        let table = moment.table();
        assert_eq!(table.offset_table.keys().map(Text::as_str).collect::<Vec<_>>(), ["t@g"]);
        let light = moment.light_table(&table);
        let wanted = [("%LMQ%t@%LMQ%g", 6), ("t@%LMQ%g", 7)].map(|(key, at)| (Text::from(key), at));
        assert_eq!(light.lmq_offset_table, BTreeMap::from(wanted));
        assert_eq!(light.offset_table, table.offset_table);
        let (again, _) = restored(table, light);
        assert_eq!(again.query("%LMQ%g", "%LMQ%t", 0), Some(6));
    }

    #[test]
    fn a_key_without_a_group_is_left_out() {
        let offset_table = BTreeMap::from([(Text::from("t"), BTreeMap::from([(0, 1)]))]);
        let table = ConsumerOffsetTable { offset_table, ..Default::default() };
        let (progress, _) = restored(table, LightOffsetTable::default());
        assert_eq!(progress.snapshot().stored().count(), 0);
    }

    #[test]
    fn reading_is_no_change() {
        let offset_table = BTreeMap::from([(Text::from("t@g"), BTreeMap::from([(0, 1)]))]);
        let table = ConsumerOffsetTable { offset_table, ..Default::default() };
        let (mut progress, _) = restored(table, LightOffsetTable::default());
        assert_eq!(progress.query("g", "t", 0), Some(1));
        assert_eq!(progress.take_changes(), None);
    }

    #[test]
    fn what_is_saved_is_the_table_of_the_moment_whatever_happens_before_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut progress = Progress::with_room_for(10_000);
        let (gone, moved, stays) = (Text::from("gone"), Text::from("moved"), Text::from("stays"));
        for topic in 0..1_000 {
            let topic = Text::from(format!("topic{topic}"));
            [&gone, &moved, &stays].into_iter().for_each(|group| _ = progress.commit(group, &topic, 0, 5));
        }
        let version = DataVersion { counter: 4, state_version: 0, timestamp: 9 };
        let moment = moment(&progress, version, false);
        let wanted = moment.table();
        progress.remove_group("gone");
        progress.remove_topic("topic7");
        progress.commit(&moved, &Text::from("topic8"), 0, 6);
        progress.commit(&moved, &Text::from("topic8"), 1, 1);
        progress.reset(&stays, &Text::from("topic9"), 0, 2);
        progress.commit(&Text::from("new"), &Text::from("new"), 0, 1);
        let (file, _) = TableFile::<ConsumerOffsetTable>::open(dir.path()).unwrap();
        moment.save(&file, None).unwrap();
        let (_, saved) = TableFile::<ConsumerOffsetTable>::open(dir.path()).unwrap();
        assert_eq!((saved.offset_table.len(), saved.data_version), (3_000, version));
        assert!(saved.offset_table.values().all(|queues| *queues == BTreeMap::from([(0, 5)])));
        assert_eq!(saved, wanted);
    }
}
