//! CLEAN_EXPIRED_CONSUMEQUEUE (306): deletes consume queue files that point before the log.
//!
//! Invariants:
//! - nothing that can still be read is deleted.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// CLEAN_EXPIRED_CONSUMEQUEUE.
pub struct CleanExpiredConsumequeue;

impl Request for CleanExpiredConsumequeue {
    const CODE: i32 = 306;
    const NAME: &'static str = "CLEAN_EXPIRED_CONSUMEQUEUE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
