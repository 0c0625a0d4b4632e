//! NOTIFICATION (200054): tells as soon as there is something to pop.
//!
//! Invariants:
//! - nothing is taken.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// What is waited for.
    pub struct NotificationHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        poll_ms: i64 = "pollTime",
        born_ms: i64 = "bornTime",
        order: Option<bool> = "order",
        attempt_id: Option<Text> = "attemptId",
    }
}

header! {
    /// Whether there is something.
    pub struct NotificationReplyHeader {
        has_message: bool = "hasMsg",
        polling_full: Option<bool> = "pollingFull",
    }
}

/// NOTIFICATION.
pub struct Notification;

impl Request for Notification {
    const CODE: i32 = 200_054;
    const NAME: &'static str = "NOTIFICATION";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NotificationHeader;
    type Reply = NotificationReplyHeader;
}
