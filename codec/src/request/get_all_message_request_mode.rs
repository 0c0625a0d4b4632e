//! GET_ALL_MESSAGE_REQUEST_MODE (402): how each group reads each topic.
//!
//! Invariants:
//! - the body of the answer is a [`RequestModeTable`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::NoHeader;
use crate::request::RequestModeBody;
use crate::request::{Direction, Request};
use crate::text::Text;

/// GET_ALL_MESSAGE_REQUEST_MODE.
pub struct GetAllMessageRequestMode;

impl Request for GetAllMessageRequestMode {
    const CODE: i32 = 402;
    const NAME: &'static str = "GET_ALL_MESSAGE_REQUEST_MODE";
    const TO: Direction = Direction::BrokerToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// Modes by topic and group (`MessageRequestModeSerializeWrapper`, `config/messageRequestMode.json`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestModeTable {
    /// First the topic, then the group.
    pub message_request_mode_map: BTreeMap<Text, BTreeMap<Text, RequestModeBody>>,
}
