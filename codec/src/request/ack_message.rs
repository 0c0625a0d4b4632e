//! ACK_MESSAGE (200051): a popped message is done.
//!
//! Invariants:
//! - the topic of a retried message is the retry topic.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which message.
    pub struct AckMessageHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        /// The handle that came with the message.
        extra_info: Text = "extraInfo",
        queue_offset: i64 = "offset",
    }
}

/// ACK_MESSAGE.
pub struct AckMessage;

impl Request for AckMessage {
    const CODE: i32 = 200_051;
    const NAME: &'static str = "ACK_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AckMessageHeader;
    type Reply = NoHeader;
}
