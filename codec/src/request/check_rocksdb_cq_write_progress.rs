//! CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354): compares Java's two forms of consume queues.
//!
//! Invariants:
//! - there is one form here.

use serde::{Deserialize, Serialize};

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// What to compare.
    pub struct CheckRocksdbCqWriteProgressHeader {
        topic: Option<Text> = "topic",
        check_store_time_ms: Option<i64> = "checkStoreTime",
    }
}

/// CHECK_ROCKSDB_CQ_WRITE_PROGRESS.
pub struct CheckRocksdbCqWriteProgress;

impl Request for CheckRocksdbCqWriteProgress {
    const CODE: i32 = 354;
    const NAME: &'static str = "CHECK_ROCKSDB_CQ_WRITE_PROGRESS";
    const TO: Direction = Direction::ClientToBroker;
    type Header = CheckRocksdbCqWriteProgressHeader;
    type Reply = NoHeader;
}

/// The answer (`CheckRocksdbCqWriteResult`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteProgress {
    /// What differs, or why it cannot be told.
    pub diff_result: Text,
}
