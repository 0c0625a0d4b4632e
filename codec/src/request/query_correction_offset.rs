//! QUERY_CORRECTION_OFFSET (308): the smallest offset of other groups in each queue.
//!
//! Invariants:
//! - the body of the answer is a [`CorrectionOffsets`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which groups count, and which one is compared with them.
    pub struct QueryCorrectionOffsetHeader {
        /// Groups that do not count, joined by `,`.
        filter_groups: Option<Text> = "filterGroups",
        /// A queue in which this group is behind all that count answers `i64::MAX`.
        compare_group: Text = "compareGroup",
        topic: Text = "topic",
    }
}

/// QUERY_CORRECTION_OFFSET.
pub struct QueryCorrectionOffset;

impl Request for QueryCorrectionOffset {
    const CODE: i32 = 308;
    const NAME: &'static str = "QUERY_CORRECTION_OFFSET";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QueryCorrectionOffsetHeader;
    type Reply = NoHeader;
}

/// Smallest offset by queue id (`QueryCorrectionOffsetBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CorrectionOffsets {
    /// By queue id.
    pub correction_offsets: BTreeMap<i32, i64>,
}
