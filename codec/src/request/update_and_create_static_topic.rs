//! UPDATE_AND_CREATE_STATIC_TOPIC (513): creates or changes a static topic.
//!
//! Invariants:
//! - the body is the mapping of its queues.

use crate::header::NoHeader;
use crate::request::{Direction, Request, UpdateAndCreateTopicHeader};

/// UPDATE_AND_CREATE_STATIC_TOPIC.
pub struct UpdateAndCreateStaticTopic;

impl Request for UpdateAndCreateStaticTopic {
    const CODE: i32 = 513;
    const NAME: &'static str = "UPDATE_AND_CREATE_STATIC_TOPIC";
    const TO: Direction = Direction::ClientToBroker;
    type Header = UpdateAndCreateTopicHeader;
    type Reply = NoHeader;
}
