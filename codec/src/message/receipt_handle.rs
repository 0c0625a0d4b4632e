//! The handles that clients give back: of a popped message, and of a timed message that may be recalled.
//!
//! Invariants:
//! - a handle reads back to the same text;
//! - a name with a blank in it would break the text: `parse` then fails, so brokers and topics have none.
//!
//! A receipt handle is `checkpoint-offset pop-time invisible-time revive-queue retry-mark broker queue` and,
//! from clients of today, the message's own queue offset. A recall handle is the URL-safe base64 of
//! `v1 topic broker deliver-time unique-id`.
//!
//! RocketMQ's names for it: `ExtraInfoUtil`, `RecallMessageHandle`.

use std::fmt;
use std::ops::Range;

use crate::base64;
use crate::command::digits_of;
use crate::error::CodecError;
use crate::text::Text;
use crate::topic::RETRY_PREFIX;

/// Pseudo revive queue of ordered pops: nothing is written to the revive topic for them.
pub const ORDERED_REVIVE_QUEUE: i32 = 999;

/// Which topic a popped message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum RetryMark {
    /// The topic itself.
    #[default]
    Normal,
    /// The group's retry topic of it, `%RETRY%group_topic`.
    RetryV1,
    /// The group's retry topic of it, `%RETRY%group+topic`.
    RetryV2,
}

impl RetryMark {
    /// The character that stands for it.
    pub fn as_str(self) -> &'static str {
        match self {
            RetryMark::Normal => "0",
            RetryMark::RetryV1 => "1",
            RetryMark::RetryV2 => "2",
        }
    }

    /// Reads the character.
    pub fn parse(text: &str) -> Result<RetryMark, CodecError> {
        match text {
            "0" => Ok(RetryMark::Normal),
            "1" => Ok(RetryMark::RetryV1),
            "2" => Ok(RetryMark::RetryV2),
            other => Err(CodecError::invalid("retry mark", other)),
        }
    }

    /// The topic that a message of `group` and `topic` with this mark is stored in.
    pub fn stored_topic(self, group: &str, topic: &str) -> String {
        match self {
            RetryMark::Normal => topic.to_owned(),
            RetryMark::RetryV1 => format!("{RETRY_PREFIX}{group}_{topic}"),
            RetryMark::RetryV2 => format!("{RETRY_PREFIX}{group}+{topic}"),
        }
    }

    /// The mark of a message that is stored in `stored_topic`.
    pub fn of_stored_topic(stored_topic: &str, group: &str) -> RetryMark {
        let Some(rest) = stored_topic.strip_prefix(RETRY_PREFIX) else { return RetryMark::Normal };
        match rest.strip_prefix(group).and_then(|rest| rest.bytes().next()) {
            Some(b'+') => RetryMark::RetryV2,
            Some(b'_') => RetryMark::RetryV1,
            _ => RetryMark::Normal,
        }
    }
}

/// What the client of a pop gives back to acknowledge a message (property `POP_CK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptHandle<'a> {
    /// First queue offset of the pop's check point.
    pub checkpoint_offset: i64,
    /// When the message was popped: epoch ms.
    pub pop_time_ms: i64,
    /// How long it stays invisible: ms.
    pub invisible_ms: i64,
    /// Queue of the revive topic, or [`ORDERED_REVIVE_QUEUE`].
    pub revive_queue_id: i32,
    /// Which topic it came from.
    pub retry: RetryMark,
    /// The broker.
    pub broker_name: &'a str,
    /// The queue.
    pub queue_id: i32,
    /// The message's own queue offset; old handles lack it.
    pub queue_offset: Option<i64>,
}

impl<'a> ReceiptHandle<'a> {
    /// Reads a handle; parts behind the eighth are ignored.
    pub fn parse(text: &'a str) -> Result<ReceiptHandle<'a>, CodecError> {
        let mut parts = text.split(' ');
        let mut part = || parts.next().ok_or(CodecError::invalid("receipt handle", text));
        Ok(ReceiptHandle {
            checkpoint_offset: number(part()?)?,
            pop_time_ms: number(part()?)?,
            invisible_ms: number(part()?)?,
            revive_queue_id: number(part()?)?,
            retry: RetryMark::parse(part()?)?,
            broker_name: part()?,
            queue_id: number(part()?)?,
            queue_offset: part().ok().map(number).transpose()?,
        })
    }

    /// Whether the handle belongs to an ordered pop.
    pub fn is_ordered(&self) -> bool {
        self.revive_queue_id == ORDERED_REVIVE_QUEUE
    }
}

impl fmt::Display for ReceiptHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReceiptHandle { checkpoint_offset, pop_time_ms, invisible_ms, revive_queue_id, .. } = self;
        write!(f, "{checkpoint_offset} {pop_time_ms} {invisible_ms} {revive_queue_id} ")?;
        write!(f, "{} {} {}", self.retry.as_str(), self.broker_name, self.queue_id)?;
        match self.queue_offset {
            Some(queue_offset) => write!(f, " {queue_offset}"),
            None => Ok(()),
        }
    }
}

