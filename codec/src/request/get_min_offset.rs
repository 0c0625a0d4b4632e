//! GET_MIN_OFFSET (31): the offset of the oldest message of a queue.
//!
//! Invariants:
//! - a queue that does not exist answers 0.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which queue.
    pub struct GetMinOffsetHeader {
        topic: Text = "topic",
        queue_id: i32 = "queueId",
    }
}

header! {
    /// The offset.
    pub struct GetMinOffsetReplyHeader {
        queue_offset: i64 = "offset",
    }
}

/// GET_MIN_OFFSET.
pub struct GetMinOffset;

impl Request for GetMinOffset {
    const CODE: i32 = 31;
    const NAME: &'static str = "GET_MIN_OFFSET";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetMinOffsetHeader;
    type Reply = GetMinOffsetReplyHeader;
}
