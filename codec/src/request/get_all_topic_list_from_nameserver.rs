//! GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206): all topics.
//!
//! Invariants:
//! - the body of the answer is a [`TopicList`].

use serde::{Deserialize, Serialize};

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::text::Text;

/// GET_ALL_TOPIC_LIST_FROM_NAMESERVER.
pub struct GetAllTopicListFromNameserver;

impl Request for GetAllTopicListFromNameserver {
    const CODE: i32 = 206;
    const NAME: &'static str = "GET_ALL_TOPIC_LIST_FROM_NAMESERVER";
    const TO: Direction = Direction::ToNameServer;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// Names of topics (`TopicList`); also the answer to codes 224, 304, 305, 311 to 313 and 343.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicList {
    /// With some codes: a broker that knows more.
    pub broker_addr: Option<Text>,
    /// The names, each once.
    pub topic_list: Vec<Text>,
}
