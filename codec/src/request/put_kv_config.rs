//! PUT_KV_CONFIG (100): sets a value of the name server.
//!
//! Invariants:
//! - beside settings changed at run time the only state of a name server that is on disk.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Where, and what.
    pub struct PutKvConfigHeader {
        namespace: Text = "namespace",
        key: Text = "key",
        value: Text = "value",
    }
}

/// PUT_KV_CONFIG.
pub struct PutKvConfig;

impl Request for PutKvConfig {
    const CODE: i32 = 100;
    const NAME: &'static str = "PUT_KV_CONFIG";
    const TO: Direction = Direction::ToNameServer;
    type Header = PutKvConfigHeader;
    type Reply = NoHeader;
}
