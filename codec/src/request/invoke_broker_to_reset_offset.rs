//! INVOKE_BROKER_TO_RESET_OFFSET (222): a group is to go on from other offsets.
//!
//! Invariants:
//! - the body of the answer is a [`ResetOffsetBody`], which has object keys.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::MessageQueue;

header! {
    /// Which queues, and where to.
    pub struct InvokeBrokerToResetOffsetHeader {
        topic: Text = "topic",
        group: Text = "group",
        /// Below 0: all queues.
        queue_id: Option<i32> = "queueId",
        /// Below 0: by time.
        queue_offset: Option<i64> = "offset",
        /// Below 0: the end of the queue.
        timestamp_ms: i64 = "timestamp",
        /// For resets that are told to clients: forward as well, not only back.
        is_force: bool = "isForce",
    }
}

/// INVOKE_BROKER_TO_RESET_OFFSET.
pub struct InvokeBrokerToResetOffset;

impl Request for InvokeBrokerToResetOffset {
    const CODE: i32 = 222;
    const NAME: &'static str = "INVOKE_BROKER_TO_RESET_OFFSET";
    const TO: Direction = Direction::ClientToBroker;
    type Header = InvokeBrokerToResetOffsetHeader;
    type Reply = NoHeader;
}

/// Offsets that a group goes on from (`ResetOffsetBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetBody {
    /// By queue.
    pub offset_table: BTreeMap<MessageQueue, i64>,
}
