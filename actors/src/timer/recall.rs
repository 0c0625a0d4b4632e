//! RECALL_MESSAGE: a producer takes a timer back by the handle that the answer to its send carried.
//! Java: `RecallMessageProcessor`.
//!
//! Invariants:
//! - a recall is a timer itself, due in the slot of the one it cancels: both meet there, whatever happens meanwhile;
//! - what was recalled in time is never delivered; whether it had been sent at all is not asked.

use std::ops::Range;

use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::NewRecord;
use troupemq_codec::message::properties::{
    BORN_TIMESTAMP, MSG_REGION, PRODUCER_GROUP, TAGS, TIMER_DELETE_UNIQUE_KEY, TIMER_DELIVER_MS, UNIQ_KEY,
    is_storable, put_property,
};
use troupemq_codec::message::receipt_handle::{RecallHandle, RecallHandles};
use troupemq_codec::request::{RecallMessage, RecallMessageHeader, RecallMessageReplyHeader};
use troupemq_codec::{Command, Request, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::config::BrokerConfig;
use crate::detour::Wish;
use crate::net::{Answer, Call, Refusal};
use crate::send::{Own, store};
use crate::timer::admit::TimeWish;
use crate::topic::names::RETRY_PREFIX;

/// Tag of a cancellation.
const RECALL_TAG: &str = "_RECALL_TAG_";

/// Writes the handle of a timer: of a time that its slot holds, and its unique id; tells where. A retry has none.
pub fn handle(
    cast: &BrokerCast,
    handles: &mut RecallHandles,
    topic: &str,
    due: (i64, &str),
) -> Option<Range<usize>> {
    (!topic.starts_with(RETRY_PREFIX)).then(|| handles.push(topic, &cast.broker_name, due))
}

/// The pieces of what names a timer in a cancellation.
pub fn delete_key<'a>(topic: &'a str, uniq_key: &'a str) -> [&'a str; 3] {
    [topic, "+", uniq_key]
}

/// Answers RECALL_MESSAGE. Every answer names the region, also one that refuses.
pub async fn recall(cast: &BrokerCast, call: &Call) -> Answer {
    debug_assert_eq!(call.command.code, RecallMessage::CODE);
    let mut answer = match recalled(cast, call).await {
        Ok(message_id) => {
            Command::response(ResponseCode::SUCCESS).with_header(&RecallMessageReplyHeader { message_id })
        }
        Err(refusal) => Command::response(refusal.code).with_remark(refusal.remark),
    };
    answer.fields.set(MSG_REGION, cast.region.as_str());
    Ok(answer)
}

/// Stores the cancellation; gives the unique id of the message it is for.
async fn recalled(cast: &BrokerCast, call: &Call) -> Result<Text, Refusal> {
    let header: RecallMessageHeader = call.command.header()?;
    let now_ms = cast.now_ms();
    check_service(&cast.config.load(), now_ms)?;
    if cast.directory.topic(&header.topic).is_none() {
        let remark = format!("recall failed, the topic[{}] not exist", header.topic);
        return Err(Refusal::new(ResponseCode::TOPIC_NOT_EXIST, remark));
    }
    let handle = check_handle(cast, &header, now_ms)?;
    let deliver_ms = handle.deliver_ms.to_string();
    let time = TimeWish { deliver: Some(&deliver_ms), cancels: true, ..TimeWish::default() };
    let wish = Wish { time, tags: Some(RECALL_TAG), ..Wish::default() };
    let detour = cast.detours.find(&wish, &handle.topic, 0, now_ms)?;
    let detour = detour.ok_or_else(|| illegal("recall failed, timestamp invalid"))?;
    let mut properties = detour.properties;
    for (name, value) in [
        (TIMER_DELETE_UNIQUE_KEY, delete_key(&handle.topic, &handle.unique_id).concat().as_str()),
        (UNIQ_KEY, &handle.unique_id),
        (TIMER_DELIVER_MS, &deliver_ms),
        (BORN_TIMESTAMP, &now_ms.to_string()),
        (PRODUCER_GROUP, header.producer_group.as_deref().unwrap_or_default()),
        (TAGS, RECALL_TAG),
    ] {
        if is_storable(name, value) {
            put_property(&mut properties, name, value);
        }
    }
    let record = NewRecord {
        topic: detour.topic,
        queue_id: detour.queue.queue_id(),
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: now_ms,
        born_host: call.link.peer(),
        store_host: cast.advertised,
        reconsume_times: 0,
        prepared_log_offset: 0,
        body: b"0",
        body_crc: None,
        properties: &[&properties],
    };
    let own = Own { record, tags_code: tags_code_of(Some(RECALL_TAG)), keys: None };
    store(cast, &[own]).await.map_err(|refusal| {
        let remark = format!("recall failed, execute error: {}", refusal.remark);
        Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
    })?;
    Ok(Text::from(handle.unique_id))
}

fn check_service(config: &BrokerConfig, now_ms: i64) -> Result<(), Refusal> {
    let refused = |code, remark: &str| Err(Refusal::new(code, remark));
    let not_serving = "recall failed, broker service not available";
    if !config.recall_message_enable {
        let remark = "recall failed, operation is forbidden: recallMessageEnable is false";
        return refused(ResponseCode::NO_PERMISSION, remark);
    }
    if config.broker_id != 0 {
        return refused(ResponseCode::SLAVE_NOT_AVAILABLE, not_serving);
    }
    let is_closed = !config.is_writable() && !config.allow_recall_when_broker_not_writeable;
    if is_closed || now_ms < config.start_accept_send_request_time_stamp {
        return refused(ResponseCode::SERVICE_NOT_AVAILABLE, not_serving);
    }
    Ok(())
}

fn check_handle(
    cast: &BrokerCast,
    header: &RecallMessageHeader,
    now_ms: i64,
) -> Result<RecallHandle, Refusal> {
    let handle = RecallHandle::parse(&header.recall_handle)
        .map_err(|error| illegal(format!("recall handle is invalid: {error}")))?;
    if !is_storable(UNIQ_KEY, &handle.unique_id) {
        return Err(illegal("recall handle is invalid: its unique id is empty or has marks of the format"));
    }
    if handle.topic != header.topic.as_str() {
        let why = format!("recall failed, topic not match: the handle is of {}", handle.topic);
        return Err(illegal(why));
    }
    if handle.broker_name != cast.broker_name.as_str() {
        let why =
            format!("recall failed, broker service not available: the handle is of {}", handle.broker_name);
        return Err(illegal(why));
    }
    let left_ms = handle.deliver_ms.saturating_sub(now_ms);
    let max_ms = cast.config.load().timer_max_delay_sec * 1000;
    if left_ms <= 0 || left_ms >= max_ms {
        let why =
            format!("recall failed, timestamp invalid: {left_ms}ms are left, at most {max_ms}ms can be");
        return Err(illegal(why));
    }
    Ok(handle)
}

fn illegal(remark: impl Into<String>) -> Refusal {
    Refusal::new(ResponseCode::ILLEGAL_OPERATION, remark)
}
