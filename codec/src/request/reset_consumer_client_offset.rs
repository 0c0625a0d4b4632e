//! RESET_CONSUMER_CLIENT_OFFSET (220): a client is to go on from other offsets; one-way.
//!
//! Invariants:
//! - the body is a [`ResetOffsetList`] for C++ clients, for all others a table with object keys,
//!   [`crate::request::ResetOffsetBody`].

use serde::{Deserialize, Serialize};

use crate::header::NoHeader;
use crate::request::{Direction, InvokeBrokerToResetOffsetHeader, Request};
use crate::text::Text;

/// RESET_CONSUMER_CLIENT_OFFSET.
pub struct ResetConsumerClientOffset;

impl Request for ResetConsumerClientOffset {
    const CODE: i32 = 220;
    const NAME: &'static str = "RESET_CONSUMER_CLIENT_OFFSET";
    const TO: Direction = Direction::BrokerToClient;
    type Header = InvokeBrokerToResetOffsetHeader;
    type Reply = NoHeader;
}

/// The same as [`crate::request::ResetOffsetBody`] for C++ clients, which cannot read object keys
/// (`ResetOffsetBodyForC`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetList {
    /// One for each queue.
    pub offset_table: Vec<QueueOffset>,
}

/// An offset of a queue (`MessageQueueForC`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueOffset {
    /// The broker.
    pub broker_name: Text,
    /// In messages.
    pub offset: i64,
    /// From 0 on.
    pub queue_id: i32,
    /// The topic.
    pub topic: Text,
}
