//! UNREGISTER_CLIENT (35): a client leaves its groups.
//!
//! Invariants:
//! - C++ clients send an empty text for the group they do not mean.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Who leaves what.
    pub struct UnregisterClientHeader {
        client_id: Text = "clientID",
        producer_group: Option<Text> = "producerGroup",
        consumer_group: Option<Text> = "consumerGroup",
    }
}

/// UNREGISTER_CLIENT.
pub struct UnregisterClient;

impl Request for UnregisterClient {
    const CODE: i32 = 35;
    const NAME: &'static str = "UNREGISTER_CLIENT";
    const TO: Direction = Direction::ClientToBroker;
    type Header = UnregisterClientHeader;
    type Reply = NoHeader;
}
