//! QUERY_TOPIC_CONSUME_BY_WHO (300): which groups read a topic.
//!
//! Invariants:
//! - those that subscribe now and those with offsets;
//! - the body of the answer is a [`GroupList`].

use serde::{Deserialize, Serialize};

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which topic.
    pub struct QueryTopicConsumeByWhoHeader {
        topic: Text = "topic",
    }
}

/// QUERY_TOPIC_CONSUME_BY_WHO.
pub struct QueryTopicConsumeByWho;

impl Request for QueryTopicConsumeByWho {
    const CODE: i32 = 300;
    const NAME: &'static str = "QUERY_TOPIC_CONSUME_BY_WHO";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QueryTopicConsumeByWhoHeader;
    type Reply = NoHeader;
}

/// Names of groups (`GroupList`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupList {
    /// Each once.
    pub group_list: Vec<Text>,
}
