//! POP_ROLLBACK (200056): turns pop records back into Java's file form.
//!
//! Invariants:
//! - it has no meaning for a store without a database.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// POP_ROLLBACK.
pub struct PopRollback;

impl Request for PopRollback {
    const CODE: i32 = 200_056;
    const NAME: &'static str = "POP_ROLLBACK";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
