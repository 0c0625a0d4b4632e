//! GET_COLD_DATA_FLOW_CTR_INFO (2003): these limits and what is read.
//!
//! Invariants:
//! - the body of the answer is a [`ColdDataFlow`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::text::Text;

/// GET_COLD_DATA_FLOW_CTR_INFO.
pub struct GetColdDataFlowCtrInfo;

impl Request for GetColdDataFlowCtrInfo {
    const CODE: i32 = 2003;
    const NAME: &'static str = "GET_COLD_DATA_FLOW_CTR_INFO";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// How reading of cold data is held back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ColdDataFlow {
    /// Bytes that a group may read in 5 s.
    pub cg_cold_read_threshold: i64,
    /// Limits of single groups.
    pub config_table: BTreeMap<Text, i64>,
    /// Bytes that all have read in these 5 s.
    pub global_acc: i64,
    /// Bytes that all may read in 5 s.
    pub global_cold_read_threshold: i64,
    /// What groups have read.
    pub runtime_table: BTreeMap<Text, ColdDataAccount>,
}

/// What a group has read (`AccAndTimeStamp`); times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ColdDataAccount {
    /// Bytes.
    pub cold_acc: i64,
    /// When the account began.
    pub create_time_mills: i64,
    /// When the group read cold data last.
    pub last_cold_read_time_mills: i64,
}
