//! GET_SYSTEM_TOPIC_LIST_FROM_NS (304): names of clusters and brokers, which are topics too.
//!
//! Invariants:
//! - the answer names a broker that is to be asked for the rest.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_SYSTEM_TOPIC_LIST_FROM_NS.
pub struct GetSystemTopicListFromNs;

impl Request for GetSystemTopicListFromNs {
    const CODE: i32 = 304;
    const NAME: &'static str = "GET_SYSTEM_TOPIC_LIST_FROM_NS";
    const TO: Direction = Direction::ToNameServer;
    type Header = NoHeader;
    type Reply = NoHeader;
}
