//! DELETE_EXPIRED_COMMITLOG (329): deletes what has expired of the log at once.
//!
//! Invariants:
//! - nothing younger than its time is deleted.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// DELETE_EXPIRED_COMMITLOG.
pub struct DeleteExpiredCommitlog;

impl Request for DeleteExpiredCommitlog {
    const CODE: i32 = 329;
    const NAME: &'static str = "DELETE_EXPIRED_COMMITLOG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
