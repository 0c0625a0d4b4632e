//! GET_ALL_PRODUCER_INFO (328): all producers of a broker.
//!
//! Invariants:
//! - the body of the answer is a [`ProducerTable`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::NoHeader;
use crate::language::Language;
use crate::request::{Direction, Request};
use crate::text::Text;

/// GET_ALL_PRODUCER_INFO.
pub struct GetAllProducerInfo;

impl Request for GetAllProducerInfo {
    const CODE: i32 = 328;
    const NAME: &'static str = "GET_ALL_PRODUCER_INFO";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// All producers of a broker (`ProducerTableInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerTable {
    /// By group.
    pub data: BTreeMap<Text, Vec<ProducerInfo>>,
}

/// One producer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerInfo {
    /// `ip@instance`.
    pub client_id: Text,
    /// What the client is written in.
    pub language: Language,
    /// Its last heart-beat, in milliseconds.
    pub last_update_timestamp: i64,
    /// `/ip:port`, with the slash that Java prints before an address.
    #[serde(rename = "remoteIP")]
    pub remote_ip: Text,
    /// RocketMQ's number of the client's version.
    pub version: i32,
}
