//! REGISTER_TOPIC_IN_NAMESRV (217): adds queues of one topic.
//!
//! Invariants:
//! - the body is a [`TopicRouteData`](crate::route::TopicRouteData); only its queues count;
//! - nothing happens if one of its brokers is unknown.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which topic.
    pub struct RegisterTopicInNamesrvHeader {
        topic: Text = "topic",
    }
}

/// REGISTER_TOPIC_IN_NAMESRV.
pub struct RegisterTopicInNamesrv;

impl Request for RegisterTopicInNamesrv {
    const CODE: i32 = 217;
    const NAME: &'static str = "REGISTER_TOPIC_IN_NAMESRV";
    const TO: Direction = Direction::ToNameServer;
    type Header = RegisterTopicInNamesrvHeader;
    type Reply = NoHeader;
}
