//! GET_TIMER_METRICS (61): how many timer messages each topic has.
//!
//! Invariants:
//! - the body of the answer is JSON.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_TIMER_METRICS.
pub struct GetTimerMetrics;

impl Request for GetTimerMetrics {
    const CODE: i32 = 61;
    const NAME: &'static str = "GET_TIMER_METRICS";
    const TO: Direction = Direction::BrokerToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
