//! GET_BROKER_CONSUME_STATS (317): how far all groups of a broker have come.
//!
//! Invariants:
//! - the body of the answer has object keys.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};

header! {
    /// Orderly groups or the others.
    pub struct GetBrokerConsumeStatsHeader {
        is_order: bool = "isOrder",
    }
}

/// GET_BROKER_CONSUME_STATS.
pub struct GetBrokerConsumeStats;

impl Request for GetBrokerConsumeStats {
    const CODE: i32 = 317;
    const NAME: &'static str = "GET_BROKER_CONSUME_STATS";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetBrokerConsumeStatsHeader;
    type Reply = NoHeader;
}
