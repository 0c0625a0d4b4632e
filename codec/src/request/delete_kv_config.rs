//! DELETE_KV_CONFIG (102): removes a value of the name server.
//!
//! Invariants:
//! - a value that is not there is no error.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which value.
    pub struct DeleteKvConfigHeader {
        namespace: Text = "namespace",
        key: Text = "key",
    }
}

/// DELETE_KV_CONFIG.
pub struct DeleteKvConfig;

impl Request for DeleteKvConfig {
    const CODE: i32 = 102;
    const NAME: &'static str = "DELETE_KV_CONFIG";
    const TO: Direction = Direction::ToNameServer;
    type Header = DeleteKvConfigHeader;
    type Reply = NoHeader;
}
