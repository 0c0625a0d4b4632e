//! PUSH_REPLY_MESSAGE_TO_CLIENT (326): the reply that a requester waits for.
//!
//! Invariants:
//! - the body is that of the reply, compressed if `sys_flag` says so.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// The reply as a message.
    pub struct PushReplyMessageToClientHeader {
        producer_group: Text = "producerGroup",
        topic: Text = "topic",
        default_topic: Text = "defaultTopic",
        default_topic_queues: i32 = "defaultTopicQueueNums",
        queue_id: i32 = "queueId",
        sys_flag: i32 = "sysFlag",
        born_timestamp_ms: i64 = "bornTimestamp",
        flag: i32 = "flag",
        properties: Option<Text> = "properties",
        reconsume_times: Option<i32> = "reconsumeTimes",
        unit_mode: Option<bool> = "unitMode",
        /// `ip:port`.
        born_host: Text = "bornHost",
        /// `ip:port`.
        store_host: Text = "storeHost",
        store_timestamp_ms: i64 = "storeTimestamp",
    }
}

/// PUSH_REPLY_MESSAGE_TO_CLIENT.
pub struct PushReplyMessageToClient;

impl Request for PushReplyMessageToClient {
    const CODE: i32 = 326;
    const NAME: &'static str = "PUSH_REPLY_MESSAGE_TO_CLIENT";
    const TO: Direction = Direction::BrokerToClient;
    type Header = PushReplyMessageToClientHeader;
    type Reply = NoHeader;
}
