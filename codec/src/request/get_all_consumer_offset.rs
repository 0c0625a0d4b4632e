//! GET_ALL_CONSUMER_OFFSET (43): all offsets of all groups.
//!
//! Invariants:
//! - the body of the answer is a [`ConsumerOffsetTable`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::DataVersion;

/// GET_ALL_CONSUMER_OFFSET.
pub struct GetAllConsumerOffset;

impl Request for GetAllConsumerOffset {
    const CODE: i32 = 43;
    const NAME: &'static str = "GET_ALL_CONSUMER_OFFSET";
    const TO: Direction = Direction::BrokerToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// Offsets of groups (`ConsumerOffsetSerializeWrapper`, `config/consumerOffset.json`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerOffsetTable {
    /// Version of the table.
    pub data_version: DataVersion,
    /// `topic@group`, then the queue id.
    pub offset_table: BTreeMap<Text, BTreeMap<i32, i64>>,
}
