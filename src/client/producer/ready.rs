//! Messages made ready for their way, and what a broker answers to them.
//!
//! Invariants:
//! - every message has a unique id, the same for all tries;
//! - a body is compressed once, before the first try, and only if that makes it shorter.

use bytes::{Bytes, BytesMut};
use troupemq_codec::message::batch::BatchItem;
use troupemq_codec::message::message_id::UniqueIdText;
use troupemq_codec::message::properties::{
    DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TRANSACTION_PREPARED, UNIQ_KEY, WAIT,
    put_property,
};
use troupemq_codec::message::{PropertiesView, sys_flag};
use troupemq_codec::sent::Stored;
use troupemq_codec::topic::RETRY_PREFIX;
use troupemq_codec::{ResponseCode, Text};

use super::{SendReceipt, SendStatus, State};
use crate::client::epoch_ms;
use crate::client::error::ClientError;
use crate::client::message::Message;
use crate::client::queue::Queue;
use crate::client::trace::{Kind, Subject};

/// Most bytes of a unique id as a property.
const ID_PROPERTY_BYTES: usize = 66;

/// A message made ready: body, properties with id, and how it is to be sent.
pub(super) struct Ready {
    pub(super) topic: Text,
    pub(super) flag: i32,
    pub(super) sys_flag: i32,
    pub(super) body: Bytes,
    pub(super) properties: Text,
    pub(super) ids: String,
    pub(super) is_batch: bool,
    /// When it was made ready: epoch ms.
    pub(super) made_ms: i64,
    /// What traces tell of the messages; nothing if there are none.
    pub(super) subjects: Vec<Subject>,
    /// Where it went, once it is stored.
    pub(super) receipt: Option<SendReceipt>,
}

impl State {
    /// One message, with bits of the system flag. In a place of its own: a send goes through many hands.
    pub(super) fn ready(&self, message: Message, sys_flag: i32) -> Result<Box<Ready>, ClientError> {
        message.check()?;
        let (mut properties, mut ids, made_ms) = (BytesMut::new(), String::new(), epoch_ms());
        properties.reserve(message.properties.encoded().len() + ID_PROPERTY_BYTES);
        let new_id = self.client.hub.identity.message_ids(made_ms);
        put_properties((&message, &new_id), &mut properties, &mut ids);
        let subjects = self.tracer.as_ref().map(|_| subject(&message, &ids));
        let packed = self.compressed(&message)?;
        let Message { topic, body, flag, .. } = message;
        let (body, compressed) = packed.unwrap_or((body, 0));
        let (sys_flag, properties) = (sys_flag | compressed, utf8(properties.freeze()));
        let subjects = subjects.into_iter().collect();
        let (is_batch, receipt) = (false, None);
        Ok(Box::new(Ready {
            topic,
            flag,
            sys_flag,
            body,
            properties,
            ids,
            is_batch,
            made_ms,
            subjects,
            receipt,
        }))
    }

    /// Messages of one topic as one request.
    pub(super) fn ready_batch(&self, messages: &[Message]) -> Result<Box<Ready>, ClientError> {
        let Some(first) = messages.first() else {
            let why = "the batch is empty".to_owned();
            return Err(ClientError::IllegalMessage { topic: String::new(), why });
        };
        let topic = first.topic.clone();
        let illegal = |why: String| ClientError::IllegalMessage { topic: topic.to_string(), why };
        let bytes: usize = messages.iter().map(|message| message.body.len() + 96).sum();
        let (mut body, mut properties) = (BytesMut::with_capacity(bytes), BytesMut::new());
        let mut ids = String::with_capacity(messages.len() * 33);
        let (mut subjects, now_ms) = (Vec::new(), epoch_ms());
        let new_id = self.client.hub.identity.message_ids(now_ms);
        first.check_topic()?;
        let waits = waits(first);
        if topic.starts_with(RETRY_PREFIX) {
            return Err(illegal("messages that come again cannot be sent as a batch".to_owned()));
        }
        for message in messages {
            fits_into_batch(message, (&topic, waits)).map_err(illegal)?;
            message.check_content()?;
            if !ids.is_empty() {
                ids.push(',');
            }
            properties.clear();
            let id_at = ids.len();
            put_properties((message, &new_id), &mut properties, &mut ids);
            if self.tracer.is_some() {
                subjects.push(subject(message, &ids[id_at..]));
            }
            let properties = PropertiesView(&properties);
            let item = BatchItem { flag: message.flag, body: &message.body, properties };
            item.encode(&mut body).map_err(|cause| illegal(cause.to_string()))?;
        }
        properties.clear();
        if let Some(wait) = first.property(WAIT) {
            // The broker reads it of the batch, not of its messages.
            put_property(&mut properties, WAIT, wait);
        }
        let (body, properties) = (body.freeze(), utf8(properties.freeze()));
        let (flag, sys_flag, is_batch, made_ms, receipt) = (0, 0, true, now_ms, None);
        Ok(Box::new(Ready {
            topic,
            flag,
            sys_flag,
            body,
            properties,
            ids,
            is_batch,
            made_ms,
            subjects,
            receipt,
        }))
    }

