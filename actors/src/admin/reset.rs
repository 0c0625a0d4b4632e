//! Offsets of groups, moved by tools: INVOKE_BROKER_TO_RESET_OFFSET (222), CLONE_GROUP_OFFSET (314).
//!
//! Invariants:
//! - a reset holds until one pull or pop has taken it; commits that come in between are ignored;
//! - an offset that is asked for by number lies within the queue, or the request is refused with its bounds;
//! - clients are told (code 220) only without `useServerSideResetOffset`: else they learn of it with their next pull.
//!   They commit what they held for ten seconds more, and then where they were told to go.

use std::collections::BTreeMap;

use troupemq_codec::language::Language;
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::request::{
    CloneGroupOffsetHeader, InvokeBrokerToResetOffsetHeader, QueueOffset, ResetConsumerClientOffset,
    ResetOffsetBody, ResetOffsetList,
};
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::version::{RESETS_OFFSETS, version_name};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::consume_queue::Boundary;

use super::clients::{body, describe};
use crate::cast::BrokerCast;
use crate::directory::TopicView;
use crate::groups::table::check_name;
use crate::net::{Answer, Call, Refusal};
use crate::offsets::{AskedBack, CloneGroup, GroupQueue, QueryOffset, ResetOffsets, TopicsOfGroup};

