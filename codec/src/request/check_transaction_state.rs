//! CHECK_TRANSACTION_STATE (39): what became of a half message? One-way; the answer is an END_TRANSACTION.
//!
//! Invariants:
//! - the body is the stored half message with its real topic and queue;
//! - the offsets are those of the half message.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which half message.
    pub struct CheckTransactionStateHeader {
        /// The half topic.
        topic: Option<Text> = "topic",
        queue_offset: i64 = "tranStateTableOffset",
        log_offset: i64 = "commitLogOffset",
        /// The unique id.
        message_id: Option<Text> = "msgId",
        /// The unique id again.
        transaction_id: Option<Text> = "transactionId",
        offset_message_id: Option<Text> = "offsetMsgId",
        broker_name: Option<Text> = "bname",
    }
}

/// CHECK_TRANSACTION_STATE.
pub struct CheckTransactionState;

impl Request for CheckTransactionState {
    const CODE: i32 = 39;
    const NAME: &'static str = "CHECK_TRANSACTION_STATE";
    const TO: Direction = Direction::BrokerToClient;
    type Header = CheckTransactionStateHeader;
    type Reply = NoHeader;
}
