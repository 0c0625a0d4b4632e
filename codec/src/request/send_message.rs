//! SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE (324) and
//! SEND_REPLY_MESSAGE_V2 (325): a producer sends a message, a batch or a reply.
//!
//! Invariants:
//! - 10 and 324 have long keys, the others one-letter keys; the code alone decides which are read;
//! - the header, not the code, says whether the body is a batch: C++ clients send batches as 310;
//! - [`SendView`] is one pass over the fields and copies nothing: it is what a broker reads.

use std::borrow::Cow;

use bytes::BytesMut;

use crate::command::{CommandView, Head, Value, digits_of, escape, is_plain, put_json_frame};
use crate::error::CodecError;
use crate::header::header;
use crate::message::receipt_handle::HandleLetters;
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::version::OUR_VERSION;

header! {
    /// A message without its body, with long keys.
    pub struct SendMessageHeader {
        producer_group: Text = "producerGroup",
        topic: Text = "topic",
        /// Template for a topic that does not exist yet.
        default_topic: Text = "defaultTopic",
        /// Queues that such a topic is to get.
        default_topic_queues: i32 = "defaultTopicQueueNums",
        /// Below 0: the broker chooses.
        queue_id: i32 = "queueId",
        sys_flag: i32 = "sysFlag",
        born_timestamp_ms: i64 = "bornTimestamp",
        flag: i32 = "flag",
        /// As they are stored.
        properties: Option<Text> = "properties",
        /// For retry topics: how often it was consumed in vain.
        reconsume_times: Option<i32> = "reconsumeTimes",
        unit_mode: Option<bool> = "unitMode",
        /// For retry topics: when to give up.
        reconsume_max: Option<i32> = "maxReconsumeTimes",
        is_batch: Option<bool> = "batch",
        broker_name: Option<Text> = "bname",
    }
}

header! {
    /// The same with one-letter keys.
    pub struct SendMessageV2Header {
        producer_group: Text = "a",
        topic: Text = "b",
        default_topic: Text = "c",
        default_topic_queues: i32 = "d",
        queue_id: i32 = "e",
        sys_flag: i32 = "f",
        born_timestamp_ms: i64 = "g",
        flag: i32 = "h",
        properties: Option<Text> = "i",
        reconsume_times: Option<i32> = "j",
        unit_mode: Option<bool> = "k",
        reconsume_max: Option<i32> = "l",
        is_batch: Option<bool> = "m",
        broker_name: Option<Text> = "n",
    }
}

impl From<SendMessageV2Header> for SendMessageHeader {
    fn from(short: SendMessageV2Header) -> SendMessageHeader {
        SendMessageHeader {
            producer_group: short.producer_group,
            topic: short.topic,
            default_topic: short.default_topic,
            default_topic_queues: short.default_topic_queues,
            queue_id: short.queue_id,
            sys_flag: short.sys_flag,
            born_timestamp_ms: short.born_timestamp_ms,
            flag: short.flag,
            properties: short.properties,
            reconsume_times: short.reconsume_times,
            unit_mode: short.unit_mode,
            reconsume_max: short.reconsume_max,
            is_batch: short.is_batch,
            broker_name: short.broker_name,
        }
    }
}

header! {
    /// Where the message was stored.
    pub struct SendMessageReplyHeader {
        /// The offset id; those of a batch are joined by `,`.
        message_id: Text = "msgId",
        queue_id: i32 = "queueId",
        /// Of the first message of a batch.
        queue_offset: i64 = "queueOffset",
        /// The unique id.
        transaction_id: Option<Text> = "transactionId",
        batch_unique_id: Option<Text> = "batchUniqId",
        /// Only for timer messages.
        recall_handle: Option<Text> = "recallHandle",
        region: Option<Text> = "MSG_REGION",
        trace_on: Option<bool> = "TRACE_ON",
    }
}

header! {
    /// What every answer to a send carries, whether it was stored or not.
    pub struct SendAnswerHeader {
        region: Text = "MSG_REGION",
        trace_on: bool = "TRACE_ON",
    }
}

/// SEND_MESSAGE.
pub struct SendMessage;

impl Request for SendMessage {
    const CODE: i32 = 10;
    const NAME: &'static str = "SEND_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = SendMessageHeader;
    type Reply = SendMessageReplyHeader;
}

/// SEND_MESSAGE_V2.
pub struct SendMessageV2;

