//! GET_BROKER_EPOCH_CACHE (1007): which master wrote which part of the log.
//!
//! Invariants:
//! - only meant for clusters with a controller.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_BROKER_EPOCH_CACHE.
pub struct GetBrokerEpochCache;

impl Request for GetBrokerEpochCache {
    const CODE: i32 = 1007;
    const NAME: &'static str = "GET_BROKER_EPOCH_CACHE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
