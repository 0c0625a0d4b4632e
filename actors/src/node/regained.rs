//! Topics and groups that a table has lost and the store still shows: they are made anew at the start.
//!
//! Java's broker takes the older table as it is: topics that are not in it have no messages for anybody until a sender
//! makes them anew, with the number of queues of the template, and what waits for them is dropped.
//!
//! Invariants:
//! - only where the newest generation of a table is lost: else what is not in it was deleted;
//! - what the table has stays as it is, but that a topic is read in as many queues as the store shows;
//! - what is made anew has the settings that the store shows, the usual ones else, and is told one by one;
//! - it is on the disk before anything is served.

use std::collections::{BTreeMap, BTreeSet};

use troupemq_codec::Text;
use troupemq_codec::group::SubscriptionGroupTable;
use troupemq_codec::message::RecordView;
use troupemq_codec::message::properties::{REAL_QUEUE_ID, REAL_TOPIC, TIMER_OUT_MS};
use troupemq_codec::request::{ConsumerOffsetTable, DelayOffsetTable};
use troupemq_codec::topic::{TopicConfig, TopicConfigTable};
use troupemq_store::dispatch::SCHEDULE_TOPIC;
use troupemq_store::tables::TableFile;
use troupemq_store::timer::{TIMER_TOPIC, TimerStore};
use troupemq_store::{ConsumeQueue, Opened, QueueKind, StoreError, Unit, light};

use crate::config::BrokerConfig;
use crate::detour::HALF_TOPIC;
use crate::groups::table::{GroupRules, GroupTable};
use crate::topic::names::{self, DEAD_LETTER_PREFIX, RETRY_PREFIX};
use crate::topic::state::QUEUES_MAX;
use crate::topics::rules;
use crate::topics::table::{TopicTable, plain};
use crate::transaction::PROGRESS_GROUP;

/// Units read at a time.
const READ_MAX: usize = 4096;

/// What the store shows of a topic.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Shown {
    queues: i32,
    is_batch: bool,
}

type ShownTopics = BTreeMap<Text, Shown>;

/// Makes anew what the tables have lost.
pub(super) fn regain(
    opened: &Opened,
    timers: &TimerStore,
    config: &BrokerConfig,
    now_ms: i64,
) -> Result<(), StoreError> {
    let dir = &opened.config.dir;
    let (topics_file, topics) = TableFile::<TopicConfigTable>::open(dir)?;
    let (groups_file, groups) = TableFile::<SubscriptionGroupTable>::open(dir)?;
    let (has_lost_topics, has_lost_groups) = (topics_file.has_lost()?, groups_file.has_lost()?);
    if !has_lost_topics && !has_lost_groups {
        return Ok(());
    }
    let (_, offsets) = TableFile::<ConsumerOffsetTable>::open(dir)?;
    let mut shown = of_queues(opened);
    if has_lost_topics && !shown.is_empty() {
        of_offsets(&offsets, &mut shown);
        of_waiting(opened, timers, &offsets, &mut shown)?;
        let mut table = TopicTable::new(topics, rules(config));
        complete_topics(&mut table, &shown, now_ms);
        topics_file.save(&table.snapshot().table())?;
    }
    let names = groups_of(&offsets, &shown);
    if has_lost_groups && !names.is_empty() {
        let rules = GroupRules { auto_create: true, light: opened.config.light_queues_enabled };
        let mut table = GroupTable::new(groups, rules);
        complete_groups(&mut table, names, now_ms);
        groups_file.save(&table.table())?;
    }
    Ok(())
}

/// Topics that have queues.
fn of_queues(opened: &Opened) -> ShownTopics {
    let mut shown = ShownTopics::new();
    for topic in opened.queues.topics().into_iter().filter(|topic| !light::is_light(topic)) {
        for queue in opened.queues.of_topic(&topic) {
            note(&mut shown, &topic, queue.queue_id());
            if let Some(shown) = shown.get_mut(&topic) {
                shown.is_batch |= queue.kind() == QueueKind::Batch;
            }
        }
    }
    shown
}

/// Topics that groups have read: the offsets go with their topic.
fn of_offsets(offsets: &ConsumerOffsetTable, shown: &mut ShownTopics) {
    for (key, queues) in &offsets.offset_table {
        let Some((topic, _)) = key.split_once('@') else { continue };
        queues.keys().for_each(|queue_id| note(shown, topic, *queue_id));
    }
}

