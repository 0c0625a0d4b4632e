//! QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET, GET_MIN_OFFSET
//! and GET_EARLIEST_MSG_STORETIME (RocketMQ: `ConsumerManageProcessor`, `AdminBrokerProcessor`).
//!
//! Invariants:
//! - a group that was never seen begins at 0 where message 0 is still there, or where nothing was ever sent:
//!   what comes after its first question is never skipped;
//! - a question about an unknown queue is answered 0 (the store time: -1), not refused.

use std::sync::Arc;

use troupemq_codec::message::RecordView;
use troupemq_codec::request::{
    GetEarliestMsgStoretimeHeader, GetEarliestMsgStoretimeReplyHeader, GetMaxOffsetHeader,
    GetMaxOffsetReplyHeader, GetMinOffsetHeader, GetMinOffsetReplyHeader, QueryConsumerOffsetHeader,
    QueryConsumerOffsetReplyHeader, SearchOffsetByTimestampHeader, SearchOffsetByTimestampReplyHeader,
    UpdateConsumerOffsetHeader,
};
use troupemq_codec::{Command, Header, ResponseCode, request};
use troupemq_store::consume_queue::Boundary;
use troupemq_store::{ConsumeQueue, Unit};

use super::progress::Committed;
use super::{AskedBack, CommitOffset, GroupQueue, MoveOffset, QueryOffset};
use crate::cast::BrokerCast;
use crate::heartbeat::ConsumerGroupsOf;
use crate::heartbeat::answers::group_view;
use crate::net::{Answer, Call, Refusal};
use crate::rebalance::ReadsWherePut;
use crate::topic::attributes::is_batch;

fn success(header: &impl Header) -> Command {
    Command::response(ResponseCode::SUCCESS).with_header(header)
}

/// Answers QUERY_CONSUMER_OFFSET.
pub async fn query(cast: &BrokerCast, call: &Call) -> Answer {
    let header: QueryConsumerOffsetHeader = call.command.header()?;
    let units = cast.queues.get(&header.topic, header.queue_id);
    let of = GroupQueue { group: header.group, topic: header.topic, queue_id: header.queue_id };
    if let Some(queue_offset) = cast.offsets.send(QueryOffset(of)).await? {
        return Ok(success(&QueryConsumerOffsetReplyHeader { queue_offset }));
    }
    if header.zero_if_not_found == Some(false) {
        let remark = "Not found, do not set to zero, maybe this group boot first";
        return Err(Refusal::new(ResponseCode::QUERY_NOT_FOUND, remark));
    }
    if begins_at_zero(cast, units).await? {
        return Ok(success(&QueryConsumerOffsetReplyHeader { queue_offset: 0 }));
    }
    let remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first";
    Err(Refusal::new(ResponseCode::QUERY_NOT_FOUND, remark))
}

/// Whether a group without progress begins at 0 whatever its own wish: the queue is young (its first message
/// is still in memory) or empty.
async fn begins_at_zero(cast: &BrokerCast, queue: Option<Arc<ConsumeQueue>>) -> Result<bool, Refusal> {
    let Some(queue) = queue else { return Ok(true) };
    if queue.min_offset() > 0 {
        return Ok(false);
    }
    Ok(match cast.lookups.unit(&queue, 0).await? {
        Some(unit) => cast.log.is_resident(unit.log_offset, size_of_record(&unit)),
        None => queue.max_offset() == 0,
    })
}

