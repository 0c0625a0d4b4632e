//! CONSUME_MESSAGE_DIRECTLY (309): a consumer is to consume one message at once.
//!
//! Invariants:
//! - towards the client the body is the stored message.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which message, and by whom.
    pub struct ConsumeMessageDirectlyHeader {
        group: Text = "consumerGroup",
        client_id: Option<Text> = "clientId",
        message_id: Option<Text> = "msgId",
        broker_name: Option<Text> = "brokerName",
        topic: Option<Text> = "topic",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
    }
}

/// CONSUME_MESSAGE_DIRECTLY.
pub struct ConsumeMessageDirectly;

impl Request for ConsumeMessageDirectly {
    const CODE: i32 = 309;
    const NAME: &'static str = "CONSUME_MESSAGE_DIRECTLY";
    const TO: Direction = Direction::ThroughBroker;
    type Header = ConsumeMessageDirectlyHeader;
    type Reply = NoHeader;
}
