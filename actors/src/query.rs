//! Messages by key and by id: QUERY_MESSAGE and VIEW_MESSAGE_BY_ID. Java: `QueryMessageProcessor`.
//!
//! Invariants:
//! - a message whose send was answered is found: the dispatcher is asked to settle first;
//! - only messages of the asked topic with exactly the asked key are returned;
//! - neither waits for the disk on an arbiter, and a query goes through a bounded number of messages;
//! - an offset that is not the start of a record is an answer, never a misread record.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use troupemq_codec::message::RecordView;
use troupemq_codec::message::properties::{KEY_SEPARATOR, KEYS, UNIQ_KEY};
use troupemq_codec::request::{QueryMessageHeader, QueryMessageReplyHeader, ViewMessageByIdHeader};
use troupemq_codec::{Command, ResponseCode};
use troupemq_store::index::{QUERY_ENTRIES_MAX, QUERY_LOOKS_MAX};
use troupemq_store::{Cold, IndexReader, KeyQuery, LogReader, StoreError};

use crate::cast::BrokerCast;
use crate::dispatcher::Settle;
use crate::net::{Answer, Call, Refusal};

/// Bytes of an answer; a query that finds more returns the newest that fit.
const BODY_MAX_BYTES: usize = 8 << 20;
/// Bytes a record begins with that tell its size.
const SIZE_BYTES: usize = 4;
/// Bytes that are read at first where nothing may be waited for.
const FRONT_BYTES: usize = 2048;
/// Longest record that is copied on an arbiter: what commits its message copies it once more.
const NOW_MAX_BYTES: usize = 4 << 20;
/// Longest record that is looked up: what says it is longer is none, and takes no memory.
const RECORD_MAX_BYTES: usize = 64 << 20;

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
    let (log, index) = (cast.log.clone(), cast.index.clone());
    let (topic, key) = (header.topic.clone(), header.key.clone());
    let max = usize::try_from(wish).unwrap_or(0);
    let (begin_ms, end_ms) = (header.begin_timestamp_ms, header.end_timestamp_ms);
    let look = move || {
        let query = KeyQuery { topic: &topic, key: &key, max, begin_ms, end_ms };
        with_key(&log, &index, &query)
    };
    let (body, is_cut) = cast.lookups.search(look).await?;
    let (updated_ms, updated_to) = cast.index.last_entry().unwrap_or((0, 0));
    let reply = QueryMessageReplyHeader {
        index_updated_ms: updated_ms,
        index_updated_to: i64::try_from(updated_to).unwrap_or(i64::MAX),
    };
    if body.is_empty() {
        let answer = Command::response(ResponseCode::QUERY_NOT_FOUND).with_header(&reply);
        let why = match is_cut {
            false => "can not find message, maybe time range not correct".to_owned(),
            true => format!(
                "can not find message among the newest {QUERY_LOOKS_MAX} whose keys have the same hash, or the newest \
                 {QUERY_ENTRIES_MAX} entries of its chain in the index; name an earlier end of the time range"
            ),
        };
        return Ok(answer.with_remark(why));
    }
    Ok(Command::response(ResponseCode::SUCCESS).with_header(&reply).with_body(body))
}

/// The messages that a query finds, and whether it stopped at a bound. Waits for the disk.
///
/// # Errors
/// If it finds none, and the disk could not read one that may be it; or not the index.
fn with_key(log: &LogReader, index: &IndexReader, query: &KeyQuery<'_>) -> Result<(Bytes, bool), StoreError> {
    let failed = RefCell::new(None);
    let read = |log_offset| {
        fetch_record(log, log_offset).unwrap_or_else(|error| {
            tracing::error!(%error, log_offset, "a message cannot be read from the disk");
            failed.borrow_mut().get_or_insert(error);
            None
        })
    };
    let is_right =
        |log_offset| read(log_offset).is_some_and(|record| has_key(&record, query.topic, query.key));
    let found = index.query_where(query, is_right)?;
    let mut fitting = Vec::new();
    let mut bytes = 0;
    for record in found.log_offsets.into_iter().rev().filter_map(read) {
        bytes += record.len();
        if bytes > BODY_MAX_BYTES && !fitting.is_empty() {
            break;
        }
        fitting.push(record);
    }
    let mut body = BytesMut::with_capacity(bytes);
    fitting.iter().rev().for_each(|record| body.extend_from_slice(record));
    match failed.into_inner() {
        Some(error) if body.is_empty() => Err(error),
        _ => Ok((body.freeze(), found.is_cut)),
    }
}

