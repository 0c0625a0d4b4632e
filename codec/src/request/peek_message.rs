//! PEEK_MESSAGE (200052): looks at what a pop would take.
//!
//! Invariants:
//! - nothing is hidden.

use crate::header::header;
use crate::request::{Direction, PopMessageReplyHeader, Request};
use crate::text::Text;

header! {
    /// Where to look.
    pub struct PeekMessageHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        messages_max: i32 = "maxMsgNums",
    }
}

/// PEEK_MESSAGE.
pub struct PeekMessage;

impl Request for PeekMessage {
    const CODE: i32 = 200_052;
    const NAME: &'static str = "PEEK_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = PeekMessageHeader;
    type Reply = PopMessageReplyHeader;
}
