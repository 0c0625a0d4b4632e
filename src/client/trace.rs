//! Traces: what happened to a message, told in messages of their own (RocketMQ's `TraceDataEncoder`).
//!
//! Invariants:
//! - who traces never waits: what finds no room in the [`collector`] is dropped and counted;
//! - what the broker does not want traced is not, and traces are not traced themselves.
//!
//! A record is its fields with [`FIELD_END`] between them, and [`RECORD_END`]:
//!
//! | kind | fields |
//! |---|---|
//! | `Pub` | time, region, group, topic, id, tag, keys, store host, body bytes, cost ms, type, offset id, success |
//! | `SubBefore` | time, region, group, request id, id, times sent back, keys |
//! | `SubAfter` | request id, id, cost ms, success, keys, context code, time, group |
//! | `EndTransaction` | time, region, group, topic, id, tag, keys, store host, type, transaction id, state, by check |
//! | `Recall` | time, region, group, topic, id, success |

pub(crate) mod collector;

use std::fmt::{Display, Write};

use troupemq_codec::Text;
use troupemq_codec::message::properties::{DELAY, KEYS, TAGS, TIMER_DELAY_MS, TIMER_DELIVER_MS, TRACE_ON};

use super::message::{Message, Received};
use super::transaction::Decision;

/// The topic of traces.
pub(crate) const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Ends a field.
const FIELD_END: char = '\u{1}';
/// Ends a record.
const RECORD_END: char = '\u{2}';
/// What stands for a property that is not there: Java's readers do not bear an empty last field.
const NONE: &str = "null";
/// The region of what names none.
pub(crate) const REGION: &str = "DefaultRegion";

/// What kind of message it is; the numbers are RocketMQ's `MessageType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A plain one.
    Normal = 0,
    /// Half of a transaction.
    Half = 1,
    /// One whose transaction was decided.
    Decided = 2,
    /// One for a later time.
    Delayed = 3,
}

/// A message, as far as traces tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) topic: Text,
    pub(crate) message_id: String,
    pub(crate) tag: Option<String>,
    pub(crate) keys: Option<String>,
    pub(crate) body_bytes: usize,
    pub(crate) kind: Kind,
}

/// One thing that happened.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) subject: Subject,
    /// The region of the broker, if it told.
    pub(crate) region: Option<Text>,
    /// When it began: epoch ms.
    pub(crate) begun_ms: i64,
    /// What it was.
    pub(crate) what: What,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum What {
    /// It was stored.
    Sent { store_host: String, cost_ms: i64, offset_id: String, is_safe: bool },
    /// It was given to the application.
    Delivered { request_id: String, reconsume_times: i32 },
    /// The application said what becomes of it.
    Settled { request_id: String, cost_ms: i64, is_done: bool },
    /// Its transaction was decided.
    Ended { store_host: String, decision: Decision, by_check: bool },
    /// It was taken back.
    Recalled { is_done: bool },
}

impl Subject {
    /// A message of which only topic and id are known.
    pub(crate) fn named(topic: &str, message_id: &str) -> Subject {
        let message_id = message_id.to_owned();
        Subject { topic: topic.into(), message_id, tag: None, keys: None, body_bytes: 0, kind: Kind::Normal }
    }

    /// A message that came from a broker, unless its broker wants no traces of it.
    pub(crate) fn of_received(message: &Received) -> Option<Subject> {
        if message.property(TRACE_ON) == Some("false") {
            return None;
        }
        let text = |name| message.property(name).map(str::to_owned);
        Some(Subject {
            topic: message.topic().into(),
            message_id: message.message_id(),
            tag: text(TAGS),
            keys: text(KEYS),
            body_bytes: message.body().len(),
            kind: Kind::Normal,
        })
    }

    /// A message that is to be sent under an id.
    pub(crate) fn of(message: &Message, message_id: &str, kind: Kind) -> Subject {
        let text = |name| message.property(name).map(str::to_owned);
        let delays = [DELAY, TIMER_DELAY_MS, TIMER_DELIVER_MS];
        let is_delayed = kind == Kind::Normal && delays.iter().any(|name| message.property(name).is_some());
        Subject {
            topic: message.topic.clone(),
            message_id: message_id.to_owned(),
            tag: text(TAGS),
            keys: text(KEYS),
            body_bytes: message.body.len(),
            kind: if is_delayed { Kind::Delayed } else { kind },
        }
    }
}

impl Trace {
    /// Writes its record.
    pub(crate) fn encode(&self, group: &str, out: &mut String) {
        let subject = &self.subject;
        let region = &self.region.as_deref().unwrap_or(REGION);
        let (topic, id, time) = (&subject.topic, &subject.message_id, &self.begun_ms);
        let tag = subject.tag.as_deref().unwrap_or(NONE);
        let keys = subject.keys.as_deref().unwrap_or(NONE);
        let kind = subject.kind as i32;
        match &self.what {
            What::Sent { store_host, cost_ms, offset_id, is_safe } => put(
                out,
                "Pub",
                &[
                    time,
                    region,
                    &group,
                    topic,
                    id,
                    &tag,
                    &keys,
                    store_host,
                    &subject.body_bytes,
                    cost_ms,
                    &kind,
                    offset_id,
                    is_safe,
                ],
            ),
            What::Delivered { request_id, reconsume_times } => {
                put(out, "SubBefore", &[time, region, &group, request_id, id, reconsume_times, &keys]);
            }
            What::Settled { request_id, cost_ms, is_done } => {
                // RocketMQ's `ConsumeReturnType`: success or failed.
                let code = if *is_done { 0 } else { 4 };
                put(out, "SubAfter", &[request_id, id, cost_ms, is_done, &keys, &code, time, &group]);
            }
            What::Ended { store_host, decision, by_check } => {
                let state = match decision {
                    Decision::Commit => "COMMIT_MESSAGE",
                    Decision::Rollback => "ROLLBACK_MESSAGE",
                    Decision::Unknown => "UNKNOW",
                };
                put(
                    out,
                    "EndTransaction",
                    &[time, region, &group, topic, id, &tag, &keys, store_host, &kind, id, &state, by_check],
                );
            }
            What::Recalled { is_done } => put(out, "Recall", &[time, region, &group, topic, id, is_done]),
        }
    }

