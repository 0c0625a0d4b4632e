//! CONSUMER_SEND_MSG_BACK: a consumer failed with a message and wants it again later, or no more.
//! Java: `AbstractSendMessageProcessor.consumerSendMsgBack`.
//!
//! Invariants:
//! - the copy keeps body, flag, tags, keys, unique id and birth of the message, and the id and topic of the first;
//! - a message that was consumed too often becomes a dead letter, and waits for nothing any more;
//! - a retry waits in a delay level before it stands in the retry topic of the group, in a queue that is written and
//!   read there: the group's setting may have grown since the topic was made.

use std::sync::Arc;

use bytes::Bytes;
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{
    DELAY, ORIGIN_MESSAGE_ID, REAL_QUEUE_ID, REAL_TOPIC, RETRY_TOPIC, TAGS, WAIT,
};
use troupemq_codec::message::{NewRecord, OffsetId, Properties, RecordView, sys_flag};
use troupemq_codec::request::{ConsumerSendMsgBack, ConsumerSendMsgBackHeader};
use troupemq_codec::{Command, Request, ResponseCode, Text};
use troupemq_store::dispatch::SCHEDULE_TOPIC;

use crate::cast::BrokerCast;
use crate::detour::{HALF_TOPIC, Wish};
use crate::directory::{GroupView, TopicView};
use crate::heartbeat::answers::group_view;
use crate::net::{Answer, Call, Refusal};
use crate::query::record;
use crate::send::place::retries_max;
use crate::send::{Own, store};
use crate::topic::names::{DEAD_LETTER_PREFIX, RETRY_PREFIX};
use crate::topics::EnsureGroupTopic;
use crate::transaction::records::OP_TOPIC;

/// Level of the first retry: 10 s with the usual levels.
const FIRST_LEVEL: i32 = 3;
/// Topics whose messages wait for their time or their decision: nobody has got them to send them back.
const WAITING: [&str; 4] = [HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, "rmq_sys_wheel_timer"];
/// Flag of topics in unit mode. Java: `TopicSysFlag.FLAG_UNIT_SUB`.
const UNIT_SUBSCRIPTION: i32 = 2;

/// Answers CONSUMER_SEND_MSG_BACK.
pub async fn send_back(cast: &BrokerCast, call: &Call) -> Answer {
    debug_assert_eq!(call.command.code, ConsumerSendMsgBack::CODE);
    let header: ConsumerSendMsgBackHeader = call.command.header()?;
    let group = group_view(cast, &header.group).await.map_err(|_| unknown_group(&header.group))?;
    let host = cast.advertised;
    if !cast.config.load().is_writable() {
        let remark = format!("the broker[{}] sending message is forbidden", host.ip());
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    let retry_queues = group.config().retry_queue_nums;
    if retry_queues <= 0 {
        return Ok(Command::response(ResponseCode::SUCCESS));
    }
    let sys_flag = if header.unit_mode == Some(true) { UNIT_SUBSCRIPTION } else { 0 };
    let retry = Text::from(format!("{RETRY_PREFIX}{}", group.name()));
    let topic = own_topic(cast, &retry, (retry_queues, sys_flag)).await?;
    let queues = retry_queues.min(topic.config.write_queue_nums).min(topic.config.read_queue_nums).max(1);
    let bytes = record(cast, header.log_offset).await?.ok_or_else(|| {
        let remark = format!("look message by offset failed, {}", header.log_offset);
        Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
    })?;
    let record = RecordView::parse(&bytes)?;
    if WAITING.contains(&record.topic()) {
        let (at, topic) = (header.log_offset, record.topic());
        let remark =
            format!("look message by offset failed, {at}: a message of {topic} was given to no consumer");
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    if record.sys_flag() & sys_flag::INNER_BATCH != 0 {
        // It holds more than the message that failed; the client sends that one by itself then.
        let remark = format!("the batch at {} is not sent back as a whole", header.log_offset);
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    let copy = Copy { record, header: &header, version: call.command.version };
    let next = copy.next(&group);
    let topic = match next {
        Next::Again(_) => retry,
        Next::GiveUp => {
            let dead = Text::from(format!("{DEAD_LETTER_PREFIX}{}", group.name()));
            own_topic(cast, &dead, (1, 0)).await?;
            dead
        }
    };
    copy.store(cast, &topic, (next, queues)).await?;
    let of = copy.record.properties().get(RETRY_TOPIC).unwrap_or(copy.record.topic());
    cast.directory.look_at_topic(of, |view| {
        view.counters.sent_back(group.name(), next == Next::GiveUp);
        cast.attend(view);
    });
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// The retry or dead-letter topic of a group, made if there is none; one that takes no messages is refused.
async fn own_topic(
    cast: &BrokerCast,
    topic: &Text,
    (queue_nums, sys_flag): (i32, i32),
) -> Result<Arc<TopicView>, Refusal> {
    let view = match cast.directory.topic(topic) {
        Some(view) => view,
        None => {
            let wanted = EnsureGroupTopic { topic: topic.clone(), queue_nums, sys_flag, order: false };
            cast.topics.send(wanted).await??
        }
    };
    if !view.is_writable() {
        let remark = format!("the topic[{topic}] sending message is forbidden");
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, remark));
    }
    Ok(view)
}

fn unknown_group(group: &str) -> Refusal {
    let remark = format!("subscription group not exist, {group}");
    Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
}

/// What becomes of a message that was sent back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Delivered again after this delay level.
    Again(i32),
    /// A dead letter.
    GiveUp,
}

/// A message that is sent back.
struct Copy<'a> {
    record: RecordView<'a>,
    header: &'a ConsumerSendMsgBackHeader,
    version: i32,
}

