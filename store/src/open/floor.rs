//! Where a queue goes on of which nothing is left: neither a file nor a message in the log.
//!
//! Invariants:
//! - the next offset is not below what a group has committed, nor below what the files told that were given up: a
//!   consumer never waits for offsets that come a second time;
//! - a queue that has a unit is left alone: its units know better;
//! - the queues of topics that are gone stay gone;
//! - what was found is in a file of the queue from then on.

use std::collections::BTreeMap;

use troupemq_codec::Text;
use troupemq_codec::request::{ConsumerOffsetTable, DelayOffsetTable};
use troupemq_codec::topic::TopicConfigTable;

use crate::consume_queue::QueueTable;
use crate::dispatch::SCHEDULE_TOPIC;
use crate::error::StoreError;
use crate::light;
use crate::paths::Paths;
use crate::tables::{LightOffsetTable, Table, TableFile};

/// Offsets above this one are no offsets: whoever committed one meant something else.
const OFFSET_MAX: i64 = 1 << 40;

/// The least offset at which queues may go on, by topic and number.
type Floors = BTreeMap<(Text, i32), i64>;

/// Lets queues without a unit go on where they were, as far as is known.
pub(super) fn keep_offsets(paths: &Paths, queues: &QueueTable) -> Result<(), StoreError> {
    let mut floors = committed(paths);
    for ((topic, queue_id), offset) in queues.given_up() {
        raise(&mut floors, &topic, queue_id, offset);
    }
    for ((topic, queue_id), floor) in floors {
        let Ok(queue) = queues.open_or_create(&topic, queue_id) else { continue };
        if floor > queue.max_offset() && queue.is_unwritten() {
            queue.begin_at(floor)?;
            tracing::warn!(%topic, queue_id, floor, "queue has lost its files and its messages, and goes on behind");
        }
    }
    Ok(())
}

/// What groups have committed for queues that are there.
fn committed(paths: &Paths) -> Floors {
    let mut floors = Floors::new();
    let topics = TableFile::<TopicConfigTable>::open(paths.root()).and_then(|(file, topics)| {
        // What a table has lost is made anew with its queues.
        Ok((file.has_lost()?, topics))
    });
    let (has_lost, topics) = topics.unwrap_or_else(|error| {
        tracing::warn!(%error, "the table of topics tells no queues");
        Default::default()
    });
    let is_there = |topic: &str, queue_id: i32| {
        if has_lost {
            return true;
        }
        let queues = |name: &str| topics.topic_config_table.get(name).map(|known| known.write_queue_nums);
        light::is_light(topic) || queues(topic).is_some_and(|queues| queue_id < queues)
    };
    let light = read::<LightOffsetTable>(paths);
    let plain = read::<ConsumerOffsetTable>(paths);
    for (name, offsets) in light.offset_table.iter().chain(&plain.offset_table) {
        let topic = topic_of(name);
        for (queue_id, offset) in offsets.iter().filter(|(queue_id, _)| is_there(topic, **queue_id)) {
            raise(&mut floors, topic, *queue_id, *offset);
        }
    }
    for (name, offset) in &light.lmq_offset_table {
        raise(&mut floors, topic_of(name), light::QUEUE_ID, *offset);
    }
    for (level, offset) in read::<DelayOffsetTable>(paths).offset_table {
        raise(&mut floors, SCHEDULE_TOPIC, level - 1, offset);
    }
    floors
}

/// The table as it stands. One that cannot be read only says less here: its owner refuses to go on without it.
fn read<T: Table>(paths: &Paths) -> T {
    TableFile::<T>::open(paths.root()).map(|(_, table)| table).unwrap_or_else(|error| {
        tracing::warn!(%error, "a table tells no offsets");
        T::default()
    })
}

/// The topic of `topic@group`.
fn topic_of(name: &str) -> &str {
    name.split_once('@').map_or(name, |(topic, _)| topic)
}

fn raise(floors: &mut Floors, topic: &str, queue_id: i32, offset: i64) {
    if (1..=OFFSET_MAX).contains(&offset) {
        let floor = floors.entry((Text::from(topic), queue_id)).or_default();
        *floor = offset.max(*floor);
    }
}
