//! CHANGE_MESSAGE_INVISIBLETIME (200053): a popped message stays hidden for longer, or less long.
//!
//! Invariants:
//! - the client makes its new handle from the answer.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which message, and how long.
    pub struct ChangeMessageInvisibletimeHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        /// The handle that came with the message.
        extra_info: Text = "extraInfo",
        queue_offset: i64 = "offset",
        invisible_ms: i64 = "invisibleTime",
    }
}

header! {
    /// What the new handle is made of.
    pub struct ChangeMessageInvisibletimeReplyHeader {
        pop_ms: i64 = "popTime",
        invisible_ms: i64 = "invisibleTime",
        revive_queue_id: i32 = "reviveQid",
    }
}

/// CHANGE_MESSAGE_INVISIBLETIME.
pub struct ChangeMessageInvisibletime;

impl Request for ChangeMessageInvisibletime {
    const CODE: i32 = 200_053;
    const NAME: &'static str = "CHANGE_MESSAGE_INVISIBLETIME";
    const TO: Direction = Direction::ClientToBroker;
    type Header = ChangeMessageInvisibletimeHeader;
    type Reply = ChangeMessageInvisibletimeReplyHeader;
}
