//! BROKER_HEARTBEAT (904): a broker's sign of life; one-way.
//!
//! Invariants:
//! - a broker that is not known is ignored.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Who lives.
    pub struct BrokerHeartbeatHeader {
        cluster_name: Text = "clusterName",
        broker_address: Text = "brokerAddr",
        broker_name: Text = "brokerName",
        broker_id: Option<i64> = "brokerId",
        epoch: Option<i32> = "epoch",
        max_offset: Option<i64> = "maxOffset",
        confirm_offset: Option<i64> = "confirmOffset",
        heartbeat_timeout_ms: Option<i64> = "heartbeatTimeoutMills",
        election_priority: Option<i32> = "electionPriority",
    }
}

/// BROKER_HEARTBEAT.
pub struct BrokerHeartbeat;

impl Request for BrokerHeartbeat {
    const CODE: i32 = 904;
    const NAME: &'static str = "BROKER_HEARTBEAT";
    const TO: Direction = Direction::ToNameServer;
    type Header = BrokerHeartbeatHeader;
    type Reply = NoHeader;
}