/// Answers UPDATE_CONSUMER_OFFSET.
pub async fn update(cast: &BrokerCast, call: &Call) -> Answer {
    let header: UpdateConsumerOffsetHeader = call
        .command
        .header()
        .map_err(|error| Refusal::new(ResponseCode::INVALID_PARAMETER, error.to_string()))?;
    for (what, value) in [("queueId", i64::from(header.queue_id)), ("commitOffset", header.queue_offset)] {
        if value < 0 {
            let remark = format!("{what} is {value}, the least is 0");
            return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
        }
    }
    let view = match cast.directory.group(&header.group) {
        Some(view) => view,
        // A group that reads as a light queue needs nobody to make it.
        None if cast.directory.is_light(&header.group) => group_view(cast, &header.group).await?,
        None => {
            let remark = format!("Group {} not exist!", header.group);
            return Err(Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
        }
    };
    let link = call.link.id();
    if cast.directory.topic(&header.topic).is_none() {
        let remark = format!("Topic {} not exist!", header.topic);
        return Err(Refusal::new(ResponseCode::TOPIC_NOT_EXIST, remark));
    }
    let of = GroupQueue { group: header.group, topic: header.topic, queue_id: header.queue_id };
    let queue_offset = header.queue_offset;
    let commit = CommitOffset { of: of.clone(), queue_offset };
    // Asked before it is known to matter: a member that leaves right behind its commit is one as it commits.
    let reads_where_put = view.coordinator().send(ReadsWherePut(link));
    let mut committed = cast.offsets.send(commit).await?;
    let is_behind = matches!(committed, Committed::Backward { .. });
    if is_behind && !reads_where_put.await? {
        // A pull consumer sets its own positions, and who does not consume at all is a tool: none of them is late.
        let commit = CommitOffset { of: of.clone(), queue_offset };
        committed = cast.offsets.send(MoveOffset(commit)).await?;
    }
    match committed {
        Committed::Stored { .. } => Ok(Command::response(ResponseCode::SUCCESS)),
        Committed::Backward { before } => {
            cast.stats.commit_ignored();
            tell_ignored(&of, before, queue_offset);
            let remark =
                format!("Offset {queue_offset} is behind {before} and no reset asked for it: it is ignored");
            Ok(Command::response(ResponseCode::SUCCESS).with_remark(remark))
        }
        Committed::Reset => {
            Ok(Command::response(ResponseCode::SUCCESS).with_remark("Offset has been previously reset"))
        }
        Committed::Full { queues_max } => {
            cast.stats.commit_refused();
            Err(full(&of.group, &of.topic, queues_max))
        }
    }
}

/// The refusal of an offset for which the table has no room.
pub(crate) fn full(group: &str, topic: &str, queues_max: usize) -> Refusal {
    let remark = format!(
        "an offset of group {group} in topic {topic} is not kept: the table of offsets is full, \
         consumerOffsetsMax = {queues_max} queues"
    );
    Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
}

/// Reports a commit that does not count.
pub(super) fn tell_ignored(of: &GroupQueue, before: i64, queue_offset: i64) {
    let GroupQueue { group, topic, queue_id } = of;
    tracing::warn!(%group, %topic, queue_id, before, queue_offset,
        "a commit that goes back is ignored: no reset asked for it");
}

/// Answers SEARCH_OFFSET_BY_TIMESTAMP.
pub async fn search_by_time(cast: &BrokerCast, call: &Call) -> Answer {
    let header: SearchOffsetByTimestampHeader = call.command.header()?;
    let boundary = match header.boundary.unwrap_or_default() {
        request::Boundary::Lower => Boundary::Lower,
        request::Boundary::Upper => Boundary::Upper,
    };
    let queue_offset = match cast.queues.get(&header.topic, header.queue_id) {
        None => 0,
        Some(queue) => {
            // The search may touch pages that are not in memory, so no arbiter waits for it.
            let log = cast.log.clone();
            let search = move || queue.offset_by_time(header.timestamp_ms, boundary, &log);
            cast.lookups.search(search).await?
        }
    };
    // A consumer that resets itself commits what it is told here.
    let groups = cast.heartbeats.send(ConsumerGroupsOf(call.link.id())).await?;
    if !groups.is_empty() {
        let SearchOffsetByTimestampHeader { topic, queue_id, .. } = header;
        cast.offsets.send(AskedBack { groups, topic, queue_id, to: queue_offset }).await?;
    }
    Ok(success(&SearchOffsetByTimestampReplyHeader { queue_offset }))
}

/// Answers GET_MAX_OFFSET: the offset that the next message gets.
pub fn max(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetMaxOffsetHeader = call.command.header()?;
    let queue = cast.queues.get(&header.topic, header.queue_id);
    Ok(success(&GetMaxOffsetReplyHeader { queue_offset: queue.map_or(0, |queue| queue.max_offset()) }))
}

/// Answers GET_MIN_OFFSET.
pub fn min(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetMinOffsetHeader = call.command.header()?;
    let queue = cast.queues.get(&header.topic, header.queue_id).filter(|queue| queue.max_offset() > 0);
    let queue_offset = queue.map_or_else(
        // Java has no minimum before the first message of a batch queue.
        || {
            if cast.directory.topic(&header.topic).is_some_and(|topic| is_batch(&topic.config)) {
                -1
            } else {
                0
            }
        },
        |queue| queue.min_offset(),
    );
    Ok(success(&GetMinOffsetReplyHeader { queue_offset }))
}

/// Answers GET_EARLIEST_MSG_STORETIME.
pub async fn earliest_store_time(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetEarliestMsgStoretimeHeader = call.command.header()?;
    let queue = cast.queues.get(&header.topic, header.queue_id);
    let unit = match &queue {
        Some(queue) => cast.lookups.unit(queue, queue.min_offset()).await?,
        None => None,
    };
    let record = match unit {
        Some(unit) => cast.lookups.record(&cast.log, unit.log_offset).await?,
        None => None,
    };
    let stored_ms = |record: &RecordView<'_>| record.store_timestamp_ms();
    let timestamp_ms = record.and_then(|bytes| RecordView::parse(&bytes).ok().as_ref().map(stored_ms));
    Ok(success(&GetEarliestMsgStoretimeReplyHeader { timestamp_ms: timestamp_ms.unwrap_or(-1) }))
}

fn size_of_record(unit: &Unit) -> usize {
    usize::try_from(unit.size).unwrap_or(usize::MAX)
}
