//! GET_PRODUCER_CONNECTION_LIST (204): the connections of a producer group.
//!
//! Invariants:
//! - SYSTEM_ERROR if there is none.

use serde::{Deserialize, Serialize};

use crate::header::{NoHeader, header};
use crate::request::{Connection, Direction, Request};
use crate::text::Text;

header! {
    /// Which group.
    pub struct GetProducerConnectionListHeader {
        group: Text = "producerGroup",
    }
}

/// GET_PRODUCER_CONNECTION_LIST.
pub struct GetProducerConnectionList;

impl Request for GetProducerConnectionList {
    const CODE: i32 = 204;
    const NAME: &'static str = "GET_PRODUCER_CONNECTION_LIST";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetProducerConnectionListHeader;
    type Reply = NoHeader;
}

/// Who is online in a producer group (`ProducerConnection`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerConnection {
    /// The members.
    pub connection_set: Vec<Connection>,
}
