//! Messages by key and by id: QUERY_MESSAGE and VIEW_MESSAGE_BY_ID. Java: `QueryMessageProcessor`.
//!
//! Invariants:
//! - a message whose send was answered is found: the dispatcher is asked to settle first;
//! - only messages of the asked topic with exactly the asked key are returned;
//! - an offset that is not the start of a record is an answer, never a misread record.

use bytes::{Bytes, BytesMut};
use troupemq_codec::message::RecordView;
use troupemq_codec::message::properties::{KEY_SEPARATOR, KEYS, UNIQ_KEY};
use troupemq_codec::request::{QueryMessageHeader, QueryMessageReplyHeader, ViewMessageByIdHeader};
use troupemq_codec::{Command, ResponseCode};
use troupemq_store::{KeyQuery, LogReader};

use crate::cast::BrokerCast;
use crate::dispatcher::Settle;
use crate::net::{Answer, Call, Refusal};

/// Bytes of an answer; a query that finds more returns the oldest that fit.
const BODY_MAX_BYTES: usize = 8 << 20;
/// Bytes a record begins with that tell its size.
const SIZE_BYTES: usize = 4;

/// QUERY_MESSAGE: messages of a topic with a key.
pub async fn query_message(cast: &BrokerCast, call: &Call) -> Answer {
    let header: QueryMessageHeader = call.command.header()?;
    cast.dispatcher.send(Settle).await?;
    let config = cast.config.load();
    let wish = if header.is_unique_key == Some(true) {
        config.default_query_max_num
    } else {
        header.messages_max.min(config.max_msgs_num_batch)
    };
    let query = KeyQuery {
        topic: &header.topic,
        key: &header.key,
        max: usize::try_from(wish).unwrap_or(0),
        begin_ms: header.begin_timestamp_ms,
        end_ms: header.end_timestamp_ms,
    };
    let is_right = |log_offset| {
        record_at(&cast.log, log_offset).is_some_and(|record| has_key(&record, &header.topic, &header.key))
    };
    let mut body = BytesMut::new();
    for record in
        cast.index.query_where(&query, is_right).into_iter().filter_map(|at| record_at(&cast.log, at))
    {
        if body.len() + record.len() > BODY_MAX_BYTES && !body.is_empty() {
            break;
        }
        body.extend_from_slice(&record);
    }
    let (updated_ms, updated_to) = cast.index.last_entry().unwrap_or((0, 0));
    let reply = QueryMessageReplyHeader {
        index_updated_ms: updated_ms,
        index_updated_to: i64::try_from(updated_to).unwrap_or(i64::MAX),
    };
    if body.is_empty() {
        let answer = Command::response(ResponseCode::QUERY_NOT_FOUND).with_header(&reply);
        return Ok(answer.with_remark("can not find message, maybe time range not correct"));
    }
    Ok(Command::response(ResponseCode::SUCCESS).with_header(&reply).with_body(body.freeze()))
}

/// VIEW_MESSAGE_BY_ID: the message at a place in the log.
pub async fn view_message_by_id(cast: &BrokerCast, call: &Call) -> Answer {
    let header: ViewMessageByIdHeader = call.command.header()?;
    let found = u64::try_from(header.log_offset).ok().and_then(|at| record_at(&cast.log, at));
    match found {
        Some(record) => Ok(Command::response(ResponseCode::SUCCESS).with_body(record)),
        None => Err(Refusal::new(
            ResponseCode::SYSTEM_ERROR,
            format!("can not find message by the offset, {}", header.log_offset),
        )),
    }
}

/// The whole record that begins at `log_offset`; none if no record begins there.
pub fn record_at(log: &LogReader, log_offset: u64) -> Option<Bytes> {
    if log_offset < log.min_offset() || log_offset >= log.wrote_to() {
        return None;
    }
    let size = log.look(log_offset, SIZE_BYTES, |bytes| {
        bytes.first_chunk::<SIZE_BYTES>().map(|word| u32::from_be_bytes(*word))
    });
    let size = usize::try_from(size??).ok()?;
    let end = log_offset.checked_add(u64::try_from(size).ok()?)?;
    if end > log.wrote_to() {
        return None;
    }
    let bytes = log.slice(log_offset, size)?;
    let record = RecordView::parse(&bytes).ok()?;
    let is_here = u64::try_from(record.log_offset()) == Ok(log_offset) && record.total_size() == size;
    (is_here && record.body_is_intact()).then_some(bytes)
}

fn has_key(bytes: &[u8], topic: &str, key: &str) -> bool {
    let Ok(record) = RecordView::parse(bytes) else { return false };
    let [unique, keys] = record.properties().pick([UNIQ_KEY, KEYS]);
    let is_one_of = |keys: &str| keys.split(KEY_SEPARATOR).any(|one| one == key);
    record.topic() == topic && (unique == Some(key) || keys.is_some_and(is_one_of))
}
