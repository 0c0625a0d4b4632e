//! GET_CONSUMER_CONNECTION_LIST (203): the connections and subscriptions of a consumer group.
//!
//! Invariants:
//! - CONSUMER_NOT_ONLINE if there is none.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group.
    pub struct GetConsumerConnectionListHeader {
        group: Text = "consumerGroup",
    }
}

/// GET_CONSUMER_CONNECTION_LIST.
pub struct GetConsumerConnectionList;

impl Request for GetConsumerConnectionList {
    const CODE: i32 = 203;
    const NAME: &'static str = "GET_CONSUMER_CONNECTION_LIST";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetConsumerConnectionListHeader;
    type Reply = NoHeader;
}
