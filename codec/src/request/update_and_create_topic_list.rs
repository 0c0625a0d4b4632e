//! UPDATE_AND_CREATE_TOPIC_LIST (18): creates or changes several topics.
//!
//! Invariants:
//! - the body is a [`TopicConfigList`].

use serde::{Deserialize, Serialize};

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::topic::TopicConfig;

/// UPDATE_AND_CREATE_TOPIC_LIST.
pub struct UpdateAndCreateTopicList;

impl Request for UpdateAndCreateTopicList {
    const CODE: i32 = 18;
    const NAME: &'static str = "UPDATE_AND_CREATE_TOPIC_LIST";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// The topics (`CreateTopicListRequestBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfigList {
    /// One after the other.
    pub topic_config_list: Vec<TopicConfig>,
}
