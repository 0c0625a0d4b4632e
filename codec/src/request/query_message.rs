//! QUERY_MESSAGE (12): messages of a topic with a key, from the index.
//!
//! Invariants:
//! - the body of the answer is stored messages back to back;
//! - the client compares the key again: the index knows only its hash.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Key and time to look for.
    pub struct QueryMessageHeader {
        topic: Text = "topic",
        key: Text = "key",
        messages_max: i32 = "maxNum",
        begin_timestamp_ms: i64 = "beginTimestamp",
        end_timestamp_ms: i64 = "endTimestamp",
        /// Whether the key is a message's unique id; then the broker's own limit counts.
        is_unique_key: Option<bool> = "_UNIQUE_KEY_QUERY",
    }
}

header! {
    /// How far the index goes.
    pub struct QueryMessageReplyHeader {
        /// When the last entry was indexed.
        index_updated_ms: i64 = "indexLastUpdateTimestamp",
        /// Log offset of the last entry.
        index_updated_to: i64 = "indexLastUpdatePhyoffset",
    }
}

/// QUERY_MESSAGE.
pub struct QueryMessage;

impl Request for QueryMessage {
    const CODE: i32 = 12;
    const NAME: &'static str = "QUERY_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QueryMessageHeader;
    type Reply = QueryMessageReplyHeader;
}
