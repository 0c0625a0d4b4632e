//! QUERY_CONSUME_TIME_SPAN (303): from when to when the messages of each queue are, and where a group is.
//!
//! Invariants:
//! - the body of the answer is a [`ConsumeTimeSpans`].

use serde::{Deserialize, Serialize};

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::MessageQueue;

header! {
    /// Which topic and group.
    pub struct QueryConsumeTimeSpanHeader {
        topic: Text = "topic",
        group: Text = "group",
    }
}

/// QUERY_CONSUME_TIME_SPAN.
pub struct QueryConsumeTimeSpan;

impl Request for QueryConsumeTimeSpan {
    const CODE: i32 = 303;
    const NAME: &'static str = "QUERY_CONSUME_TIME_SPAN";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QueryConsumeTimeSpanHeader;
    type Reply = NoHeader;
}

/// From when to when the messages of each queue are, and where the group is (`QueryConsumeTimeSpanBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeTimeSpans {
    /// One for each queue.
    pub consume_time_span_set: Vec<QueueTimeSpan>,
}

/// Of one queue; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueTimeSpan {
    /// When the message that was consumed last was stored; the first, if none was consumed.
    pub consume_time_stamp: i64,
    /// How long ago the message that is consumed next was stored; 0 if all is consumed.
    pub delay_time: i64,
    /// When the last message was stored.
    pub max_time_stamp: i64,
    /// The queue.
    pub message_queue: MessageQueue,
    /// When the first message was stored.
    pub min_time_stamp: i64,
}
