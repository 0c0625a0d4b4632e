//! EXCHANGE_BROKER_HA_INFO (906): where a slave finds its master, and how far that has flushed.
//!
//! Invariants:
//! - an empty request asks, a filled one tells.

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// What the sender knows.
    pub struct ExchangeBrokerHaInfoHeader {
        master_ha_address: Option<Text> = "masterHaAddress",
        master_flush_offset: Option<i64> = "masterFlushOffset",
        master_address: Option<Text> = "masterAddress",
    }
}

header! {
    /// What the receiver knows.
    pub struct ExchangeBrokerHaInfoReplyHeader {
        master_ha_address: Option<Text> = "masterHaAddress",
        master_flush_offset: Option<i64> = "masterFlushOffset",
        master_address: Option<Text> = "masterAddress",
    }
}

/// EXCHANGE_BROKER_HA_INFO.
pub struct ExchangeBrokerHaInfo;

impl Request for ExchangeBrokerHaInfo {
    const CODE: i32 = 906;
    const NAME: &'static str = "EXCHANGE_BROKER_HA_INFO";
    const TO: Direction = Direction::BrokerToBroker;
    type Header = ExchangeBrokerHaInfoHeader;
    type Reply = ExchangeBrokerHaInfoReplyHeader;
}
