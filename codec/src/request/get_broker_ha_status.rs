//! GET_BROKER_HA_STATUS (907): how far the slaves are.
//!
//! Invariants:
//! - the body of the answer is JSON.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_BROKER_HA_STATUS.
pub struct GetBrokerHaStatus;

impl Request for GetBrokerHaStatus {
    const CODE: i32 = 907;
    const NAME: &'static str = "GET_BROKER_HA_STATUS";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
