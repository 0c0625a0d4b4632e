//! QUERY_SUBSCRIPTION_BY_CONSUMER (345): the subscription of a group to a topic.
//!
//! Invariants:
//! - the body of the answer is a [`SubscriptionOfGroup`].

use serde::{Deserialize, Serialize};

use crate::header::{NoHeader, header};
use crate::heartbeat_data::SubscriptionData;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group and topic.
    pub struct QuerySubscriptionByConsumerHeader {
        group: Text = "group",
        topic: Text = "topic",
    }
}

/// QUERY_SUBSCRIPTION_BY_CONSUMER.
pub struct QuerySubscriptionByConsumer;

impl Request for QuerySubscriptionByConsumer {
    const CODE: i32 = 345;
    const NAME: &'static str = "QUERY_SUBSCRIPTION_BY_CONSUMER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QuerySubscriptionByConsumerHeader;
    type Reply = NoHeader;
}

/// The answer (`QuerySubscriptionResponseBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionOfGroup {
    /// The group.
    pub group: Text,
    /// Its subscription, if it is online.
    pub subscription_data: Option<SubscriptionData>,
    /// The topic.
    pub topic: Text,
}
