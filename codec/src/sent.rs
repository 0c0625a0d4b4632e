//! What a broker answers to a send, as who sent wants to know it.
//!
//! Invariants:
//! - a code that says "stored" carries where; any other carries why not;
//! - reading one from a frame copies what it keeps: nothing holds the frame.
//!
//! Contents: `mold` reads answers that are nearly alike.

mod mold;

use std::borrow::Cow;

use crate::command::{Command, CommandView, Value};
use crate::error::CodecError;
use crate::request::SendMessageReplyHeader;
use crate::response::ResponseCode;
use crate::text::Text;

pub use mold::Molds;

/// The answer to a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// It is stored; the code says how safely.
    Stored(ResponseCode, Stored),
    /// It is not.
    Refused {
        /// Why, for programs.
        code: ResponseCode,
        /// Why, for humans.
        remark: String,
    },
}

/// Where a message, or the first of a batch, was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The offset id; those of a batch are joined by `,`.
    pub message_id: String,
    /// The queue.
    pub queue_id: i32,
    /// The position in the queue, in messages.
    pub queue_offset: i64,
    /// By which a message for a later time can be recalled.
    pub recall_handle: Option<String>,
    /// The region of the broker, unless it wants no traces.
    pub region: Option<Text>,
}

impl Sent {
    /// Whether a message with this answer is stored.
    pub fn is_stored(code: ResponseCode) -> bool {
        matches!(
            code,
            ResponseCode::SUCCESS
                | ResponseCode::FLUSH_DISK_TIMEOUT
                | ResponseCode::FLUSH_SLAVE_TIMEOUT
                | ResponseCode::SLAVE_NOT_AVAILABLE
        )
    }

    /// Reads an answer in one pass over its fields. A broker that names no region has `home`.
    ///
    /// # Errors
    /// [`CodecError::Missing`] and [`CodecError::Invalid`] for a place that is none.
    pub fn read(view: &CommandView<'_>, home: &Text) -> Result<Sent, CodecError> {
        let code = ResponseCode(view.code);
        if !Sent::is_stored(code) {
            let remark = view.remark().map(Cow::into_owned).unwrap_or_default();
            return Ok(Sent::Refused { code, remark });
        }
        let [id, queue, offset, handle, region, traced] = view.pick(place_of);
        let string = |value: Value<'_>| value.to_cow().into_owned();
        let region = || region.map_or_else(|| home.clone(), |region| home_or(region, home));
        let stored = Stored {
            message_id: id.map(string).ok_or(CodecError::Missing { key: "msgId" })?,
            queue_id: wanted(queue, "queueId")?.to_i32("queueId")?,
            queue_offset: wanted(offset, "queueOffset")?.to_i64("queueOffset")?,
            recall_handle: handle.map(string),
            region: traced.filter(|value| !value.is_empty()).is_none_or(Value::to_bool).then(region),
        };
        Ok(Sent::Stored(code, stored))
    }

    /// The same of an answer that was read before.
    ///
    /// # Errors
    /// As [`Sent::read`].
    pub fn of(answer: &Command, home: &Text) -> Result<Sent, CodecError> {
        let code = answer.response_code();
        if !Sent::is_stored(code) {
            let remark = answer.remark.as_ref().map(ToString::to_string).unwrap_or_default();
            return Ok(Sent::Refused { code, remark });
        }
        let reply: SendMessageReplyHeader = answer.header()?;
        let stored = Stored {
            message_id: reply.message_id.into(),
            queue_id: reply.queue_id,
            queue_offset: reply.queue_offset,
            recall_handle: reply.recall_handle.map(String::from),
            region: (reply.trace_on != Some(false)).then(|| reply.region.unwrap_or_else(|| home.clone())),
        };
        Ok(Sent::Stored(code, stored))
    }
}

/// A region's name; the one that nearly all brokers have is not made anew for each answer.
fn home_or(region: Value<'_>, home: &Text) -> Text {
    if region.is(home) { home.clone() } else { Text::from(region.to_cow()) }
}

