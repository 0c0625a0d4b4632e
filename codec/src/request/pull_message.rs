//! PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): a consumer reads a queue from an offset on.
//!
//! Invariants:
//! - both codes have the same header; the answer's body is stored messages back to back;
//! - the four offsets of the answer stand in it for the codes 0, 19, 20 and 21.

use std::borrow::Cow;

use bytes::BytesMut;

use crate::command::{CommandView, Head, HeaderForm, Value, digits_of};
use crate::error::CodecError;
use crate::header::{Header, header};
use crate::request::{Direction, Request};
use crate::text::Text;

/// Bit of `sys_flag`: `commit_offset` is to be committed.
pub const PULL_COMMITS_OFFSET: i32 = 1;
/// Bit of `sys_flag`: the broker may hold the request until something arrives.
pub const PULL_SUSPENDS: i32 = 1 << 1;
/// Bit of `sys_flag`: the request carries its subscription.
pub const PULL_HAS_SUBSCRIPTION: i32 = 1 << 2;
/// Bit of `sys_flag`: the filter is a class, which no broker supports any more.
pub const PULL_FILTERS_BY_CLASS: i32 = 1 << 3;
/// Bit of `sys_flag`: the consumer assigns queues to itself.
pub const PULL_IS_LITE: i32 = 1 << 4;

header! {
    /// What to read, and how long the broker may hold the request.
    pub struct PullMessageHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        /// First offset wanted.
        queue_offset: i64 = "queueOffset",
        /// How many messages are wished for.
        messages_max: i32 = "maxMsgNums",
        /// The `PULL_…` bits.
        sys_flag: i32 = "sysFlag",
        /// Offset to commit, if the flag says so.
        commit_offset: i64 = "commitOffset",
        suspend_timeout_ms: i64 = "suspendTimeoutMillis",
        subscription: Option<Text> = "subscription",
        /// Version of the subscription, a time in milliseconds.
        subscription_version: i64 = "subVersion",
        /// `TAG` if absent, or `SQL92`.
        expression_type: Option<Text> = "expressionType",
        bytes_max: Option<i32> = "maxMsgBytes",
        /// Who asks: -1 a client itself; through Java's proxy 0 in order, 1 of a broadcast, 2 as a stream.
        request_source: Option<i32> = "requestSource",
        /// Whom a proxy asks for, of a broadcast.
        proxy_client_id: Option<Text> = "proxyFrowardClientId",
    }
}

header! {
    /// Where to go on.
    pub struct PullMessageReplyHeader {
        /// Broker to pull from next time, 0 the master.
        suggested_broker_id: i64 = "suggestWhichBrokerId",
        next_offset: i64 = "nextBeginOffset",
        min_offset: i64 = "minOffset",
        max_offset: i64 = "maxOffset",
        offset_delta: Option<i64> = "offsetDelta",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
        /// With NO_PERMISSION: what forbids it.
        forbidden_type: Option<i32> = "forbiddenType",
    }
}

/// PULL_MESSAGE.
pub struct PullMessage;

impl Request for PullMessage {
    const CODE: i32 = 11;
    const NAME: &'static str = "PULL_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = PullMessageHeader;
    type Reply = PullMessageReplyHeader;
}

/// LITE_PULL_MESSAGE.
pub struct LitePullMessage;

impl Request for LitePullMessage {
    const CODE: i32 = 361;
    const NAME: &'static str = "LITE_PULL_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = PullMessageHeader;
    type Reply = PullMessageReplyHeader;
}

/// A pull as its frame says it, nothing copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullView<'a> {
    /// The consumer's group.
    pub group: Cow<'a, str>,
    /// The topic.
    pub topic: Cow<'a, str>,
    /// The queue.
    pub queue_id: i32,
    /// First offset wanted.
    pub queue_offset: i64,
    /// How many messages are wished for.
    pub messages_max: i32,
    /// The `PULL_…` bits.
    pub sys_flag: i32,
    /// Offset to commit, if the flag says so.
    pub commit_offset: i64,
    /// How long the broker may hold the request.
    pub suspend_timeout_ms: i64,
    /// The subscription, if the flag says so.
    pub subscription: Option<Cow<'a, str>>,
    /// Version of the subscription, a time in milliseconds.
    pub subscription_version: i64,
    /// `TAG` if absent, or `SQL92`.
    pub expression_type: Option<Cow<'a, str>>,
    /// Who asks, as in [`PullMessageHeader`]; our broker treats all alike.
    pub request_source: Option<i32>,
}

