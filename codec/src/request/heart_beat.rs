//! HEART_BEAT (34): a client tells a broker which groups it has and what they subscribe to.
//!
//! Invariants:
//! - the body is a [`HeartbeatData`](crate::heartbeat_data::HeartbeatData); the request has no header of its own.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};

header! {
    /// What the broker can do, and whether a subscription changed.
    pub struct HeartBeatReplyHeader {
        supports_v2: Option<bool> = "IS_SUPPORT_HEART_BEAT_V2",
        subscription_changed: Option<bool> = "IS_SUB_CHANGE",
    }
}

/// HEART_BEAT.
pub struct HeartBeat;

impl Request for HeartBeat {
    const CODE: i32 = 34;
    const NAME: &'static str = "HEART_BEAT";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = HeartBeatReplyHeader;
}
