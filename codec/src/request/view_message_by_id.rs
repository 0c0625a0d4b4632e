//! VIEW_MESSAGE_BY_ID (33): one stored message by its place in the log.
//!
//! Invariants:
//! - the body of the answer is one stored message.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which message.
    pub struct ViewMessageByIdHeader {
        topic: Option<Text> = "topic",
        log_offset: i64 = "offset",
    }
}

/// VIEW_MESSAGE_BY_ID.
pub struct ViewMessageById;

impl Request for ViewMessageById {
    const CODE: i32 = 33;
    const NAME: &'static str = "VIEW_MESSAGE_BY_ID";
    const TO: Direction = Direction::ClientToBroker;
    type Header = ViewMessageByIdHeader;
    type Reply = NoHeader;
}
