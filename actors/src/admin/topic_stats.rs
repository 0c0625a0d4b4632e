//! Where the queues of a topic begin and end: GET_TOPIC_STATS_INFO (202).
//!
//! Invariants:
//! - every queue that may be read or written is told, whether it was ever used or not;
//! - the time of the last message is read where a page that is not in memory delays nobody else.

use bytes::Bytes;
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::request::{GetTopicStatsInfoHeader, TopicOffset, TopicStats};
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::consume_queue::stored_ms;
use troupemq_store::{LogReader, QueueTable, StoreError};

use crate::cast::BrokerCast;
use crate::net::{Answer, Call, Refusal};

/// GET_TOPIC_STATS_INFO.
pub async fn topic_stats(cast: &BrokerCast, call: &Call) -> Answer {
    let header: GetTopicStatsInfoHeader = call.command.header()?;
    let view = cast.topic(&header.topic)?;
    let (queues, log) = (cast.queues.clone(), cast.log.clone());
    let (topic, broker_name) = (view.name.clone(), cast.broker_name.clone());
    let count = view.config.read_queue_nums.max(view.config.write_queue_nums);
    let read = move || {
        let entry = |queue_id| {
            let queue = MessageQueue { broker_name: broker_name.clone(), queue_id, topic: topic.clone() };
            (queue, bounds(&queues, &log, &topic, queue_id))
        };
        TopicStats { offset_table: (0..count).map(entry).collect(), topic_put_tps: None }
    };
    let stats = actix_rt::task::spawn_blocking(read).await.map_err(|_| Refusal::gone("the reader"))?;
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(to_fastjson(&stats))))
}

fn bounds(queues: &QueueTable, log: &LogReader, topic: &Text, queue_id: i32) -> TopicOffset {
    let Some(queue) = queues.get(topic, queue_id) else { return TopicOffset::default() };
    let (min_offset, max_offset) = (queue.min_offset(), queue.max_offset());
    let last_stored_ms = || match queue.read_unit(max_offset - 1)? {
        Some(last) => stored_ms(log, &last),
        None => Ok(None),
    };
    let last_update_timestamp = last_stored_ms().unwrap_or_else(|error: StoreError| {
        tracing::error!(%error, "when the last message was stored cannot be told");
        None
    });
    let last_update_timestamp = last_update_timestamp.unwrap_or(0);
    TopicOffset { last_update_timestamp, max_offset, min_offset }
}
