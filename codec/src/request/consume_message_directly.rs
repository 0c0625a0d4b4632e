//! CONSUME_MESSAGE_DIRECTLY (309): a consumer is to consume one message at once.
//!
//! Invariants:
//! - towards the client the body is the stored message.

use serde::{Deserialize, Serialize};

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

/// What became of the message (`ConsumeMessageDirectlyResult`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeDirectlyResult {
    /// Whether an orderly listener commits by itself.
    pub auto_commit: bool,
    /// What the listener said.
    pub consume_result: DirectResult,
    /// Whether the consumer is an orderly one.
    pub order: bool,
    /// What went wrong.
    pub remark: Option<Text>,
    /// How long it took, in milliseconds.
    pub spent_time_mills: i64,
}

/// What a listener said (`CMResult`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum DirectResult {
    /// Consumed.
    #[default]
    #[serde(rename = "CR_SUCCESS")]
    Success,
    /// To be delivered again.
    #[serde(rename = "CR_LATER")]
    Later,
    /// Orderly: rolled back.
    #[serde(rename = "CR_ROLLBACK")]
    Rollback,
    /// Orderly: committed.
    #[serde(rename = "CR_COMMIT")]
    Commit,
    /// It failed with an exception.
    #[serde(rename = "CR_THROW_EXCEPTION")]
    ThrowException,
    /// It said nothing.
    #[serde(rename = "CR_RETURN_NULL")]
    ReturnNull,
}