impl Copy<'_> {
    fn next(&self, group: &GroupView) -> Next {
        let max = retries_max(group, self.header.reconsume_max, self.version);
        next(self.record.reconsume_times(), max, self.header.delay_level)
    }

    /// The properties of the copy.
    fn properties(&self, next: Next) -> Properties {
        let text = Bytes::copy_from_slice(self.record.properties().as_bytes());
        let mut properties = Properties::parse(text);
        properties.remove(REAL_TOPIC);
        properties.remove(REAL_QUEUE_ID);
        if !properties.contains(RETRY_TOPIC) {
            properties.set(RETRY_TOPIC, self.record.topic());
        }
        if !properties.contains(ORIGIN_MESSAGE_ID) {
            let host = self.record.store_host();
            let id = OffsetId { host, log_offset: self.record.log_offset() };
            properties.set(ORIGIN_MESSAGE_ID, &id.to_string());
        }
        properties.set(WAIT, "false");
        match next {
            Next::Again(level) => properties.set(DELAY, &level.to_string()),
            Next::GiveUp => properties.set(DELAY, "0"),
        }
        properties
    }

    async fn store(
        &self,
        cast: &BrokerCast,
        topic: &str,
        (next, queues): (Next, i32),
    ) -> Result<(), Refusal> {
        let record = &self.record;
        let properties = self.properties(next);
        let tags = properties.get(TAGS);
        let wish = Wish { level: properties.get(DELAY), tags, ..Wish::default() };
        // Any queue will do; one that follows from the message needs no dice.
        let queue_id = match next {
            Next::Again(_) => i32::try_from(record.log_offset() % i64::from(queues)).unwrap_or(0),
            Next::GiveUp => 0,
        };
        let detour = cast.detours.find(&wish, topic, queue_id, cast.now_ms())?;
        let more: &[u8] = detour.as_ref().map_or(&[], |detour| &detour.properties);
        let pieces = [properties.encoded(), more];
        let new = NewRecord {
            topic: detour.as_ref().map_or(topic, |detour| detour.topic),
            queue_id: detour.as_ref().map_or(queue_id, |detour| detour.queue.queue_id()),
            flag: record.flag(),
            sys_flag: record.sys_flag(),
            born_timestamp_ms: record.born_timestamp_ms(),
            born_host: record.born_host(),
            store_host: cast.advertised,
            reconsume_times: record.reconsume_times().saturating_add(1),
            prepared_log_offset: 0,
            body: record.body(),
            properties: &pieces,
        };
        let tags_code = detour.as_ref().map_or_else(|| tags_code_of(tags), |detour| detour.tags_code);
        store(cast, &[Own { record: new, tags_code }]).await.map(|_stored| ())
    }
}

fn next(consumed_again: i32, max: i32, level: i32) -> Next {
    if level < 0 || consumed_again >= max {
        return Next::GiveUp;
    }
    Next::Again(if level == 0 { FIRST_LEVEL.saturating_add(consumed_again) } else { level })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3.5 #37, #39, #40.
    #[test]
    fn a_retry_waits_longer_each_time_until_it_is_given_up() {
        assert_eq!(next(0, 16, 0), Next::Again(3));
        assert_eq!(next(1, 16, 0), Next::Again(4));
        assert_eq!(next(15, 16, 0), Next::Again(18));
        assert_eq!(next(16, 16, 0), Next::GiveUp);
        assert_eq!(next(0, 0, 0), Next::GiveUp);
        assert_eq!(next(0, 16, -1), Next::GiveUp);
        assert_eq!(next(2, 16, 1), Next::Again(1));
    }
}
