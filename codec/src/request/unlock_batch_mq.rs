//! UNLOCK_BATCH_MQ (42): a client gives queue locks back; sync or one-way.
//!
//! Invariants:
//! - the body is a [`LockBody`](crate::request::LockBody); locks of others stay.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// UNLOCK_BATCH_MQ.
pub struct UnlockBatchMq;

impl Request for UnlockBatchMq {
    const CODE: i32 = 42;
    const NAME: &'static str = "UNLOCK_BATCH_MQ";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
