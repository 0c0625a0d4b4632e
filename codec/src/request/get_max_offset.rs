//! GET_MAX_OFFSET (30): the offset that the next message of a queue will have.
//!
//! Invariants:
//! - a queue that does not exist answers 0.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which queue.
    pub struct GetMaxOffsetHeader {
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        committed: Option<bool> = "committed",
    }
}

header! {
    /// The offset.
    pub struct GetMaxOffsetReplyHeader {
        queue_offset: i64 = "offset",
    }
}

/// GET_MAX_OFFSET.
pub struct GetMaxOffset;

impl Request for GetMaxOffset {
    const CODE: i32 = 30;
    const NAME: &'static str = "GET_MAX_OFFSET";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetMaxOffsetHeader;
    type Reply = GetMaxOffsetReplyHeader;
}
