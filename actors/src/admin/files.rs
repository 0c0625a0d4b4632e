//! What tools ask of the store's files: QUERY_CONSUME_QUEUE (321), CLEAN_EXPIRED_CONSUMEQUEUE (306),
//! CLEAN_UNUSED_TOPIC (316), DELETE_EXPIRED_COMMITLOG (329), CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354).
//!
//! Invariants:
//! - nothing that can still be read, and nothing of a topic that exists, is deleted;
//! - an answer has a bounded number of units.

use troupemq_codec::filter::MessageFilter;
use troupemq_codec::heartbeat_data::SubscriptionData;
use troupemq_codec::message::RecordView;
use troupemq_codec::request::{ConsumeQueueUnit, ConsumeQueueUnits, QueryConsumeQueueHeader, WriteProgress};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::{LogReader, Unit};

use super::clients::{body, describe};
use crate::cast::BrokerCast;
use crate::net::{Answer, Call};

/// Units of one answer.
const UNITS_MAX: usize = 1000;

/// QUERY_CONSUME_QUEUE: units, and whether the filter of a group lets them pass.
pub async fn consume_queue(cast: &BrokerCast, call: &Call) -> Answer {
    let header: QueryConsumeQueueHeader = call.command.header()?;
    let Some(queue) = cast.queues.get(&header.topic, header.queue_id) else {
        let remark = format!("{}@{} is not exist!", header.queue_id, header.topic);
        return Ok(Command::response(ResponseCode::SUCCESS).with_remark(remark));
    };
    let group = header.group.clone().filter(|group| !group.is_empty());
    let online = match &group {
        Some(group) => describe(cast, group).await?,
        None => None,
    };
    let subscriptions = online.map(|online| online.subscriptions).unwrap_or_default();
    let subscription_data = subscriptions.into_iter().find(|data| data.topic == header.topic);
    let mut units = ConsumeQueueUnits {
        filter_data: group.map(|_| Text::from_static("null")),
        max_queue_index: queue.max_offset(),
        min_queue_index: queue.min_offset(),
        queue_data: Vec::new(),
        subscription_data,
    };
    if !(units.min_queue_index..units.max_queue_index).contains(&header.queue_offset) {
        let at = header.queue_offset;
        let remark = format!("Index {at} of {}@{} is not exist!", header.queue_id, header.topic);
        return Ok(body(&units)?.with_remark(remark));
    }
    let max = usize::try_from(header.units_max).unwrap_or(0).clamp(1, UNITS_MAX);
    let log = cast.log.clone();
    let read = move || {
        let filter = units.subscription_data.as_ref().and_then(compiled);
        let read = queue.read(header.queue_offset, max)?;
        units.queue_data = read.iter().map(|unit| tell(&log, unit, filter.as_ref())).collect();
        Ok(units)
    };
    body(&cast.lookups.search(read).await?)
}

fn compiled(data: &SubscriptionData) -> Option<MessageFilter> {
    MessageFilter::compile(Some(data.expression_type.as_str()), &data.sub_string).ok()
}

fn tell(log: &LogReader, unit: &Unit, filter: Option<&MessageFilter>) -> ConsumeQueueUnit {
    let size = usize::try_from(unit.size).unwrap_or(0);
    let passes = filter.is_some_and(|filter| {
        filter.may_match(unit.tags_code)
            && log
                .look_on_disk(unit.log_offset, size, |bytes| {
                    RecordView::parse(bytes).is_ok_and(|record| filter.matches(record.properties()))
                })
                .unwrap_or(false)
    });
    ConsumeQueueUnit {
        bit_map: None,
        eval: passes,
        msg: None,
        physic_offset: i64::try_from(unit.log_offset).unwrap_or(i64::MAX),
        physic_size: i32::try_from(unit.size).unwrap_or(i32::MAX),
        tags_code: unit.tags_code,
    }
}

/// CLEAN_EXPIRED_CONSUMEQUEUE.
pub async fn clean_queues(cast: &BrokerCast, _: &Call) -> Answer {
    cast.retention.follow().await?;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// CLEAN_UNUSED_TOPIC: the queues of topics that do not exist any more.
pub async fn clean_topics(cast: &BrokerCast, _: &Call) -> Answer {
    let mut unused = cast.queues.topics();
    unused.retain(|topic| cast.directory.topic(topic).is_none());
    cast.retention.remove_queues(unused).await?;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// DELETE_EXPIRED_COMMITLOG: asks for the old segments to go now, whatever the hour.
pub fn clean_log(cast: &BrokerCast, _: &Call) -> Answer {
    cast.retention.clean_now();
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// CHECK_ROCKSDB_CQ_WRITE_PROGRESS: there is one form of consume queues here, so nothing can differ.
pub fn rocksdb_progress(_: &BrokerCast, _: &Call) -> Answer {
    let why = "rocksdbCQWriteEnable is false, checkRocksdbCqWriteProgressCommand is invalid";
    body(&WriteProgress { diff_result: Text::from_static(why) })
}
