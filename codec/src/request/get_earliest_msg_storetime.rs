//! GET_EARLIEST_MSG_STORETIME (32): when the oldest message of a queue was stored.
//!
//! Invariants:
//! - an empty queue answers -1.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which queue.
    pub struct GetEarliestMsgStoretimeHeader {
        topic: Text = "topic",
        queue_id: i32 = "queueId",
    }
}

header! {
    /// The time.
    pub struct GetEarliestMsgStoretimeReplyHeader {
        timestamp_ms: i64 = "timestamp",
    }
}

/// GET_EARLIEST_MSG_STORETIME.
pub struct GetEarliestMsgStoretime;

impl Request for GetEarliestMsgStoretime {
    const CODE: i32 = 32;
    const NAME: &'static str = "GET_EARLIEST_MSG_STORETIME";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetEarliestMsgStoretimeHeader;
    type Reply = GetEarliestMsgStoretimeReplyHeader;
}
