//! GET_BROKER_CONFIG (26): the settings of a broker.
//!
//! Invariants:
//! - the body of the answer is lines of `key=value`.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which version of the settings it is.
    pub struct GetBrokerConfigReplyHeader {
        /// A data version as JSON.
        version: Option<Text> = "version",
    }
}

/// GET_BROKER_CONFIG.
pub struct GetBrokerConfig;

impl Request for GetBrokerConfig {
    const CODE: i32 = 26;
    const NAME: &'static str = "GET_BROKER_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = GetBrokerConfigReplyHeader;
}
