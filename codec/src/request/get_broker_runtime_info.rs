//! GET_BROKER_RUNTIME_INFO (28): the state of a broker as texts.
//!
//! Invariants:
//! - the body of the answer is a [`KvTable`](crate::request::KvTable); tools parse its values.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_BROKER_RUNTIME_INFO.
pub struct GetBrokerRuntimeInfo;

impl Request for GetBrokerRuntimeInfo {
    const CODE: i32 = 28;
    const NAME: &'static str = "GET_BROKER_RUNTIME_INFO";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
