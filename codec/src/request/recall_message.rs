//! RECALL_MESSAGE (370): a producer takes a timer message back before it is due.
//!
//! Invariants:
//! - the handle comes from the answer to the send.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which message.
    pub struct RecallMessageHeader {
        producer_group: Option<Text> = "producerGroup",
        topic: Text = "topic",
        recall_handle: Text = "recallHandle",
    }
}

header! {
    /// What was recalled.
    pub struct RecallMessageReplyHeader {
        /// The unique id of the recalled message.
        message_id: Text = "msgId",
    }
}

/// RECALL_MESSAGE.
pub struct RecallMessage;

impl Request for RecallMessage {
    const CODE: i32 = 370;
    const NAME: &'static str = "RECALL_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = RecallMessageHeader;
    type Reply = RecallMessageReplyHeader;
}
