//! WIPE_WRITE_PERM_OF_BROKER (205): producers are to leave a broker alone.
//!
//! Invariants:
//! - only until the broker registers its topics again.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which broker.
    pub struct WipeWritePermOfBrokerHeader {
        broker_name: Text = "brokerName",
    }
}

header! {
    /// How many topics it was.
    pub struct WipeWritePermOfBrokerReplyHeader {
        topics_changed: i32 = "wipeTopicCount",
    }
}

/// WIPE_WRITE_PERM_OF_BROKER.
pub struct WipeWritePermOfBroker;

impl Request for WipeWritePermOfBroker {
    const CODE: i32 = 205;
    const NAME: &'static str = "WIPE_WRITE_PERM_OF_BROKER";
    const TO: Direction = Direction::ToNameServer;
    type Header = WipeWritePermOfBrokerHeader;
    type Reply = WipeWritePermOfBrokerReplyHeader;
}