impl Request for SendMessageV2 {
    const CODE: i32 = 310;
    const NAME: &'static str = "SEND_MESSAGE_V2";
    const TO: Direction = Direction::ClientToBroker;
    type Header = SendMessageV2Header;
    type Reply = SendMessageReplyHeader;
}

/// SEND_BATCH_MESSAGE.
pub struct SendBatchMessage;

impl Request for SendBatchMessage {
    const CODE: i32 = 320;
    const NAME: &'static str = "SEND_BATCH_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = SendMessageV2Header;
    type Reply = SendMessageReplyHeader;
}

/// SEND_REPLY_MESSAGE.
pub struct SendReplyMessage;

impl Request for SendReplyMessage {
    const CODE: i32 = 324;
    const NAME: &'static str = "SEND_REPLY_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = SendMessageHeader;
    type Reply = SendMessageReplyHeader;
}

/// SEND_REPLY_MESSAGE_V2.
pub struct SendReplyMessageV2;

impl Request for SendReplyMessageV2 {
    const CODE: i32 = 325;
    const NAME: &'static str = "SEND_REPLY_MESSAGE_V2";
    const TO: Direction = Direction::ClientToBroker;
    type Header = SendMessageV2Header;
    type Reply = SendMessageReplyHeader;
}

/// A send as its frame says it, nothing copied.
#[derive(Debug, Clone)]
pub struct SendView<'a> {
    /// The producer's group.
    pub producer_group: Cow<'a, str>,
    /// The topic.
    pub topic: Cow<'a, str>,
    /// Template for a topic that does not exist yet.
    pub default_topic: Cow<'a, str>,
    /// Queues that such a topic is to get.
    pub default_topic_queues: i32,
    /// Below 0: the broker chooses.
    pub queue_id: i32,
    /// Compression and transaction bits.
    pub sys_flag: i32,
    /// When the client made it.
    pub born_timestamp_ms: i64,
    /// The application's own flag.
    pub flag: i32,
    /// As they are to be stored; escaped as long as the header was JSON.
    pub properties: Option<Value<'a>>,
    /// For retry topics: how often it was consumed in vain.
    pub reconsume_times: Option<i32>,
    /// Multi-site mode.
    pub unit_mode: bool,
    /// For retry topics: when to give up.
    pub reconsume_max: Option<i32>,
    /// Whether the body is a batch.
    pub is_batch: bool,
}

