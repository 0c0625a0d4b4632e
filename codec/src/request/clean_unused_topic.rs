//! CLEAN_UNUSED_TOPIC (316): deletes consume queues of topics that are no more.
//!
//! Invariants:
//! - queues of topics that exist stay.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// CLEAN_UNUSED_TOPIC.
pub struct CleanUnusedTopic;

impl Request for CleanUnusedTopic {
    const CODE: i32 = 316;
    const NAME: &'static str = "CLEAN_UNUSED_TOPIC";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
