//! UNREGISTER_BROKER (104): a broker leaves.
//!
//! Invariants:
//! - topics without a broker vanish with it.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Who leaves.
    pub struct UnregisterBrokerHeader {
        broker_name: Text = "brokerName",
        /// `ip:port`.
        broker_address: Text = "brokerAddr",
        cluster_name: Text = "clusterName",
        /// 0 is the master.
        broker_id: i64 = "brokerId",
    }
}

/// UNREGISTER_BROKER.
pub struct UnregisterBroker;

impl Request for UnregisterBroker {
    const CODE: i32 = 104;
    const NAME: &'static str = "UNREGISTER_BROKER";
    const TO: Direction = Direction::ToNameServer;
    type Header = UnregisterBrokerHeader;
    type Reply = NoHeader;
}
