//! QUERY_CONSUME_TIME_SPAN (303): from when to when the messages of each queue are, and where a group is.
//!
//! Invariants:
//! - the body of the answer is JSON.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

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