/// What the producer of a timed message gives back to recall it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecallHandle {
    /// The topic.
    pub topic: String,
    /// The broker.
    pub broker_name: String,
    /// When the message is due: epoch ms.
    pub deliver_ms: i64,
    /// The message's unique id.
    pub unique_id: String,
}

impl RecallHandle {
    /// Reads a handle.
    pub fn parse(text: &str) -> Result<RecallHandle, CodecError> {
        let invalid = || CodecError::invalid("recall handle", text);
        let plain = base64::decode(text)?;
        let plain = std::str::from_utf8(&plain).map_err(|_| invalid())?;
        let parts: Vec<&str> = plain.split(' ').collect();
        let ["v1", topic, broker_name, deliver_ms, unique_id] = parts[..] else { return Err(invalid()) };
        Ok(RecallHandle {
            topic: topic.to_owned(),
            broker_name: broker_name.to_owned(),
            deliver_ms: number(deliver_ms)?,
            unique_id: unique_id.to_owned(),
        })
    }

    /// The text of a handle, without making one of it first.
    pub fn text(topic: &str, broker_name: &str, (deliver_ms, unique_id): (i64, &str)) -> String {
        let mut digits = Default::default();
        let digits = digits_of(deliver_ms, &mut digits);
        let pieces: [&[u8]; 5] =
            [b"v1", topic.as_bytes(), broker_name.as_bytes(), digits, unique_id.as_bytes()];
        base64::encode_url_safe(&pieces.join(&b' '))
    }
}

impl fmt::Display for RecallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecallHandle { topic, broker_name, deliver_ms, unique_id } = self;
        f.write_str(&RecallHandle::text(topic, broker_name, (*deliver_ms, unique_id)))
    }
}

/// The letters of a recall handle: ASCII that needs no escape anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleLetters<'a>(&'a [u8]);

impl<'a> HandleLetters<'a> {
    /// The letters as bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// The texts of recall handles, one behind the other. What those of one topic and one time begin with is encoded once.
#[derive(Debug, Default)]
pub struct RecallHandles {
    letters: Vec<u8>,
    topic: String,
    broker_name: String,
    deliver_ms: i64,
    /// What a handle of these begins with, without the last bytes of it that make no four letters.
    front: Vec<u8>,
    /// Those bytes, and in front of the unique id at hand.
    rest: Vec<u8>,
    /// How many those are.
    rest_bytes: usize,
}

impl RecallHandles {
    /// Appends the text of a handle, as [`RecallHandle::text`] makes it; tells where it stands.
    pub fn push(
        &mut self,
        topic: &str,
        broker_name: &Text,
        (deliver_ms, unique_id): (i64, &str),
    ) -> Range<usize> {
        let is_known = self.topic == topic && self.broker_name.as_bytes() == broker_name.as_bytes();
        if !is_known || self.deliver_ms != deliver_ms {
            self.begin(topic, broker_name, deliver_ms);
        }
        let start = self.letters.len();
        self.letters.extend_from_slice(&self.front);
        self.rest.truncate(self.rest_bytes);
        self.rest.extend_from_slice(unique_id.as_bytes());
        base64::append_url_safe(&self.rest, &mut self.letters);
        start..self.letters.len()
    }

    /// The letters of a handle, by its place.
    pub fn get(&self, place: Range<usize>) -> HandleLetters<'_> {
        HandleLetters(self.letters.get(place).unwrap_or_default())
    }

    /// Forgets all handles.
    pub fn clear(&mut self) {
        self.letters.clear();
    }

