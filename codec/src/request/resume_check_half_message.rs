//! RESUME_CHECK_HALF_MESSAGE (323): a half message that was given up is checked again.
//!
//! Invariants:
//! - the id is an offset id.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which message.
    pub struct ResumeCheckHalfMessageHeader {
        topic: Option<Text> = "topic",
        message_id: Option<Text> = "msgId",
    }
}

/// RESUME_CHECK_HALF_MESSAGE.
pub struct ResumeCheckHalfMessage;

impl Request for ResumeCheckHalfMessage {
    const CODE: i32 = 323;
    const NAME: &'static str = "RESUME_CHECK_HALF_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = ResumeCheckHalfMessageHeader;
    type Reply = NoHeader;
}
