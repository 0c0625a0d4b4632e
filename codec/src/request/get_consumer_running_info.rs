//! GET_CONSUMER_RUNNING_INFO (307): what a consumer is doing.
//!
//! Invariants:
//! - the broker passes request and answer on as they are.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which client.
    pub struct GetConsumerRunningInfoHeader {
        group: Text = "consumerGroup",
        client_id: Text = "clientId",
        with_stacks: Option<bool> = "jstackEnable",
    }
}

/// GET_CONSUMER_RUNNING_INFO.
pub struct GetConsumerRunningInfo;

impl Request for GetConsumerRunningInfo {
    const CODE: i32 = 307;
    const NAME: &'static str = "GET_CONSUMER_RUNNING_INFO";
    const TO: Direction = Direction::ThroughBroker;
    type Header = GetConsumerRunningInfoHeader;
    type Reply = NoHeader;
}
