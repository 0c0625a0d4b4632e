//! POLLING_INFO (200055): how many pops wait for a queue.
//!
//! Invariants:
//! - the queue id -1 is a queue of its own here.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which queue.
    pub struct PollingInfoHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
    }
}

header! {
    /// How many.
    pub struct PollingInfoReplyHeader {
        waiting: i32 = "pollingNum",
    }
}

/// POLLING_INFO.
pub struct PollingInfo;

impl Request for PollingInfo {
    const CODE: i32 = 200_055;
    const NAME: &'static str = "POLLING_INFO";
    const TO: Direction = Direction::ClientToBroker;
    type Header = PollingInfoHeader;
    type Reply = PollingInfoReplyHeader;
}
