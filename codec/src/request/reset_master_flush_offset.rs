//! RESET_MASTER_FLUSH_OFFSET (908): how far a slave may believe its master to have flushed.
//!
//! Invariants:
//! - a broker with slaves of its own refuses it.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};

header! {
    /// The offset.
    pub struct ResetMasterFlushOffsetHeader {
        master_flush_offset: i64 = "masterFlushOffset",
    }
}

/// RESET_MASTER_FLUSH_OFFSET.
pub struct ResetMasterFlushOffset;

impl Request for ResetMasterFlushOffset {
    const CODE: i32 = 908;
    const NAME: &'static str = "RESET_MASTER_FLUSH_OFFSET";
    const TO: Direction = Direction::ClientToBroker;
    type Header = ResetMasterFlushOffsetHeader;
    type Reply = NoHeader;
}