/// Topics that messages wait for: in a level, in the wheel, or for the end of their transaction.
fn of_waiting(
    opened: &Opened,
    timers: &TimerStore,
    offsets: &ConsumerOffsetTable,
    shown: &mut ShownTopics,
) -> Result<(), StoreError> {
    let (_, delivered) = TableFile::<DelayOffsetTable>::open(&opened.config.dir)?;
    for queue in opened.queues.of_topic(SCHEDULE_TOPIC) {
        let from = delivered.offset_table.get(&(queue.queue_id() + 1)).copied();
        of_records(opened, &queue, from, shown, |_| true);
    }
    let read_to_ms = timers.read_to_ms();
    let waits = |record: &RecordView<'_>| {
        let due_ms = record.properties().get(TIMER_OUT_MS).and_then(|due| due.parse().ok());
        due_ms.is_none_or(|due_ms: i64| due_ms >= read_to_ms)
    };
    for queue in opened.queues.of_topic(TIMER_TOPIC) {
        of_records(opened, &queue, None, shown, waits);
    }
    let key = format!("{HALF_TOPIC}@{PROGRESS_GROUP}");
    for queue in opened.queues.of_topic(HALF_TOPIC) {
        let known = offsets.offset_table.get(key.as_str());
        let from = known.and_then(|queues| queues.get(&queue.queue_id())).copied();
        of_records(opened, &queue, from, shown, |_| true);
    }
    Ok(())
}

/// Topics that the records of a queue wait for.
fn of_records(
    opened: &Opened,
    queue: &ConsumeQueue,
    from: Option<i64>,
    shown: &mut ShownTopics,
    waits: impl Fn(&RecordView<'_>) -> bool,
) {
    let mut next = from.unwrap_or(0).max(queue.min_offset());
    loop {
        let units = match queue.read(next, READ_MAX) {
            Ok(units) => units,
            Err(error) => {
                tracing::warn!(%error, "messages that wait do not tell their topics");
                return;
            }
        };
        let Some(last) = units.last() else { return };
        next = last.next_offset();
        for unit in units.iter().filter(|unit| !unit.is_hole()) {
            of_record(opened, unit, shown, &waits);
        }
    }
}

/// The topic that the record of a unit waits for.
fn of_record(opened: &Opened, unit: &Unit, shown: &mut ShownTopics, waits: impl Fn(&RecordView<'_>) -> bool) {
    let noted = opened.reader.fetch_record(unit.log_offset, |record| {
        let [topic, queue_id] = record.properties().pick([REAL_TOPIC, REAL_QUEUE_ID]);
        let queue_id = queue_id.and_then(|id| id.parse().ok());
        if let (Some(topic), Some(queue_id), true) = (topic, queue_id, waits(record)) {
            note(shown, topic, queue_id);
        }
    });
    if let Err(error) = noted {
        tracing::warn!(%error, "a message that waits does not tell its topic");
    }
}

fn note(shown: &mut ShownTopics, topic: &str, queue_id: i32) {
    let queues = queue_id.saturating_add(1).clamp(1, QUEUES_MAX);
    match shown.get_mut(topic) {
        Some(shown) => shown.queues = shown.queues.max(queues),
        // A copy: the text may be a slice of a whole table.
        None => drop(shown.insert(Text::from(topic), Shown { queues, is_batch: false })),
    }
}

/// Adds the topics that are shown and not there, and has those that are there read in all queues.
fn complete_topics(table: &mut TopicTable, shown: &ShownTopics, now_ms: i64) {
    for (topic, Shown { queues, is_batch }) in shown {
        let config = match table.get(topic) {
            None if names::check_of_group(topic).is_err() || light::is_light(topic) => continue,
            None => made_anew(topic, *queues, *is_batch),
            Some(known) if known.read_queue_nums >= *queues => continue,
            Some(known) => {
                let (has, queues) = (known.read_queue_nums, *queues);
                tracing::warn!(%topic, has, queues, "a topic that lost its last change is read in all its queues");
                TopicConfig { read_queue_nums: queues, ..TopicConfig::clone(known) }
            }
        };
        table.put(config.into(), now_ms);
    }
}

fn made_anew(topic: &Text, queues: i32, is_batch: bool) -> TopicConfig {
    tracing::warn!(
        %topic, queues, is_batch,
        "a topic that its table has lost is made anew; settings it had beside these are gone"
    );
    let kind = is_batch.then(|| (Text::from_static("queue.type"), Text::from_static("BatchCQ")));
    TopicConfig { attributes: kind.into_iter().collect(), ..plain(topic, queues) }
}

/// The groups that have read something, or that messages were sent back for.
fn groups_of(offsets: &ConsumerOffsetTable, shown: &ShownTopics) -> BTreeSet<Text> {
    let readers = offsets.offset_table.keys().filter_map(|key| Some(key.split_once('@')?.1));
    let of_topic = |topic: &str| {
        let group = topic.strip_prefix(RETRY_PREFIX).or_else(|| topic.strip_prefix(DEAD_LETTER_PREFIX))?;
        Some(Text::from(group))
    };
    // Broadcast progress is kept under a second name of its group.
    let readers = readers.filter(|group| !group.contains('@') && !light::is_light(group)).map(Text::from);
    readers.chain(shown.keys().filter_map(|topic| of_topic(topic))).collect()
}

fn complete_groups(table: &mut GroupTable, names: BTreeSet<Text>, now_ms: i64) {
    for group in names {
        if table.get(&group).is_some() {
            continue;
        }
        match table.ensure(&group, now_ms) {
            Ok(_) => {
                tracing::warn!(%group, "a group that its table has lost is made anew; settings it had are gone")
            }
            Err(refusal) => {
                tracing::warn!(%group, remark = refusal.remark, "a group that is lost is not made anew")
            }
        }
    }
}
