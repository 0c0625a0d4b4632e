//! CONSUMER_SEND_MSG_BACK (36): a consumer wants a message again later, or given up.
//!
//! Invariants:
//! - the message stays in the log; a copy goes to the retry or dead letter topic of the group;
//! - an answer of SUCCESS may also mean that the group has no retry queue and the message was dropped.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which message, and when again.
    pub struct ConsumerSendMsgBackHeader {
        /// Where the message is in the log.
        log_offset: i64 = "offset",
        group: Text = "group",
        /// Below 0 dead letter at once, 0 chosen by the broker.
        delay_level: i32 = "delayLevel",
        origin_message_id: Option<Text> = "originMsgId",
        origin_topic: Option<Text> = "originTopic",
        unit_mode: Option<bool> = "unitMode",
        reconsume_max: Option<i32> = "maxReconsumeTimes",
    }
}

/// CONSUMER_SEND_MSG_BACK.
pub struct ConsumerSendMsgBack;

impl Request for ConsumerSendMsgBack {
    const CODE: i32 = 36;
    const NAME: &'static str = "CONSUMER_SEND_MSG_BACK";
    const TO: Direction = Direction::ClientToBroker;
    type Header = ConsumerSendMsgBackHeader;
    type Reply = NoHeader;
}
