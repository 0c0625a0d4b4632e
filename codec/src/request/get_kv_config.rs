//! GET_KV_CONFIG (101): a value of the name server.
//!
//! Invariants:
//! - QUERY_NOT_FOUND if there is none.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which value.
    pub struct GetKvConfigHeader {
        namespace: Text = "namespace",
        key: Text = "key",
    }
}

header! {
    /// The value.
    pub struct GetKvConfigReplyHeader {
        value: Option<Text> = "value",
    }
}

/// GET_KV_CONFIG.
pub struct GetKvConfig;

impl Request for GetKvConfig {
    const CODE: i32 = 101;
    const NAME: &'static str = "GET_KV_CONFIG";
    const TO: Direction = Direction::ToNameServer;
    type Header = GetKvConfigHeader;
    type Reply = GetKvConfigReplyHeader;
}
