//! PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): a consumer reads a queue from an offset on.
//!
//! Invariants:
//! - both codes have the same header; the answer's body is stored messages back to back;
//! - the four offsets of the answer stand in it for the codes 0, 19, 20 and 21.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

/// Bit of `sys_flag`: `commit_offset` is to be committed.
pub const PULL_COMMITS_OFFSET: i32 = 1;
/// Bit of `sys_flag`: the broker may hold the request until something arrives.
pub const PULL_SUSPENDS: i32 = 1 << 1;
/// Bit of `sys_flag`: the request carries its subscription.
pub const PULL_HAS_SUBSCRIPTION: i32 = 1 << 2;
/// Bit of `sys_flag`: the filter is a class, which no broker supports any more.
pub const PULL_FILTERS_BY_CLASS: i32 = 1 << 3;
/// Bit of `sys_flag`: the consumer assigns queues to itself.
pub const PULL_IS_LITE: i32 = 1 << 4;

header! {
    /// What to read, and how long the broker may hold the request.
    pub struct PullMessageHeader {
        consumer_group: Text = "consumerGroup",
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        /// First offset wanted.
        queue_offset: i64 = "queueOffset",
        /// How many messages are wished for.
        messages_max: i32 = "maxMsgNums",
        /// The `PULL_…` bits.
        sys_flag: i32 = "sysFlag",
        /// Offset to commit, if the flag says so.
        commit_offset: i64 = "commitOffset",
        suspend_timeout_ms: i64 = "suspendTimeoutMillis",
        subscription: Option<Text> = "subscription",
        /// Version of the subscription, a time in milliseconds.
        subscription_version: i64 = "subVersion",
        /// `TAG` if absent, or `SQL92`.
        expression_type: Option<Text> = "expressionType",
        bytes_max: Option<i32> = "maxMsgBytes",
        request_source: Option<i32> = "requestSource",
        proxy_client_id: Option<Text> = "proxyFrowardClientId",
    }
}

header! {
    /// Where to go on.
    pub struct PullReplyHeader {
        /// Broker to pull from next time, 0 the master.
        suggested_broker_id: i64 = "suggestWhichBrokerId",
        next_offset: i64 = "nextBeginOffset",
        min_offset: i64 = "minOffset",
        max_offset: i64 = "maxOffset",
        offset_delta: Option<i64> = "offsetDelta",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
        /// With NO_PERMISSION: what forbids it.
        forbidden_type: Option<i32> = "forbiddenType",
    }
}

/// PULL_MESSAGE.
pub struct PullMessage;

impl Request for PullMessage {
    const CODE: i32 = 11;
    const NAME: &'static str = "PULL_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = PullMessageHeader;
    type Reply = PullReplyHeader;
}

/// LITE_PULL_MESSAGE.
pub struct LitePullMessage;

impl Request for LitePullMessage {
    const CODE: i32 = 361;
    const NAME: &'static str = "LITE_PULL_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = PullMessageHeader;
    type Reply = PullReplyHeader;
}
