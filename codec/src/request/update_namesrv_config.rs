//! UPDATE_NAMESRV_CONFIG (318): changes settings of a name server.
//!
//! Invariants:
//! - the body is lines of `key=value`.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// UPDATE_NAMESRV_CONFIG.
pub struct UpdateNamesrvConfig;

impl Request for UpdateNamesrvConfig {
    const CODE: i32 = 318;
    const NAME: &'static str = "UPDATE_NAMESRV_CONFIG";
    const TO: Direction = Direction::ToNameServer;
    type Header = NoHeader;
    type Reply = NoHeader;
}
