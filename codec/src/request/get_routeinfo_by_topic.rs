//! GET_ROUTEINFO_BY_TOPIC (105): which brokers have a topic.
//!
//! Invariants:
//! - TOPIC_NOT_EXIST makes a client ask for the template topic;
//! - the body of the answer is a [`TopicRouteData`](crate::route::TopicRouteData).

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which topic.
    pub struct GetRouteinfoByTopicHeader {
        topic: Text = "topic",
        accepts_standard_json_only: Option<bool> = "acceptStandardJsonOnly",
        zone_mode: Option<bool> = "__ZONE_MODE",
        zone_name: Option<Text> = "__ZONE_NAME",
    }
}

/// GET_ROUTEINFO_BY_TOPIC.
pub struct GetRouteinfoByTopic;

impl Request for GetRouteinfoByTopic {
    const CODE: i32 = 105;
    const NAME: &'static str = "GET_ROUTEINFO_BY_TOPIC";
    const TO: Direction = Direction::ToNameServer;
    type Header = GetRouteinfoByTopicHeader;
    type Reply = NoHeader;
}