/// VIEW_MESSAGE_BY_ID: the message at a place in the log.
pub async fn view_message_by_id(cast: &BrokerCast, call: &Call) -> Answer {
    let header: ViewMessageByIdHeader = call.command.header()?;
    match record(cast, header.log_offset).await? {
        Some(record) => Ok(Command::response(ResponseCode::SUCCESS).with_body(record)),
        None => Err(Refusal::new(
            ResponseCode::SYSTEM_ERROR,
            format!("can not find message by the offset, {}", header.log_offset),
        )),
    }
}

/// The whole record that begins at `log_offset`; none if no record begins there. Read where waiting is allowed.
pub async fn record(cast: &BrokerCast, log_offset: i64) -> Result<Option<Bytes>, Refusal> {
    match u64::try_from(log_offset) {
        Ok(log_offset) => cast.lookups.record(&cast.log, log_offset).await,
        Err(_negative) => Ok(None),
    }
}

/// The whole record that begins at `log_offset`, wherever it is; none if no record begins there. Waits for the disk.
///
/// # Errors
/// If the disk cannot read it.
pub fn fetch_record(log: &LogReader, log_offset: u64) -> Result<Option<Bytes>, StoreError> {
    record_by(log, log_offset, |len| log.read(log_offset, len))
}

/// The same if that waits for no disk. A very long one is left to those who wait: to copy it takes a while too.
///
/// # Errors
/// If it is not in memory.
pub fn record_now(log: &LogReader, log_offset: u64) -> Result<Option<Bytes>, Cold> {
    // Most records are no longer: then one question tells all.
    let front = log.read_now(log_offset, FRONT_BYTES).ok().flatten();
    record_by(log, log_offset, |len| match front.as_ref().and_then(|front| front.get(..len)) {
        Some(bytes) => Ok(Some(bytes.to_vec())),
        None if len > NOW_MAX_BYTES => Err(Cold),
        None => log.read_now(log_offset, len),
    })
}

/// The whole record that begins at `log_offset`, of which `read` gives the first bytes.
fn record_by<E>(
    log: &LogReader,
    log_offset: u64,
    read: impl Fn(usize) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<Bytes>, E> {
    if log_offset < log.min_offset() || log_offset >= log.wrote_to() {
        return Ok(None);
    }
    let head = read(SIZE_BYTES)?.unwrap_or_default();
    let size = head.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if !(SIZE_BYTES..=RECORD_MAX_BYTES).contains(&size) {
        return Ok(None);
    }
    let Some(bytes) = read(size)? else { return Ok(None) };
    let Ok(record) = RecordView::parse(&bytes) else { return Ok(None) };
    let is_here = u64::try_from(record.log_offset()) == Ok(log_offset) && record.total_size() == size;
    let is_whole = is_here && record.body_is_intact();
    Ok(is_whole.then(|| Bytes::from(bytes)))
}

fn has_key(bytes: &[u8], topic: &str, key: &str) -> bool {
    let Ok(record) = RecordView::parse(bytes) else { return false };
    let [unique, keys] = record.properties().pick([UNIQ_KEY, KEYS]);
    let is_one_of = |keys: &str| keys.split(KEY_SEPARATOR).any(|one| one == key);
    record.topic() == topic && (unique == Some(key) || keys.is_some_and(is_one_of))
}
