//! END_TRANSACTION (37): a producer commits or rolls back a half message.
//!
//! Invariants:
//! - the offsets are those of the half message, as the answer to its send told them;
//! - Java clients send it one-way.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which half message, and what becomes of it.
    pub struct EndTransactionHeader {
        topic: Option<Text> = "topic",
        producer_group: Text = "producerGroup",
        /// Of the half message in its own topic.
        queue_offset: i64 = "tranStateTableOffset",
        log_offset: i64 = "commitLogOffset",
        /// One of the `TRANSACTION_…` values.
        outcome: i32 = "commitOrRollback",
        from_check: Option<bool> = "fromTransactionCheck",
        /// The unique id.
        message_id: Text = "msgId",
        transaction_id: Option<Text> = "transactionId",
    }
}

/// END_TRANSACTION.
pub struct EndTransaction;

impl Request for EndTransaction {
    const CODE: i32 = 37;
    const NAME: &'static str = "END_TRANSACTION";
    const TO: Direction = Direction::ClientToBroker;
    type Header = EndTransactionHeader;
    type Reply = NoHeader;
}

/// Value of `outcome`: not known yet.
pub const TRANSACTION_UNKNOWN: i32 = 0;
/// Value of `outcome`: make the message visible.
pub const TRANSACTION_COMMIT: i32 = 8;
/// Value of `outcome`: drop the message.
pub const TRANSACTION_ROLLBACK: i32 = 12;
