//! GET_UNIT_TOPIC_LIST (311): topics with the unit flag.
//!
//! Invariants:
//! - the body of the answer is a [`TopicList`](crate::request::TopicList).

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_UNIT_TOPIC_LIST.
pub struct GetUnitTopicList;

impl Request for GetUnitTopicList {
    const CODE: i32 = 311;
    const NAME: &'static str = "GET_UNIT_TOPIC_LIST";
    const TO: Direction = Direction::ToNameServer;
    type Header = NoHeader;
    type Reply = NoHeader;
}