/// In the binary form an empty text is an absent number.
fn wanted<'a>(value: Option<Value<'a>>, key: &'static str) -> Result<Value<'a>, CodecError> {
    value.filter(|value| !value.is_empty()).ok_or(CodecError::Missing { key })
}

fn place_of(key: &[u8]) -> Option<usize> {
    let known: [&[u8]; 6] =
        [b"msgId", b"queueId", b"queueOffset", b"recallHandle", b"MSG_REGION", b"TRACE_ON"];
    known.iter().position(|known| *known == key)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::command::HeaderForm;
    use crate::frame::take_frame;

    const HOME: Text = Text::from_static("DefaultRegion");

    fn answer(code: ResponseCode, fields: &[(&str, &str)]) -> Command {
        let mut answer = Command::response(code).with_remark("why \"so\"");
        answer.fields = fields.iter().copied().collect();
        answer
    }

    /// Reads an answer in both ways and both forms, which must agree.
    fn read(answer: &Command) -> Result<Sent, CodecError> {
        let known = Sent::of(answer, &HOME);
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let mut out = BytesMut::new();
            Command { form, ..answer.clone() }.encode(&mut out);
            let frame = take_frame(&mut out).unwrap().unwrap();
            let seen = Sent::read(&CommandView::parse(&frame).unwrap(), &HOME);
            assert_eq!(seen, known, "{form:?}");
        }
        known
    }

    #[test]
    fn an_answer_reads_alike_from_its_frame_and_from_its_command() {
        let place = [("msgId", "7F00,7F01"), ("queueId", "3"), ("queueOffset", "9")];
        let stored = Stored {
            message_id: "7F00,7F01".to_owned(),
            queue_id: 3,
            queue_offset: 9,
            recall_handle: None,
            region: Some(HOME),
        };
        let codes =
            [ResponseCode::SUCCESS, ResponseCode::FLUSH_DISK_TIMEOUT, ResponseCode::SLAVE_NOT_AVAILABLE];
        for code in codes {
            assert_eq!(read(&answer(code, &place)), Ok(Sent::Stored(code, stored.clone())));
        }
        for (key, value, region) in [
            ("MSG_REGION", "DefaultRegion", Some(HOME)),
            ("MSG_REGION", "a \"b\"", Some(Text::from("a \"b\""))),
            ("TRACE_ON", "true", Some(HOME)),
            ("TRACE_ON", "", Some(HOME)),
            ("TRACE_ON", "false", None),
        ] {
            let fields = [&place[..], &[(key, value)]].concat();
            let wanted = Stored { region, ..stored.clone() };
            let sent = read(&answer(ResponseCode::SUCCESS, &fields));
            assert_eq!(sent, Ok(Sent::Stored(ResponseCode::SUCCESS, wanted)), "{key}={value}");
        }
        let fields = [&place[..], &[("recallHandle", "h")]].concat();
        let Ok(Sent::Stored(_, sent)) = read(&answer(ResponseCode::SUCCESS, &fields)) else { panic!() };
        assert_eq!(sent.recall_handle.as_deref(), Some("h"));
    }

    #[test]
    fn a_refusal_says_why_and_a_place_that_is_none_is_an_error() {
        let (code, remark) = (ResponseCode::MESSAGE_ILLEGAL, "why \"so\"".to_owned());
        assert_eq!(read(&answer(code, &[])), Ok(Sent::Refused { code, remark }));
        let place = [("msgId", "7F00"), ("queueId", "3"), ("queueOffset", "9")];
        for at in 0..place.len() {
            let mut fields = place.to_vec();
            let (key, _) = fields.remove(at);
            let error = read(&answer(ResponseCode::SUCCESS, &fields)).unwrap_err();
            assert!(matches!(error, CodecError::Missing { key: missed } if missed == key), "{error}");
        }
        assert!(read(&answer(ResponseCode::SUCCESS, &[("msgId", ""), ("queueId", "x"), place[2]])).is_err());
    }
}