impl<'a> PullView<'a> {
    /// Reads the fields of a pull in one pass.
    ///
    /// # Errors
    /// [`CodecError::Missing`] for a required key, [`CodecError::Invalid`] for a bad number.
    pub fn read(view: &CommandView<'a>) -> Result<PullView<'a>, CodecError> {
        let found = view.pick::<FIELDS>(|key| Some(place_of(key)));
        let found = found.map(|value| value.filter(|value| !value.is_empty()));
        let required = |place: usize| {
            let key = PullMessageHeader::KEYS.get(place).copied().unwrap_or_default();
            let value = found.get(place).copied().flatten();
            value.map(|value| (value, key)).ok_or(CodecError::Missing { key })
        };
        let int = |place| required(place).and_then(|(value, key)| value.to_i32(key));
        let long = |place| required(place).and_then(|(value, key)| value.to_i64(key));
        let [.., subscription, _, expression_type, _, request_source, _] = found;
        Ok(PullView {
            group: required(0)?.0.to_cow(),
            topic: required(1)?.0.to_cow(),
            queue_id: int(2)?,
            queue_offset: long(3)?,
            messages_max: int(4)?,
            sys_flag: int(5)?,
            commit_offset: long(6)?,
            suspend_timeout_ms: long(7)?,
            subscription: subscription.map(Value::to_cow),
            subscription_version: long(9)?,
            expression_type: expression_type.map(Value::to_cow),
            request_source: request_source.map(|value| value.to_i32("requestSource")).transpose()?,
        })
    }
}

impl PullMessageHeader {
    /// The same as a view of it.
    pub fn view(&self) -> PullView<'_> {
        PullView {
            group: Cow::Borrowed(&self.group),
            topic: Cow::Borrowed(&self.topic),
            queue_id: self.queue_id,
            queue_offset: self.queue_offset,
            messages_max: self.messages_max,
            sys_flag: self.sys_flag,
            commit_offset: self.commit_offset,
            suspend_timeout_ms: self.suspend_timeout_ms,
            subscription: self.subscription.as_deref().map(Cow::Borrowed),
            subscription_version: self.subscription_version,
            expression_type: self.expression_type.as_deref().map(Cow::Borrowed),
            request_source: self.request_source,
        }
    }
}

/// Which field of the header a key is; a comparison of lengths first, unlike a search of the list.
fn place_of(key: &[u8]) -> usize {
    match key {
        b"consumerGroup" => 0,
        b"topic" => 1,
        b"queueId" => 2,
        b"queueOffset" => 3,
        b"maxMsgNums" => 4,
        b"sysFlag" => 5,
        b"commitOffset" => 6,
        b"suspendTimeoutMillis" => 7,
        b"subscription" => 8,
        b"subVersion" => 9,
        b"expressionType" => 10,
        b"maxMsgBytes" => 11,
        b"requestSource" => 12,
        b"proxyFrowardClientId" => 13,
        _ => FIELDS,
    }
}

/// Fields of the header.
const FIELDS: usize = PullMessageHeader::KEYS.len();

impl PullMessageReplyHeader {
    /// Appends the frame up to its body, without a map; `body_len` bytes must follow.
    pub fn encode_head(&self, head: Head<'_>, body_len: usize, out: &mut BytesMut) {
        if let (None, None, Some(topic_flag), Some(group_flag)) =
            (self.offset_delta, self.forbidden_type, self.topic_sys_flag, self.group_sys_flag)
            && head.form == HeaderForm::Json
        {
            return self.encode_usual_head(head, (topic_flag, group_flag), body_len, out);
        }
        let mut writer = head.begin(out);
        writer.number("suggestWhichBrokerId", self.suggested_broker_id);
        writer.number("nextBeginOffset", self.next_offset);
        writer.number("minOffset", self.min_offset).number("maxOffset", self.max_offset);
        if let Some(delta) = self.offset_delta {
            writer.number("offsetDelta", delta);
        }
        let rest = [
            ("topicSysFlag", self.topic_sys_flag),
            ("groupSysFlag", self.group_sys_flag),
            ("forbiddenType", self.forbidden_type),
        ];
        for (key, value) in rest {
            if let Some(value) = value {
                writer.number(key, value);
            }
        }
        writer.finish(body_len);
    }

