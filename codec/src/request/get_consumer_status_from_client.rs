//! GET_CONSUMER_STATUS_FROM_CLIENT (221): how far a client has come in its queues.
//!
//! Invariants:
//! - the body of the answer has object keys.

use crate::header::NoHeader;
use crate::request::{Direction, InvokeBrokerToGetConsumerStatusHeader, Request};

/// GET_CONSUMER_STATUS_FROM_CLIENT.
pub struct GetConsumerStatusFromClient;

impl Request for GetConsumerStatusFromClient {
    const CODE: i32 = 221;
    const NAME: &'static str = "GET_CONSUMER_STATUS_FROM_CLIENT";
    const TO: Direction = Direction::BrokerToClient;
    type Header = InvokeBrokerToGetConsumerStatusHeader;
    type Reply = NoHeader;
}
