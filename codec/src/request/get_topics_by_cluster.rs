//! GET_TOPICS_BY_CLUSTER (224): the topics of a cluster.
//!
//! Invariants:
//! - an unknown cluster has no topics, which is no error.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which cluster.
    pub struct GetTopicsByClusterHeader {
        cluster: Text = "cluster",
    }
}

/// GET_TOPICS_BY_CLUSTER.
pub struct GetTopicsByCluster;

impl Request for GetTopicsByCluster {
    const CODE: i32 = 224;
    const NAME: &'static str = "GET_TOPICS_BY_CLUSTER";
    const TO: Direction = Direction::ToNameServer;
    type Header = GetTopicsByClusterHeader;
    type Reply = NoHeader;
}
