//! DELETE_TOPIC_IN_NAMESRV (216): forgets the routes of a topic.
//!
//! Invariants:
//! - only until a broker registers it again.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which topic.
    pub struct DeleteTopicInNamesrvHeader {
        topic: Text = "topic",
        /// Only the brokers of this cluster.
        cluster_name: Option<Text> = "clusterName",
    }
}

/// DELETE_TOPIC_IN_NAMESRV.
pub struct DeleteTopicInNamesrv;

impl Request for DeleteTopicInNamesrv {
    const CODE: i32 = 216;
    const NAME: &'static str = "DELETE_TOPIC_IN_NAMESRV";
    const TO: Direction = Direction::ToNameServer;
    type Header = DeleteTopicInNamesrvHeader;
    type Reply = NoHeader;
}
