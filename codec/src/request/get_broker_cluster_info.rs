//! GET_BROKER_CLUSTER_INFO (106): all brokers of all clusters.
//!
//! Invariants:
//! - the body of the answer is a [`ClusterInfo`](crate::route::ClusterInfo).

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_BROKER_CLUSTER_INFO.
pub struct GetBrokerClusterInfo;

impl Request for GetBrokerClusterInfo {
    const CODE: i32 = 106;
    const NAME: &'static str = "GET_BROKER_CLUSTER_INFO";
    const TO: Direction = Direction::ToNameServer;
    type Header = NoHeader;
    type Reply = NoHeader;
}
