//! GET_NAMESRV_CONFIG (319): the settings of a name server.
//!
//! Invariants:
//! - the body of the answer is lines of `key=value`.

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// GET_NAMESRV_CONFIG.
pub struct GetNamesrvConfig;

impl Request for GetNamesrvConfig {
    const CODE: i32 = 319;
    const NAME: &'static str = "GET_NAMESRV_CONFIG";
    const TO: Direction = Direction::ToNameServer;
    type Header = NoHeader;
    type Reply = NoHeader;
}
