//! GET_TIMER_CHECK_POINT (60): the timer's check point.
//!
//! Invariants:
//! - the body of the answer is seven numbers of 64 bits.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_TIMER_CHECK_POINT.
pub struct GetTimerCheckPoint;

impl Request for GetTimerCheckPoint {
    const CODE: i32 = 60;
    const NAME: &'static str = "GET_TIMER_CHECK_POINT";
    const TO: Direction = Direction::BrokerToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
