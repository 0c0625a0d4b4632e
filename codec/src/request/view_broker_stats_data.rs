//! VIEW_BROKER_STATS_DATA (315): sums and rates of one statistic.
//!
//! Invariants:
//! - SYSTEM_ERROR if there is no such item.

use serde::{Deserialize, Serialize};

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

/// One count of a broker over three spans (`BrokerStatsData`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerStats {
    /// The last day.
    pub stats_day: BrokerStatsItem,
    /// The last hour.
    pub stats_hour: BrokerStatsItem,
    /// The last minute.
    pub stats_minute: BrokerStatsItem,
}

/// Over one span.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerStatsItem {
    /// Average of one call.
    pub avgpt: f64,
    /// Total.
    pub sum: i64,
    /// A second.
    pub tps: f64,
}