    /// The same for the fields that an answer has which is no refusal: as pieces, in one go.
    fn encode_usual_head(
        &self,
        head: Head<'_>,
        (topic_flag, group_flag): (i32, i32),
        body_len: usize,
        out: &mut BytesMut,
    ) {
        let (mut broker, mut next, mut min, mut max, mut topic, mut group) = Default::default();
        let fields: [&[u8]; 13] = [
            br#"{"suggestWhichBrokerId":""#,
            digits_of(self.suggested_broker_id, &mut broker),
            br#"","nextBeginOffset":""#,
            digits_of(self.next_offset, &mut next),
            br#"","minOffset":""#,
            digits_of(self.min_offset, &mut min),
            br#"","maxOffset":""#,
            digits_of(self.max_offset, &mut max),
            br#"","topicSysFlag":""#,
            digits_of(topic_flag.into(), &mut topic),
            br#"","groupSysFlag":""#,
            digits_of(group_flag.into(), &mut group),
            br#""}"#,
        ];
        head.put_json(&fields, body_len, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, HeaderForm};
    use crate::frame::take_frame;
    use crate::response::ResponseCode;

    fn header() -> PullMessageHeader {
        PullMessageHeader {
            group: Text::from("g"),
            topic: Text::from("T"),
            queue_id: 3,
            queue_offset: 9,
            messages_max: 32,
            sys_flag: PULL_SUSPENDS | PULL_HAS_SUBSCRIPTION,
            commit_offset: 8,
            suspend_timeout_ms: 15_000,
            subscription: Some(Text::from("a \"b\"")),
            subscription_version: 1_700_000_000_000,
            expression_type: Some(Text::from("SQL92")),
            request_source: Some(-1),
            ..PullMessageHeader::default()
        }
    }

    #[test]
    fn places_follow_the_header() {
        for (place, key) in PullMessageHeader::KEYS.iter().enumerate() {
            assert_eq!(place_of(key.as_bytes()), place, "{key}");
        }
        assert_eq!(place_of(b"bname"), FIELDS);
    }

    #[test]
    fn the_view_reads_both_header_forms() {
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let mut command = Command::request::<PullMessage>(&header());
            command.form = form;
            let mut out = BytesMut::new();
            command.encode(&mut out);
            let frame = take_frame(&mut out).unwrap().unwrap();
            let pull = PullView::read(&CommandView::parse(&frame).unwrap()).unwrap();
            assert_eq!((pull.group.as_ref(), pull.topic.as_ref(), pull.queue_id), ("g", "T", 3));
            assert_eq!((pull.queue_offset, pull.messages_max, pull.sys_flag), (9, 32, 6));
            assert_eq!((pull.commit_offset, pull.suspend_timeout_ms), (8, 15_000));
            assert_eq!(pull, header().view());
            assert_eq!(pull.subscription.unwrap(), "a \"b\"");
            assert_eq!(pull.subscription_version, 1_700_000_000_000);
            assert_eq!(pull.expression_type.unwrap(), "SQL92");
            assert_eq!(pull.request_source, Some(-1));
        }
    }

    #[test]
    fn the_short_way_to_write_an_answer_gives_the_same_fields() {
        let header = PullMessageReplyHeader {
            next_offset: 5,
            max_offset: 7,
            topic_sys_flag: Some(0),
            group_sys_flag: Some(0),
            ..PullMessageReplyHeader::default()
        };
        let refusal = PullMessageReplyHeader { forbidden_type: Some(1), ..header.clone() };
        let forms = [HeaderForm::Json, HeaderForm::Binary];
        let remarks = [None, Some("FOUND"), Some("a \"b\"")];
        for ((header, form), remark) in [header, refusal]
            .iter()
            .flat_map(|header| forms.map(|form| (header, form)))
            .zip(remarks.iter().cycle())
        {
            let (mut short, mut long) = (BytesMut::from(&b"before"[..]), BytesMut::from(&b"before"[..]));
            let head = Head { remark: *remark, ..Head::answer(ResponseCode::SUCCESS, -7, form) };
            header.encode_head(head, 3, &mut short);
            let mut command = Command::response(ResponseCode::SUCCESS).with_header(header);
            (command.opaque, command.form, command.remark) = (-7, form, remark.map(Text::from));
            command.encode_head(3, &mut long);
            assert_eq!(short, long);
        }
    }
}