impl<'a> SendView<'a> {
    /// What a header says that was never written into a frame.
    pub fn of(header: &'a SendMessageV2Header) -> SendView<'a> {
        SendView {
            producer_group: Cow::Borrowed(&header.producer_group),
            topic: Cow::Borrowed(&header.topic),
            default_topic: Cow::Borrowed(&header.default_topic),
            default_topic_queues: header.default_topic_queues,
            queue_id: header.queue_id,
            sys_flag: header.sys_flag,
            born_timestamp_ms: header.born_timestamp_ms,
            flag: header.flag,
            properties: header.properties.as_deref().map(Value::of),
            reconsume_times: header.reconsume_times,
            unit_mode: header.unit_mode == Some(true),
            reconsume_max: header.reconsume_max,
            is_batch: header.is_batch == Some(true),
        }
    }

    /// Reads the fields of any of the five send requests.
    ///
    /// # Errors
    /// [`CodecError::Missing`] for a required key, [`CodecError::Invalid`] for a bad number.
    pub fn read(view: &CommandView<'a>) -> Result<SendView<'a>, CodecError> {
        let is_long = matches!(view.code, SendMessage::CODE | SendReplyMessage::CODE);
        let found: [_; FIELDS] = if is_long { view.pick(place_of_long) } else { view.pick(place_of_short) };
        let [
            group,
            topic,
            default_topic,
            queues,
            queue_id,
            sys_flag,
            born,
            flag,
            properties,
            times,
            unit,
            max,
            batch,
        ] = found;
        Ok(SendView {
            producer_group: required(group, "producerGroup")?.to_cow(),
            topic: required(topic, "topic")?.to_cow(),
            default_topic: required(default_topic, "defaultTopic")?.to_cow(),
            default_topic_queues: number(queues, "defaultTopicQueueNums")?,
            queue_id: number(queue_id, "queueId")?,
            sys_flag: number(sys_flag, "sysFlag")?,
            born_timestamp_ms: required(optional(born), "bornTimestamp")?.to_i64("bornTimestamp")?,
            flag: number(flag, "flag")?,
            properties,
            reconsume_times: optional(times).map(|value| value.to_i32("reconsumeTimes")).transpose()?,
            unit_mode: unit.is_some_and(Value::to_bool),
            reconsume_max: optional(max).map(|value| value.to_i32("maxReconsumeTimes")).transpose()?,
            is_batch: batch.is_some_and(Value::to_bool),
        })
    }
}

/// Fields that count for a broker: `a` to `m`.
const FIELDS: usize = 13;

fn required<'a>(value: Option<Value<'a>>, key: &'static str) -> Result<Value<'a>, CodecError> {
    value.ok_or(CodecError::Missing { key })
}

fn number(value: Option<Value<'_>>, key: &'static str) -> Result<i32, CodecError> {
    required(optional(value), key)?.to_i32(key)
}

/// In the binary form an empty text is an absent number.
fn optional(value: Option<Value<'_>>) -> Option<Value<'_>> {
    value.filter(|value| !value.is_empty())
}

fn place_of_short(key: &[u8]) -> Option<usize> {
    match key {
        [letter] => letter.checked_sub(b'a').map(usize::from),
        _ => None,
    }
}

fn place_of_long(key: &[u8]) -> Option<usize> {
    <SendMessageHeader as crate::header::Header>::KEYS.iter().position(|known| known.as_bytes() == key)
}

/// The answer to a send, written without a map or a copy.
#[derive(Debug, Clone, Copy)]
pub struct SendReply<'a> {
    /// Code, opaque, form and remark.
    pub head: Head<'a>,
    /// Region of the broker.
    pub region: &'a str,
    /// Whether clients may trace.
    pub trace_on: bool,
    /// Where it is; `None` if it was not stored.
    pub stored: Option<StoredAt<'a>>,
}

/// Where a message was stored.
#[derive(Debug, Clone, Copy)]
pub struct StoredAt<'a> {
    /// The offset id.
    pub message_id: &'a str,
    /// The queue that was used.
    pub queue_id: i32,
    /// Its place there.
    pub queue_offset: i64,
    /// The unique id.
    pub transaction_id: Option<&'a str>,
    /// Of an inner batch.
    pub batch_unique_id: Option<&'a str>,
    /// Of a timer message.
    pub recall_handle: Option<&'a str>,
}

/// Where a message was stored that has a unique id and nothing else to tell. Ids are text, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct StoredUsually<'a> {
    /// The offset id.
    pub message_id: &'a [u8],
    /// The queue that was used.
    pub queue_id: i32,
    /// Its place there.
    pub queue_offset: i64,
    /// The unique id.
    pub unique_id: &'a [u8],
    /// By which it can be recalled, if it is a timer.
    pub recall_handle: Option<HandleLetters<'a>>,
}

impl SendReply<'_> {
    /// Appends the whole frame; there is no body.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut writer = self.head.begin(out);
        writer.field("MSG_REGION", self.region).truth("TRACE_ON", self.trace_on);
        if let Some(stored) = &self.stored {
            writer.field("msgId", stored.message_id);
            writer.number("queueId", stored.queue_id).number("queueOffset", stored.queue_offset);
            let rest = [
                ("transactionId", stored.transaction_id),
                ("batchUniqId", stored.batch_unique_id),
                ("recallHandle", stored.recall_handle),
            ];
            for (key, value) in rest {
                if let Some(value) = value {
                    writer.field(key, value);
                }
            }
        }
        writer.finish(0);
    }
}

/// The answers of one broker to messages that it stored, in JSON: what all have in common is encoded once.
#[derive(Debug)]
pub struct StoredReplies {
    /// Up to the message id.
    head: Box<[u8]>,
    /// From behind the unique id to the opaque.
    tail: &'static [u8],
    /// Behind the opaque.
    end: Box<[u8]>,
}

