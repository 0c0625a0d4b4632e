//! GET_CONSUMER_STATUS_FROM_CLIENT (221): how far a client has come in its queues.
//!
//! Invariants:
//! - the body of the answer is a [`ConsumerStatus`], which has object keys.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::NoHeader;
use crate::request::{Direction, InvokeBrokerToGetConsumerStatusHeader, Request};
use crate::text::Text;
use crate::topic::MessageQueue;

/// GET_CONSUMER_STATUS_FROM_CLIENT.
pub struct GetConsumerStatusFromClient;

impl Request for GetConsumerStatusFromClient {
    const CODE: i32 = 221;
    const NAME: &'static str = "GET_CONSUMER_STATUS_FROM_CLIENT";
    const TO: Direction = Direction::BrokerToClient;
    type Header = InvokeBrokerToGetConsumerStatusHeader;
    type Reply = NoHeader;
}

/// Offsets that a client works with (`GetConsumerStatusBody`); in the answer of a broker those of each of its
/// clients.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerStatus {
    /// By client id, then queue: what a broker answers to code 223.
    pub consumer_table: BTreeMap<Text, BTreeMap<MessageQueue, i64>>,
    /// By queue: what a client answers to code 221.
    pub message_queue_table: BTreeMap<MessageQueue, i64>,
}
