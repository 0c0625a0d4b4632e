//! SET_MESSAGE_REQUEST_MODE (401): how a group is to read a topic.
//!
//! Invariants:
//! - the body is a [`RequestModeBody`].

use serde::{Deserialize, Serialize};

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::text::Text;

/// SET_MESSAGE_REQUEST_MODE.
pub struct SetMessageRequestMode;

impl Request for SetMessageRequestMode {
    const CODE: i32 = 401;
    const NAME: &'static str = "SET_MESSAGE_REQUEST_MODE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// How a group reads a topic (`SetMessageRequestModeRequestBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestModeBody {
    /// The group.
    pub consumer_group: Text,
    /// How.
    pub mode: RequestMode,
    /// For [`RequestMode::Pop`]: how many other members each one pops the queues of, beside its own; 0 or less: all.
    pub pop_share_queue_num: i32,
    /// The topic.
    pub topic: Text,
}

/// Pull or pop (`MessageRequestMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RequestMode {
    /// Queues belong to clients.
    #[default]
    Pull,
    /// Messages belong to clients for a time.
    Pop,
}