    /// The body made shorter, and the bits that say how, if it is to be and can be.
    fn compressed(&self, message: &Message) -> Result<Option<(Bytes, i32)>, ClientError> {
        let body = &message.body;
        let Some(compress) = self.compression.filter(|compress| body.len() >= compress.from_bytes) else {
            return Ok(None);
        };
        let packed = compress.by.compress(compress.level, body).map_err(|cause| {
            ClientError::IllegalMessage { topic: message.topic.to_string(), why: cause.to_string() }
        })?;
        let is_shorter = packed.len() < body.len();
        Ok(is_shorter.then(|| (packed.into(), sys_flag::COMPRESSED | compress.by.sys_flag())))
    }
}

/// Writes the properties, the unique id among them, and adds the id to `ids`.
fn put_properties(
    (message, new_id): (&Message, &impl Fn() -> UniqueIdText),
    properties: &mut BytesMut,
    ids: &mut String,
) {
    properties.extend_from_slice(message.properties.encoded());
    if let Some(id) = message.property(UNIQ_KEY) {
        return ids.push_str(id);
    }
    let id = new_id();
    let id = id.as_str();
    put_property(properties, UNIQ_KEY, id);
    ids.push_str(id);
}

/// Whether a send of the message waits until it is stored as the broker is configured.
fn waits(message: &Message) -> bool {
    message.property(WAIT) != Some("false")
}

/// Whether a message can be part of a batch for a topic, whose messages wait or not: the broker decides for all of them
/// at once where they go, when, and how safe they must be.
fn fits_into_batch(message: &Message, (topic, waits_all): (&Text, bool)) -> Result<(), String> {
    if message.topic != *topic {
        return Err(format!("the batch has a message for {} too", message.topic));
    }
    if message.properties.encoded().is_empty() {
        return fits_with(waits_all, true);
    }
    let times = [DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS];
    for (later, value) in times.iter().zip(message.properties.view().pick(times)) {
        if value.is_some() {
            return Err(format!("a message for later, with the property {later}, cannot be part of a batch"));
        }
    }
    fits_with(waits_all, waits(message))
}

fn fits_with(waits_all: bool, waits: bool) -> Result<(), String> {
    if waits != waits_all {
        return Err("some messages of the batch wait until they are stored and some do not".to_owned());
    }
    Ok(())
}

fn subject(message: &Message, id: &str) -> Subject {
    let is_half = message.property(TRANSACTION_PREPARED).is_some();
    Subject::of(message, id, if is_half { Kind::Half } else { Kind::Normal })
}

fn utf8(properties: Bytes) -> Text {
    Text::from_utf8(properties).expect("names and values of properties are text")
}

/// What the sender hears of messages that were stored.
pub(super) fn receipt(ids: String, queue: &Queue, (code, stored): (ResponseCode, Stored)) -> SendReceipt {
    SendReceipt {
        message_id: ids,
        offset_id: stored.message_id,
        queue: Queue { queue_id: stored.queue_id, ..queue.clone() },
        queue_offset: stored.queue_offset,
        status: match code {
            ResponseCode::FLUSH_DISK_TIMEOUT => SendStatus::FlushTimedOut,
            ResponseCode::FLUSH_SLAVE_TIMEOUT => SendStatus::SlaveTimedOut,
            ResponseCode::SLAVE_NOT_AVAILABLE => SendStatus::NoSlave,
            _ => SendStatus::Stored,
        },
        recall_handle: stored.recall_handle,
    }
}
