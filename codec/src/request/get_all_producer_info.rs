//! GET_ALL_PRODUCER_INFO (328): all producers of a broker.
//!
//! Invariants:
//! - the body of the answer is JSON.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_ALL_PRODUCER_INFO.
pub struct GetAllProducerInfo;

impl Request for GetAllProducerInfo {
    const CODE: i32 = 328;
    const NAME: &'static str = "GET_ALL_PRODUCER_INFO";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
