//! Messages made ready for their way, and what a broker answers to them.
//!
//! Invariants:
//! - every message has a unique id, the same for all tries;
//! - a body is compressed once, before the first try, and only if that makes it shorter.

use bytes::{Bytes, BytesMut};
use troupemq_codec::message::batch::BatchItem;
use troupemq_codec::message::message_id::{UniqueIdText, hex_digits};
use troupemq_codec::message::properties::{
    DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TRANSACTION_PREPARED, UNIQ_KEY, WAIT,
    put_property,
};
use troupemq_codec::message::{Properties, PropertiesView, sys_flag};
use troupemq_codec::sent::Stored;
use troupemq_codec::topic::RETRY_PREFIX;
use troupemq_codec::{ResponseCode, Text};

use super::{SendReceipt, SendStatus, State};
use crate::client::epoch_ms;
use crate::client::error::ClientError;
use crate::client::message::Message;
use crate::client::queue::Queue;
use crate::client::trace::{Kind, Subject};

/// A message made ready: body, properties with id, and how it is to be sent.
pub(super) struct Ready {
    /// Who sends it takes it along, and gives it back for another try.
    pub(super) topic: Text,
    pub(super) flag: i32,
    pub(super) sys_flag: i32,
    pub(super) body: Bytes,
    /// Its properties, the id among them: who sends it takes them along.
    properties: Option<Text>,
    /// What the application set of them, by which they are made again for another try.
    own: Properties,
    pub(super) ids: String,
    pub(super) is_batch: bool,
    /// When it was made ready: epoch ms.
    pub(super) made_ms: i64,
    /// What traces tell of the messages; nothing if there are none.
    pub(super) subjects: Vec<Subject>,
    /// Where it went, once it is stored.
    pub(super) receipt: Option<SendReceipt>,
}

impl Ready {
    /// The properties as they are sent.
    pub(super) fn take_properties(&mut self) -> Text {
        self.properties.take().unwrap_or_else(|| match self.is_batch || self.own.get(UNIQ_KEY).is_some() {
            true => utf8(self.own.encoded().clone()),
            false => with_id(&self.own, &self.ids),
        })
    }
}

impl State {
    /// One message, with bits of the system flag. In a place of its own: a send goes through many hands.
    pub(super) fn ready(&self, message: Message, sys_flag: i32) -> Result<Box<Ready>, ClientError> {
        message.check()?;
        let made_ms = epoch_ms();
        let (properties, ids) = match message.property(UNIQ_KEY) {
            Some(id) => (utf8(message.properties.encoded().clone()), id.to_owned()),
            None => {
                let id = self.client.hub.new_message_id(made_ms);
                (with_id(&message.properties, id.as_str()), id.as_str().to_owned())
            }
        };
        let subjects = self.tracer.as_ref().map(|_| subject(&message, &ids));
        let packed = self.compressed(&message)?;
        let Message { topic, body, flag, properties: own, .. } = message;
        let (body, compressed) = packed.unwrap_or((body, 0));
        let (sys_flag, properties) = (sys_flag | compressed, Some(properties));
        let subjects = subjects.into_iter().collect();
        let (is_batch, receipt) = (false, None);
        Ok(Box::new(Ready {
            topic,
            flag,
            sys_flag,
            body,
            properties,
            own,
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
        let (mut body, mut properties) = (BytesMut::with_capacity(bytes), Vec::new());
        let mut ids = Vec::with_capacity(messages.len() * 33);
        let (mut subjects, now_ms) = (Vec::new(), epoch_ms());
        let mut new_ids = NewIds::new(self.client.hub.identity.message_ids(now_ms, messages.len()));
        first.check_topic()?;
        let waits = waits(first);
        if topic.starts_with(RETRY_PREFIX) {
            return Err(illegal("messages that come again cannot be sent as a batch".to_owned()));
        }
        for message in messages {
            fits_into_batch(message, (&topic, waits)).map_err(illegal)?;
            message.check_content()?;
            if !ids.is_empty() {
                ids.push(b',');
            }
            let id_at = ids.len();
            let properties = new_ids.properties_of(message, &mut properties, &mut ids);
            if self.tracer.is_some() {
                subjects.push(subject(message, &String::from_utf8_lossy(&ids[id_at..])));
            }
            let item = BatchItem { flag: message.flag, body: &message.body, properties };
            item.encode(&mut body).map_err(|cause| illegal(cause.to_string()))?;
        }
        let mut properties = Vec::new();
        if let Some(wait) = first.property(WAIT) {
            // The broker reads it of the batch, not of its messages.
            put_property(&mut properties, WAIT, wait);
        }
        let ids = String::from_utf8(ids).expect("ids are text");
        let (body, own) = (body.freeze(), Properties::parse(properties.into()));
        let (properties, flag, sys_flag, is_batch, made_ms, receipt) = (None, 0, 0, true, now_ms, None);
        Ok(Box::new(Ready {
            topic,
            flag,
            sys_flag,
            body,
            properties,
            own,
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

/// The properties of a message with an id behind them, in a place of just their length.
fn with_id(own: &Properties, id: &str) -> Text {
    let own = own.encoded();
    let mut text = Vec::with_capacity(own.len() + UNIQ_KEY.len() + id.len() + 2);
    text.extend_from_slice(own);
    put_property(&mut text, UNIQ_KEY, id);
    utf8(text.into())
}

/// New ids for messages, each as the property that it becomes: from one to the next only digits change.
struct NewIds {
    /// The property of the last id.
    property: Vec<u8>,
    counter: u16,
}

impl NewIds {
    /// The first of them has this counter.
    fn new((id, counter): (UniqueIdText, u16)) -> NewIds {
        let mut property = Vec::new();
        put_property(&mut property, UNIQ_KEY, id.as_str());
        NewIds { property, counter }
    }

    /// The next id.
    fn advance(&mut self) -> &[u8] {
        let [.., a, b, c, d] = hex_digits(self.counter.into());
        self.counter = self.counter.wrapping_add(1);
        let end = self.property.len() - 1;
        self.property[end - 4..end].copy_from_slice(&[a, b, c, d]);
        &self.property[UNIQ_KEY.len() + 1..end]
    }

    /// The properties of a message, the unique id among them, written to `room` unless it has no others; the id is
    /// added to `ids`.
    fn properties_of<'a>(
        &'a mut self,
        message: &'a Message,
        room: &'a mut Vec<u8>,
        ids: &mut Vec<u8>,
    ) -> PropertiesView<'a> {
        if let Some(id) = message.property(UNIQ_KEY) {
            ids.extend_from_slice(id.as_bytes());
            return message.properties.view();
        }
        ids.extend_from_slice(self.advance());
        if message.properties.encoded().is_empty() {
            return PropertiesView(&self.property);
        }
        room.clear();
        room.extend_from_slice(message.properties.encoded());
        room.extend_from_slice(&self.property);
        PropertiesView(room)
    }
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
