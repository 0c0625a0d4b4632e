//! POP_MESSAGE (200050): takes messages and hides them from others for a time.
//!
//! Invariants:
//! - the offsets that the answer names are exactly those of its body;
//! - the body of the answer is stored messages.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// What to take, and for how long.
    pub struct PopMessageHeader {
        group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        messages_max: i32 = "maxMsgNums",
        invisible_ms: i64 = "invisibleTime",
        poll_ms: i64 = "pollTime",
        /// When the client asked; absent or 0: now.
        born_ms: Option<i64> = "bornTime",
        /// Where a new group begins: 0 at the oldest message, 1 at the newest.
        init_mode: Option<i32> = "initMode",
        expression_type: Option<Text> = "expType",
        expression: Option<Text> = "exp",
        order: Option<bool> = "order",
        attempt_id: Option<Text> = "attemptId",
    }
}

header! {
    /// What was taken.
    pub struct PopMessageReplyHeader {
        pop_ms: i64 = "popTime",
        invisible_ms: i64 = "invisibleTime",
        /// 999: orderly.
        revive_queue_id: i32 = "reviveQid",
        /// Messages that are left.
        rest: i64 = "restNum",
        /// `retry queueId offset`, joined by `;`.
        start_offsets: Option<Text> = "startOffsetInfo",
        /// `retry queueId offset,offset`, joined by `;`.
        message_offsets: Option<Text> = "msgOffsetInfo",
        order_counts: Option<Text> = "orderCountInfo",
    }
}

/// POP_MESSAGE.
pub struct PopMessage;

impl Request for PopMessage {
    const CODE: i32 = 200_050;
    const NAME: &'static str = "POP_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = PopMessageHeader;
    type Reply = PopMessageReplyHeader;
}
