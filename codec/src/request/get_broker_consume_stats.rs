//! GET_BROKER_CONSUME_STATS (317): how far all groups of a broker have come.
//!
//! Invariants:
//! - the body of the answer is a [`ConsumeStatsList`], which has object keys.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::request::{ConsumeStats, Direction, Request};
use crate::text::Text;

header! {
    /// Orderly groups or the others.
    pub struct GetBrokerConsumeStatsHeader {
        is_order: bool = "isOrder",
    }
}

/// GET_BROKER_CONSUME_STATS.
pub struct GetBrokerConsumeStats;

impl Request for GetBrokerConsumeStats {
    const CODE: i32 = 317;
    const NAME: &'static str = "GET_BROKER_CONSUME_STATS";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetBrokerConsumeStatsHeader;
    type Reply = NoHeader;
}

/// How far all groups of a broker have come (`ConsumeStatsList`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStatsList {
    /// Who answers.
    pub broker_addr: Text,
    /// A map of one group each, with one [`ConsumeStats`] for each of its topics.
    pub consume_stats_list: Vec<BTreeMap<Text, Vec<ConsumeStats>>>,
    /// Messages still to be consumed, of all groups.
    pub total_diff: i64,
    /// Messages pulled but not committed, of all groups.
    pub total_inflight_diff: i64,
}
