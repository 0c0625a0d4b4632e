//! ADD_WRITE_PERM_OF_BROKER (327): producers may use a broker again.
//!
//! Invariants:
//! - sets the permission of all its topics to read and write.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which broker.
    pub struct AddWritePermOfBrokerHeader {
        broker_name: Text = "brokerName",
    }
}

header! {
    /// How many topics it was.
    pub struct AddWritePermOfBrokerReplyHeader {
        topics_changed: i32 = "addTopicCount",
    }
}

/// ADD_WRITE_PERM_OF_BROKER.
pub struct AddWritePermOfBroker;

impl Request for AddWritePermOfBroker {
    const CODE: i32 = 327;
    const NAME: &'static str = "ADD_WRITE_PERM_OF_BROKER";
    const TO: Direction = Direction::ToNameServer;
    type Header = AddWritePermOfBrokerHeader;
    type Reply = AddWritePermOfBrokerReplyHeader;
}
