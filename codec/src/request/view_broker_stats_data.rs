//! VIEW_BROKER_STATS_DATA (315): sums and rates of one statistic.
//!
//! Invariants:
//! - SYSTEM_ERROR if there is no such item.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which item.
    pub struct ViewBrokerStatsDataHeader {
        name: Text = "statsName",
        key: Text = "statsKey",
    }
}

/// VIEW_BROKER_STATS_DATA.
pub struct ViewBrokerStatsData;

impl Request for ViewBrokerStatsData {
    const CODE: i32 = 315;
    const NAME: &'static str = "VIEW_BROKER_STATS_DATA";
    const TO: Direction = Direction::ClientToBroker;
    type Header = ViewBrokerStatsDataHeader;
    type Reply = NoHeader;
}
