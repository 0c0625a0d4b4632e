//! NOTIFY_MIN_BROKER_ID_CHANGE (905): another broker has the smallest id of its name now; one-way.
//!
//! Invariants:
//! - only sent if the name server is told to.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// What changed.
    pub struct NotifyMinBrokerIdChangeHeader {
        min_broker_id: Option<i64> = "minBrokerId",
        broker_name: Option<Text> = "brokerName",
        min_broker_address: Option<Text> = "minBrokerAddr",
        offline_broker_address: Option<Text> = "offlineBrokerAddr",
        ha_broker_address: Option<Text> = "haBrokerAddr",
    }
}

/// NOTIFY_MIN_BROKER_ID_CHANGE.
pub struct NotifyMinBrokerIdChange;

impl Request for NotifyMinBrokerIdChange {
    const CODE: i32 = 905;
    const NAME: &'static str = "NOTIFY_MIN_BROKER_ID_CHANGE";
    const TO: Direction = Direction::NameServerToBroker;
    type Header = NotifyMinBrokerIdChangeHeader;
    type Reply = NoHeader;
}
