//! GET_ALL_DELAY_OFFSET (45): how far each delay level has come.
//!
//! Invariants:
//! - the body of the answer is a [`DelayOffsetTable`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::topic::DataVersion;

/// GET_ALL_DELAY_OFFSET.
pub struct GetAllDelayOffset;

impl Request for GetAllDelayOffset {
    const CODE: i32 = 45;
    const NAME: &'static str = "GET_ALL_DELAY_OFFSET";
    const TO: Direction = Direction::BrokerToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// Offsets of the delay levels (`DelayOffsetSerializeWrapper`, `config/delayOffset.json`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DelayOffsetTable {
    /// Version of the table.
    pub data_version: DataVersion,
    /// By level, from 1 on.
    pub offset_table: BTreeMap<i32, i64>,
}
