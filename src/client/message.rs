//! Messages as an application makes and gets them.
//!
//! Invariants:
//! - a property that could not be read back is refused before anything is sent;
//! - a received message shares the bytes of the answer it came in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use troupemq_codec::Text;
use troupemq_codec::message::properties::{self as names, is_storable};
use troupemq_codec::message::{Message as StoredMessage, Properties};

use super::error::ClientError;
use super::legal;
use super::queue::Queue;

/// A message to be sent.
///
/// ```
/// use troupemq::Message;
/// let message = Message::new("orders", "hello").tag("new").key("42");
/// assert_eq!(message.topic(), "orders");
/// assert_eq!(message.property("TAGS"), Some("new"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub(crate) topic: Text,
    pub(crate) body: Bytes,
    pub(crate) flag: i32,
    pub(crate) properties: Properties,
    bad_property: Option<String>,
}

impl Message {
    /// A message with a body for a topic.
    pub fn new(topic: impl Into<Text>, body: impl Into<Bytes>) -> Message {
        Message {
            topic: topic.into(),
            body: body.into(),
            flag: 0,
            properties: Properties::new(),
            bad_property: None,
        }
    }

    /// Sets the tag by which consumers can select.
    pub fn tag(self, tag: &str) -> Message {
        self.with(names::TAGS, tag)
    }

    /// Adds a key under which the message can be found again (`troupemq message find`, `mqadmin queryMsgByKey`).
    pub fn key(self, key: &str) -> Message {
        match self.property(names::KEYS).map(|keys| format!("{keys}{}{key}", names::KEY_SEPARATOR)) {
            Some(keys) => self.with(names::KEYS, &keys),
            None => self.with(names::KEYS, key),
        }
    }

    /// Sets the user's flag, a number that is stored as it is.
    pub fn flag(mut self, flag: i32) -> Message {
        self.flag = flag;
        self
    }

    /// Adds a property of the application's own; SQL92 filters see it.
    pub fn with_property(self, name: &str, value: &str) -> Message {
        self.with(name, value)
    }

    /// Delivers the message later, by a delay level of the broker: 1 is 1 s, 2 is 5 s, 3 is 10 s … RocketMQ:
    /// `setDelayTimeLevel`.
    pub fn delay_level(self, level: u8) -> Message {
        self.with(names::DELAY, &level.to_string())
    }

    /// Delivers the message after a time, up to `timerMaxDelaySec` of the broker. RocketMQ: `setDelayTimeMs`.
    pub fn deliver_after(self, delay: Duration) -> Message {
        self.with(names::TIMER_DELAY_MS, &delay.as_millis().to_string())
    }

    /// Delivers the message at a time: epoch ms. RocketMQ: `setDeliverTimeMs`.
    pub fn deliver_at(self, epoch_ms: i64) -> Message {
        self.with(names::TIMER_DELIVER_MS, &epoch_ms.to_string())
    }

    /// Whether the answer to the send waits for flush and replication as the broker is configured. Default: yes.
    /// RocketMQ: `setWaitStoreMsgOK`.
    pub fn wait_stored(self, wait: bool) -> Message {
        self.with(names::WAIT, if wait { "true" } else { "false" })
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// A property by its name.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name)
    }

    fn with(mut self, name: &str, value: &str) -> Message {
        if is_storable(name, value) {
            self.properties.set(name, value);
        } else if self.bad_property.is_none() {
            self.bad_property = Some(format!("property {name:?} cannot have the value {value:?}"));
        }
        self
    }

    /// Refuses what no broker would take.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        self.check_topic()?;
        self.check_content()
    }

    /// Refuses a topic that there cannot be.
    pub(crate) fn check_topic(&self) -> Result<(), ClientError> {
        legal::check_topic(&self.topic).map_err(|why| self.illegal(format!("the topic: {why}")))
    }

    /// Refuses a body or properties that no broker would take.
    pub(crate) fn check_content(&self) -> Result<(), ClientError> {
        match &self.bad_property {
            _ if self.body.is_empty() => Err(self.illegal("the body is empty".to_owned())),
            Some(bad) => Err(self.illegal(bad.clone())),
            None => Ok(()),
        }
    }

    fn illegal(&self, why: String) -> ClientError {
        ClientError::IllegalMessage { topic: self.topic.to_string(), why }
    }
}

/// A message that came from a broker; cheap to clone, all clones share it.
#[derive(Debug, Clone, PartialEq)]
pub struct Received(Arc<Whole>);

/// A message is large and goes through many hands: it lies in one place.
#[derive(Debug, PartialEq)]
struct Whole {
    stored: StoredMessage,
    queue: Arc<Queue>,
}

impl Received {
    pub(crate) fn new(stored: StoredMessage, queue: Arc<Queue>) -> Received {
        Received(Arc::new(Whole { stored, queue }))
    }

    /// The topic; of a message that comes again, the one it was first sent to.
    pub fn topic(&self) -> &str {
        &self.0.stored.topic
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.0.stored.body
    }

    /// The tag.
    pub fn tag(&self) -> Option<&str> {
        self.0.stored.tags()
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.stored.keys()
    }

    /// A property by its name.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.0.stored.properties.get(name)
    }

    /// Every property in order.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.stored.properties.iter()
    }

    /// The user's flag.
    pub fn flag(&self) -> i32 {
        self.0.stored.flag
    }

    /// The id the producer gave it; the offset id if it gave none.
    pub fn message_id(&self) -> String {
        self.0.stored.message_id()
    }

    /// The id that names the message's place in the broker's log.
    pub fn offset_id(&self) -> String {
        self.0.stored.offset_id().to_string()
    }

    /// The queue it came from.
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// Its position in the queue, in messages.
    pub fn queue_offset(&self) -> i64 {
        self.0.stored.queue_offset
    }

    /// Its position in the broker's log, in bytes.
    pub fn log_offset(&self) -> i64 {
        self.0.stored.log_offset
    }

    /// When the producer made it: epoch ms.
    pub fn born_timestamp_ms(&self) -> i64 {
        self.0.stored.born_timestamp_ms
    }

    /// When the broker stored it: epoch ms.
    pub fn store_timestamp_ms(&self) -> i64 {
        self.0.stored.store_timestamp_ms
    }

    /// How many times it was sent back to be delivered later.
    pub fn reconsume_times(&self) -> i32 {
        self.0.stored.reconsume_times
    }

    pub(crate) fn stored(&self) -> &StoredMessage {
        &self.0.stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_add_up_and_a_tag_replaces_the_former() {
        let message = Message::new("T", "x").tag("a").tag("b").key("1").key("2");
        assert_eq!(message.property(names::TAGS), Some("b"));
        assert_eq!(message.property(names::KEYS), Some("1 2"));
    }

    #[test]
    fn what_no_broker_would_take_is_refused_before_it_is_sent() {
        let good = Message::new("%RETRY%g|x_-1", "x");
        assert!(good.check().is_ok());
        let illegal = [
            Message::new("", "x"),
            Message::new("a b", "x"),
            Message::new("x".repeat(128), "x"),
            Message::new("T", ""),
            Message::new("T", "x").tag(""),
            Message::new("T", "x").with_property("a\u{1}b", "c"),
            Message::new("T", "x").with_property("a", "b\u{2}c"),
        ];
        for message in illegal {
            assert!(message.check().is_err(), "{message:?}");
        }
    }
}
