//! GET_CONSUMER_LIST_BY_GROUP (38): the members of a consumer group.
//!
//! Invariants:
//! - the caller itself must be in the list, or it gets no queues;
//! - the body of the answer is a [`ConsumerList`].

use serde::{Deserialize, Serialize};

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group.
    pub struct GetConsumerListByGroupHeader {
        group: Text = "consumerGroup",
    }
}

/// GET_CONSUMER_LIST_BY_GROUP.
pub struct GetConsumerListByGroup;

impl Request for GetConsumerListByGroup {
    const CODE: i32 = 38;
    const NAME: &'static str = "GET_CONSUMER_LIST_BY_GROUP";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetConsumerListByGroupHeader;
    type Reply = NoHeader;
}

/// Client ids of a group's members (`GetConsumerListByGroupResponseBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerList {
    /// Each member once.
    pub consumer_id_list: Vec<Text>,
}
