//! GET_CONSUMER_CONNECTION_LIST (203): the connections and subscriptions of a consumer group.
//!
//! Invariants:
//! - CONSUMER_NOT_ONLINE if there is none.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::heartbeat_data::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::language::Language;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group.
    pub struct GetConsumerConnectionListHeader {
        group: Text = "consumerGroup",
    }
}

/// GET_CONSUMER_CONNECTION_LIST.
pub struct GetConsumerConnectionList;

impl Request for GetConsumerConnectionList {
    const CODE: i32 = 203;
    const NAME: &'static str = "GET_CONSUMER_CONNECTION_LIST";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetConsumerConnectionListHeader;
    type Reply = NoHeader;
}

/// Who is online in a consumer group, and with what subscription (`ConsumerConnection`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerConnection {
    /// The members.
    pub connection_set: Vec<Connection>,
    /// Where a new group begins.
    pub consume_from_where: ConsumeFromWhere,
    /// Pull, push or pop.
    pub consume_type: ConsumeType,
    /// Whether messages are shared or broadcast.
    pub message_model: MessageModel,
    /// By topic.
    pub subscription_table: BTreeMap<Text, SubscriptionData>,
}

/// One member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Connection {
    /// `ip:port`.
    pub client_addr: Text,
    /// `ip@instance`.
    pub client_id: Text,
    /// What the client is written in.
    pub language: Language,
    /// RocketMQ's number of the client's version.
    pub version: i32,
}
