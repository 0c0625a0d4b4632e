//! BATCH_ACK_MESSAGE (200151): several popped messages are done.
//!
//! Invariants:
//! - the header means nothing, the body is all.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// BATCH_ACK_MESSAGE.
pub struct BatchAckMessage;

impl Request for BatchAckMessage {
    const CODE: i32 = 200_151;
    const NAME: &'static str = "BATCH_ACK_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