    fn begin(&mut self, topic: &str, broker_name: &str, deliver_ms: i64) {
        topic.clone_into(&mut self.topic);
        broker_name.clone_into(&mut self.broker_name);
        self.deliver_ms = deliver_ms;
        let plain = format!("v1 {topic} {broker_name} {deliver_ms} ");
        let (groups, rest) = plain.as_bytes().as_chunks::<3>();
        self.front.clear();
        base64::append_url_safe(groups.as_flattened(), &mut self.front);
        self.rest = rest.to_vec();
        self.rest_bytes = rest.len();
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, CodecError> {
    text.parse().map_err(|_| CodecError::invalid("number in a handle", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_handle_of_java_reads_and_writes_back() {
        let text = "0 1795967860996 60000 4 1 broker-a 0 6";
        let handle = ReceiptHandle::parse(text).unwrap();
        assert_eq!(handle.retry, RetryMark::RetryV1);
        assert_eq!((handle.broker_name, handle.queue_id, handle.queue_offset), ("broker-a", 0, Some(6)));
        assert_eq!(handle.to_string(), text);
        let old = "0 1795967860996 60000 999 0 broker-a 3";
        let handle = ReceiptHandle::parse(old).unwrap();
        assert!(handle.is_ordered() && handle.queue_offset.is_none());
        assert_eq!(handle.to_string(), old);
    }

    #[test]
    fn a_receipt_handle_that_lacks_or_garbles_a_part_is_an_error() {
        let whole = "0 1795967860996 60000 4 1 broker-a 0";
        for (at, _) in whole.match_indices(' ') {
            assert!(ReceiptHandle::parse(&whole[..at]).is_err(), "{at}");
        }
        for text in ["", " ", "x 1 2 3 0 b 0", "0 1 2 3 3 b 0", "0 1 2 3 0 b 0 x", "0 1 2 3 0 two words 0"] {
            assert!(ReceiptHandle::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_mark_and_the_stored_topic_agree() {
        for mark in [RetryMark::Normal, RetryMark::RetryV1, RetryMark::RetryV2] {
            let stored = mark.stored_topic("g", "T");
            assert_eq!(RetryMark::of_stored_topic(&stored, "g"), mark, "{stored}");
            assert_eq!(RetryMark::parse(mark.as_str()).unwrap(), mark);
        }
        assert_eq!(RetryMark::of_stored_topic("%RETRY%g", "g"), RetryMark::Normal);
    }

    #[test]
    fn a_recall_handle_of_java_reads_and_writes_back() {
        let text =
            "djEgR29sZFJlY2FsbCBicm9rZXItYSAxNzk1OTY4Mzc2MDAxIDdGMDAwMDAxNDNENTRFMEUyRjJBOTNBNkEyMDAwMDAw";
        let handle = RecallHandle::parse(text).unwrap();
        assert_eq!((handle.topic.as_str(), handle.broker_name.as_str()), ("GoldRecall", "broker-a"));
        assert_eq!(handle.deliver_ms, 1_795_968_376_001);
        assert_eq!(handle.unique_id, "7F00000143D54E0E2F2A93A6A2000000");
        assert_eq!(handle.to_string(), text);
    }

    #[test]
    fn handles_that_are_written_together_are_those_that_are_written_one_by_one() {
        let mut handles = RecallHandles::default();
        let mut wanted = Vec::new();
        for topic in ["T", "To", "Top", "%RETRY%g", "Top"] {
            for (broker_name, deliver_ms) in [("b", 1_795_968_376_001), ("b", 1), ("b2", 1), ("b2", 1)] {
                for id in ["7F00000143D54E0E2F2A93A6A2000000", "x", "", "主题", "ab"] {
                    let place = handles.push(topic, &broker_name.into(), (deliver_ms, id));
                    wanted.push((place, RecallHandle::text(topic, broker_name, (deliver_ms, id))));
                }
            }
        }
        for (place, text) in wanted {
            assert_eq!(handles.get(place).as_bytes(), text.as_bytes());
        }
        handles.clear();
        assert_eq!(handles.push("Top", &"b2".into(), (1, "ab")).start, 0);
    }

    #[test]
    fn a_recall_handle_of_another_form_is_an_error() {
        for plain in ["v2 t b 1 u", "v1 t b 1", "v1 t b 1 u more", "v1 t b x u", ""] {
            assert!(RecallHandle::parse(&base64::encode_url_safe(plain.as_bytes())).is_err(), "{plain}");
        }
        assert!(RecallHandle::parse("not base64!").is_err());
    }
}
