//! QUERY_DATA_VERSION (322): has what a broker registered changed? Also its sign of life.
//!
//! Invariants:
//! - the one-way form, once a second, is the heart-beat of brokers that may act as master;
//! - bodies both ways are a [`DataVersion`](crate::topic::DataVersion).

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which broker.
    pub struct QueryDataVersionHeader {
        broker_name: Text = "brokerName",
        /// `ip:port`.
        broker_address: Text = "brokerAddr",
        cluster_name: Text = "clusterName",
        /// 0 is the master.
        broker_id: i64 = "brokerId",
    }
}

header! {
    /// Whether it is to register again.
    pub struct QueryDataVersionReplyHeader {
        changed: bool = "changed",
    }
}

/// QUERY_DATA_VERSION.
pub struct QueryDataVersion;

impl Request for QueryDataVersion {
    const CODE: i32 = 322;
    const NAME: &'static str = "QUERY_DATA_VERSION";
    const TO: Direction = Direction::ToNameServer;
    type Header = QueryDataVersionHeader;
    type Reply = QueryDataVersionReplyHeader;
}