impl StoredReplies {
    /// The answers of a broker of this region.
    pub fn new(region: &str, trace_on: bool) -> StoredReplies {
        let mut head = BytesMut::from(&br#"{"code":0,"extFields":{"MSG_REGION":""#[..]);
        escape(region, &mut head);
        head.extend_from_slice(if trace_on { br#"","TRACE_ON":"true"# } else { br#"","TRACE_ON":"false"# });
        head.extend_from_slice(br#"","msgId":""#);
        let end = format!(r#","serializeTypeCurrentRPC":"JSON","version":{OUR_VERSION}}}"#);
        StoredReplies {
            head: head.as_ref().into(),
            tail: br#""},"flag":1,"language":"JAVA","opaque":"#,
            end: end.into_bytes().into(),
        }
    }

    /// Appends the frame of the answer to the request with this `opaque`, as [`SendReply::encode`] would. False if
    /// the unique id must be escaped: then nothing was written.
    pub fn encode(&self, opaque: i32, stored: &StoredUsually<'_>, out: &mut BytesMut) -> bool {
        let handle = stored.recall_handle.map(HandleLetters::as_bytes);
        if !is_plain(stored.unique_id) {
            return false;
        }
        let (mut queue_id, mut queue_offset, mut number) = Default::default();
        let pieces: [&[u8]; 10] = [
            &self.head,
            stored.message_id,
            br#"","queueId":""#,
            digits_of(stored.queue_id.into(), &mut queue_id),
            br#"","queueOffset":""#,
            digits_of(stored.queue_offset, &mut queue_offset),
            br#"","transactionId":""#,
            stored.unique_id,
            self.tail,
            digits_of(opaque.into(), &mut number),
        ];
        match handle {
            None => put_json_frame(&pieces, &self.end, out),
            Some(handle) => {
                let [front @ .., tail, opaque] = pieces;
                let [one, two, three, four, five, six, seven, eight] = front;
                let key = br#"","recallHandle":""#;
                let pieces = [one, two, three, four, five, six, seven, eight, key, handle, tail, opaque];
                put_json_frame(&pieces, &self.end, out);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, HeaderForm};
    use crate::frame::take_frame;
    use crate::header::Header;
    use crate::message::receipt_handle::RecallHandles;
    use crate::response::ResponseCode;

    fn header() -> SendMessageV2Header {
        SendMessageV2Header {
            producer_group: Text::from("group"),
            topic: Text::from("Topic"),
            default_topic: Text::from("TBW102"),
            default_topic_queues: 4,
            queue_id: -1,
            sys_flag: 1,
            born_timestamp_ms: 1_700_000_000_000,
            flag: -7,
            properties: Some(Text::from("KEYS\u{1}a\u{2}")),
            reconsume_times: None,
            unit_mode: Some(false),
            reconsume_max: Some(16),
            is_batch: Some(true),
            broker_name: Some(Text::from("broker-a")),
        }
    }

    fn frame(command: &Command) -> bytes::Bytes {
        let mut out = BytesMut::new();
        command.encode(&mut out);
        take_frame(&mut out).unwrap().unwrap()
    }

    fn check(command: &Command) {
        let frame = frame(command);
        let view = CommandView::parse(&frame).unwrap();
        check_view(&SendView::read(&view).unwrap());
    }

    #[test]
    fn a_header_that_was_never_written_reads_like_one_that_was() {
        check_view(&SendView::of(&header()));
    }

    fn check_view(send: &SendView<'_>) {
        let wanted = header();
        assert_eq!(send.producer_group, wanted.producer_group.as_str());
        assert_eq!(send.topic, wanted.topic.as_str());
        assert_eq!((send.queue_id, send.sys_flag, send.flag), (-1, 1, -7));
        assert_eq!((send.born_timestamp_ms, send.default_topic_queues), (1_700_000_000_000, 4));
        assert_eq!((send.reconsume_times, send.reconsume_max), (None, Some(16)));
        assert!(send.is_batch && !send.unit_mode);
        let mut properties = Vec::new();
        send.properties.unwrap().write_to(&mut properties);
        assert_eq!(properties, b"KEYS\x01a\x02");
    }

    #[test]
    fn the_view_reads_both_key_forms_in_both_header_forms() {
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let mut short = Command::request::<SendMessageV2>(&header());
            short.form = form;
            check(&short);
            let mut long = Command::request::<SendMessage>(&SendMessageHeader::from(header()));
            long.form = form;
            check(&long);
        }
    }

    #[test]
    fn a_view_refuses_what_the_header_refuses_and_for_the_same_reason() {
        let whole = Command::request::<SendMessage>(&SendMessageHeader::from(header()));
        for key in SendMessageHeader::KEYS {
            for value in [None, Some(""), Some("x")] {
                let mut command = whole.clone();
                command.fields.remove(key);
                if let Some(value) = value {
                    command.fields.put(key, value);
                }
                for form in [HeaderForm::Json, HeaderForm::Binary] {
                    command.form = form;
                    let frame = frame(&command);
                    let known = Command::decode(frame.clone()).unwrap().header::<SendMessageHeader>().err();
                    let read = SendView::read(&CommandView::parse(&frame).unwrap()).err();
                    assert_eq!(read, known, "{key}={value:?} {form:?}");
                }
            }
        }
    }

    #[test]
    fn long_and_short_keys_stand_in_the_same_order() {
        let mut long = crate::fields::Fields::new();
        SendMessageHeader::from(header()).write(&mut long);
        let mut short = crate::fields::Fields::new();
        header().write(&mut short);
        assert!(long.iter().map(|(_, value)| value).eq(short.iter().map(|(_, value)| value)));
        let letters: String = SendMessageV2Header::KEYS.concat();
        assert_eq!(letters, "abcdefghijklmn");
    }

    #[test]
    fn a_short_code_with_long_keys_misses_its_group() {
        let mut command = Command::request::<SendMessage>(&SendMessageHeader::from(header()));
        command.code = SendMessageV2::CODE;
        let frame = frame(&command);
        let read = SendView::read(&CommandView::parse(&frame).unwrap());
        assert_eq!(read.unwrap_err(), CodecError::Missing { key: "producerGroup" });
    }

    #[test]
    fn an_answer_made_of_common_parts_has_the_bytes_of_one_that_is_encoded() {
        let (message_id, unique_id) =
            ("7F00000100002A9F000000000012D687", "7F00000110424E0E2F2A93B109210000");
        let (queue_id, queue_offset) = (3, 1_234_567_890_123);
        let usual = StoredUsually {
            message_id: message_id.as_bytes(),
            queue_id,
            queue_offset,
            unique_id: unique_id.as_bytes(),
            recall_handle: None,
        };
        let plain = StoredAt {
            message_id,
            queue_id,
            queue_offset,
            transaction_id: Some(unique_id),
            batch_unique_id: None,
            recall_handle: None,
        };
        for (region, trace_on, opaque, recall_handle) in [
            ("DefaultRegion", true, 7, None),
            ("a \"b\"", false, i32::MIN, None),
            ("DefaultRegion", true, 0, Some("djEgVCBiIDEgdQ==")),
        ] {
            let mut handles = RecallHandles::default();
            let place = handles.push("T", &"b".into(), (1, "u"));
            let letters = recall_handle.map(|_| handles.get(place));
            let usual = StoredUsually { recall_handle: letters, ..usual };
            let plain = StoredAt { recall_handle, ..plain };
            let (mut made, mut encoded) = (BytesMut::new(), BytesMut::new());
            assert!(StoredReplies::new(region, trace_on).encode(opaque, &usual, &mut made));
            let head = Head::answer(ResponseCode::SUCCESS, opaque, HeaderForm::Json);
            SendReply { head, region, trace_on, stored: Some(plain) }.encode(&mut encoded);
            assert_eq!(made, encoded);
        }
        let mut out = BytesMut::new();
        let rare = StoredUsually { unique_id: b"a\"b", ..usual };
        assert!(!StoredReplies::new("r", true).encode(1, &rare, &mut out) && out.is_empty());
    }

    #[test]
    fn an_answer_reads_back_as_its_typed_header() {
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let stored = StoredAt {
                message_id: "7F0000010000",
                queue_id: 3,
                queue_offset: 9,
                transaction_id: Some("AB"),
                batch_unique_id: None,
                recall_handle: None,
            };
            let head = Head::answer(ResponseCode::SUCCESS, 5, form);
            let reply = SendReply { head, region: "DefaultRegion", trace_on: true, stored: Some(stored) };
            let mut out = BytesMut::new();
            reply.encode(&mut out);
            let answer = Command::decode(take_frame(&mut out).unwrap().unwrap()).unwrap();
            let header: SendMessageReplyHeader = answer.header().unwrap();
            assert_eq!((header.queue_id, header.queue_offset, answer.opaque), (3, 9, 5));
            assert_eq!((header.message_id, header.trace_on), (Text::from("7F0000010000"), Some(true)));
            assert_eq!(header.transaction_id, Some(Text::from("AB")));
        }
    }
}
