//! INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): how far the clients of a group have come.
//!
//! Invariants:
//! - the broker asks the clients one by one.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Whom to ask.
    pub struct InvokeBrokerToGetConsumerStatusHeader {
        topic: Text = "topic",
        group: Text = "group",
        client_address: Option<Text> = "clientAddr",
    }
}

/// INVOKE_BROKER_TO_GET_CONSUMER_STATUS.
pub struct InvokeBrokerToGetConsumerStatus;

impl Request for InvokeBrokerToGetConsumerStatus {
    const CODE: i32 = 223;
    const NAME: &'static str = "INVOKE_BROKER_TO_GET_CONSUMER_STATUS";
    const TO: Direction = Direction::ClientToBroker;
    type Header = InvokeBrokerToGetConsumerStatusHeader;
    type Reply = NoHeader;
}
