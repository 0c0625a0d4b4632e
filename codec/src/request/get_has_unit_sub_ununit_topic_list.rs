//! GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313): topics with a unit subscription that are no unit topics.
//!
//! Invariants:
//! - the body of the answer is a [`TopicList`](crate::request::TopicList).

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST.
pub struct GetHasUnitSubUnunitTopicList;

impl Request for GetHasUnitSubUnunitTopicList {
    const CODE: i32 = 313;
    const NAME: &'static str = "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST";
    const TO: Direction = Direction::ToNameServer;
    type Header = NoHeader;
    type Reply = NoHeader;
}
