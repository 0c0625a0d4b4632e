//! Messages made ready for their way, and what a broker answers to them.
//!
//! Invariants:
//! - every message has a unique id, the same for all tries;
//! - a body is compressed once, before the first try, and only if that makes it shorter.

use bytes::{Bytes, BytesMut};
use troupemq_codec::message::batch::BatchItem;
use troupemq_codec::message::properties::{
    DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TRANSACTION_PREPARED, UNIQ_KEY, WAIT,
    put_property,
};
use troupemq_codec::message::{PropertiesView, sys_flag};
use troupemq_codec::request::SendMessageReplyHeader;
use troupemq_codec::{Command, Request, ResponseCode, Text};

use super::{SendReceipt, SendStatus, State};
use crate::client::consumer::RETRY_PREFIX;
use crate::client::epoch_ms;
use crate::client::error::ClientError;
use crate::client::link::Link;
use crate::client::message::Message;
use crate::client::queue::Queue;
use crate::client::trace::{Kind, REGION, Subject};

/// A message made ready: body, properties with id, and how it is to be sent.
pub(super) struct Ready {
    pub(super) topic: Text,
    pub(super) flag: i32,
    pub(super) sys_flag: i32,
    pub(super) body: Bytes,
    pub(super) properties: Text,
    pub(super) ids: String,
    pub(super) is_batch: bool,
    /// What traces tell of the messages; nothing if there are none.
    pub(super) subjects: Vec<Subject>,
}

impl State {
    /// One message, with bits of the system flag.
    pub(super) fn ready(&self, message: &Message, sys_flag: i32) -> Result<Ready, ClientError> {
        message.check()?;
        let mut properties = BytesMut::with_capacity(message.properties.encoded().len() + 48);
        let mut ids = String::new();
        self.put_properties((message, epoch_ms()), &mut properties, &mut ids);
        let (body, compressed) = self.compressed(message)?;
        let subjects = self.tracer.as_ref().map(|_| subject(message, &ids));
        Ok(Ready {
            topic: message.topic.clone(),
            flag: message.flag,
            sys_flag: sys_flag | compressed,
            body,
            properties: utf8(properties.freeze()),
            ids,
            is_batch: false,
            subjects: subjects.into_iter().collect(),
        })
    }

    /// Messages of one topic as one request.
    pub(super) fn ready_batch(&self, messages: &[Message]) -> Result<Ready, ClientError> {
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
        for message in messages {
            message.check()?;
            fits_into_batch(message, first).map_err(illegal)?;
            if !ids.is_empty() {
                ids.push(',');
            }
            properties.clear();
            let id_at = ids.len();
            self.put_properties((message, now_ms), &mut properties, &mut ids);
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
        Ok(Ready { topic, flag: 0, sys_flag: 0, body, properties, ids, is_batch: true, subjects })
    }

    /// Writes the properties, the unique id among them, and adds the id to `ids`.
    fn put_properties(
        &self,
        (message, now_ms): (&Message, i64),
        properties: &mut BytesMut,
        ids: &mut String,
    ) {
        properties.extend_from_slice(message.properties.encoded());
        if let Some(id) = message.property(UNIQ_KEY) {
            return ids.push_str(id);
        }
        let id = self.client.hub.new_message_id(now_ms);
        put_property(properties, UNIQ_KEY, id.as_str());
        ids.push_str(id.as_str());
    }

    /// The body as it is sent, and the bits that say how.
    fn compressed(&self, message: &Message) -> Result<(Bytes, i32), ClientError> {
        let body = &message.body;
        let Some(compress) = self.compression.filter(|compress| body.len() >= compress.from_bytes) else {
            return Ok((body.clone(), 0));
        };
        let packed = compress.by.compress(compress.level, body).map_err(|cause| {
            ClientError::IllegalMessage { topic: message.topic.to_string(), why: cause.to_string() }
        })?;
        if packed.len() >= body.len() {
            return Ok((body.clone(), 0));
        }
        Ok((packed.into(), sys_flag::COMPRESSED | compress.by.sys_flag()))
    }
}

/// Whether a message can share a request with the first of a batch: the broker decides for all of them at once where
/// they go, when, and how safe they must be.
fn fits_into_batch(message: &Message, first: &Message) -> Result<(), String> {
    if message.topic != first.topic {
        return Err(format!("the batch has a message for {} too", message.topic));
    }
    if message.topic.starts_with(RETRY_PREFIX) {
        return Err("messages that come again cannot be sent as a batch".to_owned());
    }
    for later in [DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS] {
        if message.property(later).is_some() {
            return Err(format!("a message for later, with the property {later}, cannot be part of a batch"));
        }
    }
    let waits = |message: &Message| message.property(WAIT) != Some("false");
    if waits(message) != waits(first) {
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

/// What a broker says of a message that it took, and its region if it wants the message traced.
pub(super) fn receipt<R: Request>(
    link: &Link,
    answer: &Command,
    ready: &Ready,
    queue: &Queue,
) -> Result<(SendReceipt, Option<Text>), ClientError> {
    let status = match answer.response_code() {
        ResponseCode::SUCCESS => SendStatus::Stored,
        ResponseCode::FLUSH_DISK_TIMEOUT => SendStatus::FlushTimedOut,
        ResponseCode::FLUSH_SLAVE_TIMEOUT => SendStatus::SlaveTimedOut,
        ResponseCode::SLAVE_NOT_AVAILABLE => SendStatus::NoSlave,
        _ => return Err(link.refusal::<R>(answer)),
    };
    let reply: SendMessageReplyHeader = answer.header().map_err(|cause| link.malformed::<R>(cause))?;
    let is_traced = reply.trace_on != Some(false);
    let region = is_traced.then(|| reply.region.unwrap_or_else(|| REGION.into()));
    let receipt = SendReceipt {
        message_id: ready.ids.clone(),
        offset_id: reply.message_id.to_string(),
        queue: Queue { queue_id: reply.queue_id, ..queue.clone() },
        queue_offset: reply.queue_offset,
        status,
        recall_handle: reply.recall_handle.map(|handle| handle.to_string()),
    };
    Ok((receipt, region))
}