/// INVOKE_BROKER_TO_RESET_OFFSET.
pub async fn reset_offset(cast: &BrokerCast, call: &Call) -> Answer {
    let header: InvokeBrokerToResetOffsetHeader = call.command.header()?;
    let Some(topic) = cast.directory.topic(&header.topic) else {
        let remark = format!("Topic {} does not exist", header.topic);
        return Err(Refusal::new(ResponseCode::TOPIC_NOT_EXIST, remark));
    };
    if !cast.config.load().use_server_side_reset_offset {
        return reset_clients(cast, header, &topic).await;
    }
    if cast.directory.group(&header.group).is_none() {
        let remark = format!("Group {} does not exist", header.group);
        return Err(Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
    }
    let count = topic.config.read_queue_nums;
    let queue_offsets = match header.queue_id.filter(|queue_id| *queue_id >= 0) {
        Some(queue_id) if queue_id >= count => {
            let remark = format!("queueId[{queue_id}] is illegal: the topic has {count} queues to read");
            return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
        }
        Some(queue_id) => match header.queue_offset.filter(|offset| *offset >= 0) {
            Some(offset) => BTreeMap::from([(queue_id, within(cast, &topic.name, queue_id, offset)?)]),
            None => by_time(cast, topic.name.clone(), queue_id..queue_id + 1, header.timestamp_ms).await?,
        },
        None => by_time(cast, topic.name.clone(), 0..count, header.timestamp_ms).await?,
    };
    let reset =
        ResetOffsets { group: header.group, topic: topic.name.clone(), queue_offsets: queue_offsets.clone() };
    cast.offsets.send(reset).await??;
    body(&named(cast, &topic.name, &queue_offsets))
}

/// The offsets of this broker's queues, as clients and tools know them.
fn named(cast: &BrokerCast, topic: &Text, queue_offsets: &BTreeMap<i32, i64>) -> ResetOffsetBody {
    let named = |(queue_id, offset): (&i32, &i64)| {
        let (broker_name, queue_id) = (cast.broker_name.clone(), *queue_id);
        (MessageQueue { broker_name, queue_id, topic: topic.clone() }, *offset)
    };
    ResetOffsetBody { offset_table: queue_offsets.iter().map(named).collect() }
}

/// Tells every client of the group where to go on: at the offset of the moment, unless the group is behind it anyway
/// and is not to be forced.
async fn reset_clients(
    cast: &BrokerCast,
    header: InvokeBrokerToResetOffsetHeader,
    topic: &TopicView,
) -> Answer {
    let InvokeBrokerToResetOffsetHeader { group, timestamp_ms, is_force, .. } = header;
    let Some(online) = describe(cast, &group).await? else {
        let remark = format!(
            "Consumer not online, so can not reset offset, Group: {group} Topic: {} Timestamp: {timestamp_ms}",
            topic.name
        );
        return Err(Refusal::new(ResponseCode::CONSUMER_NOT_ONLINE, remark));
    };
    if let Some((_, member)) = online.members.iter().find(|(_, member)| member.version < RESETS_OFFSETS) {
        let name = version_name(member.version);
        let remark = format!("the client does not support this feature. version={name}");
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    let mut queue_offsets =
        by_time(cast, topic.name.clone(), 0..topic.config.write_queue_nums, timestamp_ms).await?;
    for (queue_id, offset) in &mut queue_offsets {
        let (queue_id, topic) = (*queue_id, topic.name.clone());
        let of = GroupQueue { group: group.clone(), topic: topic.clone(), queue_id };
        let Some(committed) = cast.offsets.send(QueryOffset(of)).await? else {
            let remark = format!("THe consumer group <{group}> not exist");
            return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
        };
        if !is_force {
            *offset = committed.min(*offset);
        }
        let told = AskedBack { groups: vec![group.clone()], topic, queue_id, to: *offset };
        cast.offsets.send(told).await?;
    }
    let told = named(cast, &topic.name, &queue_offsets);
    let queue_offset = |(queue, offset): (&MessageQueue, &i64)| {
        let MessageQueue { broker_name, queue_id, topic } = queue.clone();
        QueueOffset { broker_name, offset: *offset, queue_id, topic }
    };
    let list = ResetOffsetList { offset_table: told.offset_table.iter().map(queue_offset).collect() };
    let header = InvokeBrokerToResetOffsetHeader {
        topic: topic.name.clone(),
        group,
        queue_id: Some(-1),
        queue_offset: None,
        timestamp_ms,
        is_force,
    };
    for (link, member) in online.members {
        let Some(link) = cast.directory.link(link) else { continue };
        let body = if member.language == Language::Cpp { to_fastjson(&list) } else { to_fastjson(&told) };
        link.send(Command::request::<ResetConsumerClientOffset>(&header).with_body(body.into()).oneway());
    }
    body(&told)
}

/// An offset that is asked for by number.
fn within(cast: &BrokerCast, topic: &Text, queue_id: i32, offset: i64) -> Result<i64, Refusal> {
    let queue = cast.queues.get(topic, queue_id);
    let (min, max) = queue.map_or((0, 0), |queue| (queue.min_offset(), queue.max_offset()));
    if (min..=max.saturating_add(1)).contains(&offset) {
        return Ok(offset);
    }
    Err(Refusal::new(
        ResponseCode::SYSTEM_ERROR,
        format!("Target offset {offset} not in consume queue range [{min}-{max}]"),
    ))
}

/// The offsets of a moment; a time below 0 is the end of the queues. The search may touch pages that are not in
/// memory, so no arbiter waits for it.
async fn by_time(
    cast: &BrokerCast,
    topic: Text,
    queue_ids: std::ops::Range<i32>,
    timestamp_ms: i64,
) -> Result<BTreeMap<i32, i64>, Refusal> {
    let (queues, log) = (cast.queues.clone(), cast.log.clone());
    let search = move || {
        let offset = |queue_id| match queues.get(&topic, queue_id) {
            None => Ok(0),
            Some(queue) if timestamp_ms < 0 => Ok(queue.max_offset()),
            Some(queue) => queue.offset_by_time(timestamp_ms, Boundary::Lower, &log),
        };
        queue_ids.map(|queue_id| Ok((queue_id, offset(queue_id)?))).collect()
    };
    cast.lookups.search(search).await
}

/// CLONE_GROUP_OFFSET: of topics that still exist, and unless `offline` only of those that the group subscribes to,
/// if it subscribes to any.
pub async fn clone_offset(cast: &BrokerCast, call: &Call) -> Answer {
    let header: CloneGroupOffsetHeader = call.command.header()?;
    check_name(&header.target_group)?;
    let topics = match header.topic.filter(|topic| !topic.is_empty()) {
        Some(topic) => vec![topic],
        None => cast.offsets.send(TopicsOfGroup(header.source_group.clone())).await?,
    };
    let online = cast.directory.group(&header.source_group).and_then(|view| view.online());
    let subscribes = |topic: &Text| {
        let subscriptions = online.as_ref().map(|online| &online.subscriptions);
        subscriptions.is_none_or(|known| known.is_empty() || known.contains_key(topic))
    };
    for topic in topics {
        let counts = header.offline == Some(true) || subscribes(&topic);
        if !counts || cast.directory.topic(&topic).is_none() {
            continue;
        }
        let (from, to) = (header.source_group.clone(), header.target_group.clone());
        cast.offsets.send(CloneGroup { from, to, topic: Some(topic) }).await??;
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}
