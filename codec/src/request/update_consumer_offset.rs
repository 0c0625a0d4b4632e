//! UPDATE_CONSUMER_OFFSET (15): a group has come this far in a queue; often one-way.
//!
//! Invariants:
//! - a commit may go back only where something asked for that: a reset, a seek, a pull consumer, a tool; one that
//!   merely comes late is ignored (`actors/src/offsets/progress.rs`).

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Group, queue and offset.
    pub struct UpdateConsumerOffsetHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        queue_offset: i64 = "commitOffset",
    }
}

/// UPDATE_CONSUMER_OFFSET.
pub struct UpdateConsumerOffset;

impl Request for UpdateConsumerOffset {
    const CODE: i32 = 15;
    const NAME: &'static str = "UPDATE_CONSUMER_OFFSET";
    const TO: Direction = Direction::ClientToBroker;
    type Header = UpdateConsumerOffsetHeader;
    type Reply = NoHeader;
}
