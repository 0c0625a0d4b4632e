//! UPDATE_BROKER_CONFIG (25): changes settings of a broker.
//!
//! Invariants:
//! - the body is lines of `key=value`.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// UPDATE_BROKER_CONFIG.
pub struct UpdateBrokerConfig;

impl Request for UpdateBrokerConfig {
    const CODE: i32 = 25;
    const NAME: &'static str = "UPDATE_BROKER_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
