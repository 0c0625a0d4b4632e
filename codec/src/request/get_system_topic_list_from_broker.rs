//! GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305): the system topics of a broker.
//!
//! Invariants:
//! - the body of the answer is a [`TopicList`](crate::request::TopicList).

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_SYSTEM_TOPIC_LIST_FROM_BROKER.
pub struct GetSystemTopicListFromBroker;

impl Request for GetSystemTopicListFromBroker {
    const CODE: i32 = 305;
    const NAME: &'static str = "GET_SYSTEM_TOPIC_LIST_FROM_BROKER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
