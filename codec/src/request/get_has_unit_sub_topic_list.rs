//! GET_HAS_UNIT_SUB_TOPIC_LIST (312): topics with a unit subscription.
//!
//! Invariants:
//! - the body of the answer is a [`TopicList`](crate::request::TopicList).

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_HAS_UNIT_SUB_TOPIC_LIST.
pub struct GetHasUnitSubTopicList;

impl Request for GetHasUnitSubTopicList {
    const CODE: i32 = 312;
    const NAME: &'static str = "GET_HAS_UNIT_SUB_TOPIC_LIST";
    const TO: Direction = Direction::ToNameServer;
    type Header = NoHeader;
    type Reply = NoHeader;
}
