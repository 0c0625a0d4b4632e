//! END_TRANSACTION (37): a producer commits or rolls back a half message.
//!
//! Invariants:
//! - the offsets are those of the half message, as the answer to its send told them;
//! - Java clients send it one-way;
//! - [`EndView`] is one pass over the fields and copies nothing: it is what a broker reads.

use std::borrow::Cow;

use crate::command::{CommandView, Value};
use crate::error::CodecError;
use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which half message, and what becomes of it.
    pub struct EndTransactionHeader {
        topic: Option<Text> = "topic",
        producer_group: Text = "producerGroup",
        /// Of the half message in its own topic.
        queue_offset: i64 = "tranStateTableOffset",
        log_offset: i64 = "commitLogOffset",
        /// One of the `TRANSACTION_…` values.
        outcome: i32 = "commitOrRollback",
        from_check: Option<bool> = "fromTransactionCheck",
        /// The unique id.
        message_id: Text = "msgId",
        transaction_id: Option<Text> = "transactionId",
    }
}

/// END_TRANSACTION.
pub struct EndTransaction;

impl Request for EndTransaction {
    const CODE: i32 = 37;
    const NAME: &'static str = "END_TRANSACTION";
    const TO: Direction = Direction::ClientToBroker;
    type Header = EndTransactionHeader;
    type Reply = NoHeader;
}

/// What a broker reads of it, nothing copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndView<'a> {
    /// The producer's group.
    pub producer_group: Cow<'a, str>,
    /// Of the half message in its own topic.
    pub queue_offset: i64,
    /// Of the half message in the log.
    pub log_offset: i64,
    /// One of the `TRANSACTION_…` values.
    pub outcome: i32,
    /// Whether it answers a question of the broker.
    pub from_check: bool,
}

impl<'a> EndView<'a> {
    /// Reads the fields of a request.
    ///
    /// # Errors
    /// As to read its [`EndTransactionHeader`].
    pub fn read(view: &CommandView<'a>) -> Result<EndView<'a>, CodecError> {
        let [group, queue_offset, log_offset, outcome, from_check, id] = view.pick(|key| match key {
            b"producerGroup" => Some(0),
            b"tranStateTableOffset" => Some(1),
            b"commitLogOffset" => Some(2),
            b"commitOrRollback" => Some(3),
            b"fromTransactionCheck" => Some(4),
            b"msgId" => Some(5),
            _ => None,
        });
        let required = |value: Option<Value<'a>>, key| value.ok_or(CodecError::Missing { key });
        let number = |value: Option<Value<'a>>, key| {
            required(value.filter(|value| !value.is_empty()), key).and_then(|value| value.to_i64(key))
        };
        let outcome = outcome.filter(|value| !value.is_empty());
        let read = EndView {
            producer_group: required(group, "producerGroup")?.to_cow(),
            queue_offset: number(queue_offset, "tranStateTableOffset")?,
            log_offset: number(log_offset, "commitLogOffset")?,
            outcome: required(outcome, "commitOrRollback")?.to_i32("commitOrRollback")?,
            from_check: from_check.is_some_and(Value::to_bool),
        };
        required(id, "msgId").map(|_| read)
    }
}

impl<'a> From<&'a EndTransactionHeader> for EndView<'a> {
    fn from(header: &'a EndTransactionHeader) -> EndView<'a> {
        EndView {
            producer_group: Cow::Borrowed(&header.producer_group),
            queue_offset: header.queue_offset,
            log_offset: header.log_offset,
            outcome: header.outcome,
            from_check: header.from_check == Some(true),
        }
    }
}

/// Value of `outcome`: not known yet.
pub const TRANSACTION_UNKNOWN: i32 = 0;
/// Value of `outcome`: make the message visible.
pub const TRANSACTION_COMMIT: i32 = 8;
/// Value of `outcome`: drop the message.
pub const TRANSACTION_ROLLBACK: i32 = 12;

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::Header;
    use crate::command::{Command, HeaderForm};
    use crate::frame::take_frame;

    #[test]
    fn a_view_says_what_the_header_says_or_why_there_is_none() {
        let header = EndTransactionHeader {
            topic: Some("T".into()),
            producer_group: "the \"group\"".into(),
            queue_offset: 7,
            log_offset: 1 << 40,
            outcome: TRANSACTION_ROLLBACK,
            from_check: Some(true),
            message_id: "M".into(),
            transaction_id: None,
        };
        let whole = Command::request::<EndTransaction>(&header);
        let mut cases: Vec<Command> = vec![whole.clone()];
        for key in EndTransactionHeader::KEYS {
            for value in [None, Some(""), Some("x")] {
                let mut changed = whole.clone();
                changed.fields = whole.fields.iter().filter(|(name, _)| *name != *key).collect();
                if let Some(value) = value {
                    changed.fields.set(*key, value);
                }
                cases.push(changed);
            }
        }
        for mut command in cases {
            for form in [HeaderForm::Json, HeaderForm::Binary] {
                command.form = form;
                let mut bytes = BytesMut::new();
                command.encode(&mut bytes);
                let frame = take_frame(&mut bytes).unwrap().expect("a whole frame");
                let (view, command) =
                    (CommandView::parse(&frame).unwrap(), Command::decode(frame.clone()).unwrap());
                let header: Result<EndTransactionHeader, _> = command.header();
                let read = EndView::read(&view);
                match &header {
                    Ok(header) => assert_eq!(read, Ok(EndView::from(header))),
                    Err(error) => assert_eq!(read.as_ref(), Err(error)),
                }
            }
        }
    }
}