    /// By what the trace can be found: the id of the message and its keys.
    pub(crate) fn found_by(&self) -> impl Iterator<Item = &str> {
        let keys = self.subject.keys.iter().flat_map(|keys| keys.split(' '));
        [self.subject.message_id.as_str()].into_iter().chain(keys).filter(|key| !key.is_empty())
    }
}

fn put(out: &mut String, kind: &str, fields: &[&dyn Display]) {
    out.push_str(kind);
    for field in fields {
        write!(out, "{FIELD_END}{field}").expect("a string takes everything");
    }
    out.push(RECORD_END);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        let message = Message::new("FrameTrace531", "trace!").tag("TagA").key("tracekey");
        Subject::of(&message, "7F00000107CD4E0E2F2A939CD42A0000", Kind::Normal)
    }

    fn encoded(begun_ms: i64, group: &str, what: What) -> String {
        let trace = Trace { subject: subject(), region: None, begun_ms, what };
        let mut out = String::new();
        trace.encode(group, &mut out);
        out
    }

    /// The bodies are those of the conversation `trace-531` of the Java client.
    #[test]
    fn records_are_those_of_the_java_client() {
        let sent = What::Sent {
            store_host: "127.0.0.1:10911".to_owned(),
            cost_ms: 24,
            offset_id: "7F00000100002A9F000000000000B3AA".to_owned(),
            is_safe: true,
        };
        let golden = "Pub\u{1}1795967728683\u{1}DefaultRegion\u{1}trace_531\u{1}FrameTrace531\u{1}\
            7F00000107CD4E0E2F2A939CD42A0000\u{1}TagA\u{1}tracekey\u{1}127.0.0.1:10911\u{1}6\u{1}24\u{1}0\u{1}\
            7F00000100002A9F000000000000B3AA\u{1}true\u{2}";
        assert_eq!(encoded(1_795_967_728_683, "trace_531", sent), golden);

        let request_id = "7F00000107CD4E0E2F2A939CDA9B0002".to_owned();
        let delivered = What::Delivered { request_id: request_id.clone(), reconsume_times: 0 };
        let settled = What::Settled { request_id, cost_ms: 0, is_done: true };
        let (time, group) = (1_795_967_730_331, "trace_531_c");
        let golden = "SubBefore\u{1}1795967730331\u{1}DefaultRegion\u{1}trace_531_c\u{1}\
            7F00000107CD4E0E2F2A939CDA9B0002\u{1}7F00000107CD4E0E2F2A939CD42A0000\u{1}0\u{1}tracekey\u{2}\
            SubAfter\u{1}7F00000107CD4E0E2F2A939CDA9B0002\u{1}7F00000107CD4E0E2F2A939CD42A0000\u{1}0\u{1}true\u{1}\
            tracekey\u{1}0\u{1}1795967730331\u{1}trace_531_c\u{2}";
        assert_eq!(encoded(time, group, delivered) + &encoded(time, group, settled), golden);
    }

    #[test]
    fn what_is_not_there_is_written_so_that_java_can_read_it() {
        let plain = Subject::of(&Message::new("T", "x").delay_level(1), "ID", Kind::Normal);
        assert_eq!(plain.kind, Kind::Delayed);
        let what = What::Delivered { request_id: "R".to_owned(), reconsume_times: 2 };
        let trace = Trace { subject: plain, region: Some("r".into()), begun_ms: 1, what };
        let mut out = String::new();
        trace.encode("g", &mut out);
        assert_eq!(out, "SubBefore\u{1}1\u{1}r\u{1}g\u{1}R\u{1}ID\u{1}2\u{1}null\u{2}");
        assert_eq!(trace.found_by().collect::<Vec<_>>(), ["ID"]);
    }

    #[test]
    fn decisions_and_recalls_have_records_too() {
        let ended =
            What::Ended { store_host: "h:1".to_owned(), decision: Decision::Rollback, by_check: false };
        let expected = "EndTransaction\u{1}5\u{1}DefaultRegion\u{1}g\u{1}FrameTrace531\u{1}\
            7F00000107CD4E0E2F2A939CD42A0000\u{1}TagA\u{1}tracekey\u{1}h:1\u{1}0\u{1}\
            7F00000107CD4E0E2F2A939CD42A0000\u{1}ROLLBACK_MESSAGE\u{1}false\u{2}";
        assert_eq!(encoded(5, "g", ended), expected);
        let recalled = encoded(5, "g", What::Recalled { is_done: true });
        assert!(
            recalled.starts_with("Recall\u{1}5\u{1}") && recalled.ends_with("\u{1}true\u{2}"),
            "{recalled}"
        );
    }
}
