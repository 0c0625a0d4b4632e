//! RESET_CONSUMER_CLIENT_OFFSET (220): a client is to go on from other offsets; one-way.
//!
//! Invariants:
//! - the body is a list for C++ clients and a table with object keys for all others.

use crate::header::NoHeader;
use crate::request::{Direction, InvokeBrokerToResetOffsetHeader, Request};

/// RESET_CONSUMER_CLIENT_OFFSET.
pub struct ResetConsumerClientOffset;

impl Request for ResetConsumerClientOffset {
    const CODE: i32 = 220;
    const NAME: &'static str = "RESET_CONSUMER_CLIENT_OFFSET";
    const TO: Direction = Direction::BrokerToClient;
    type Header = InvokeBrokerToResetOffsetHeader;
    type Reply = NoHeader;
}
