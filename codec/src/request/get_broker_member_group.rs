//! GET_BROKER_MEMBER_GROUP (901): the addresses of one broker name.
//!
//! Invariants:
//! - a name that is not known has no addresses, which is no error;
//! - the body of the answer is a [`BrokerMemberGroupBody`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which broker.
    pub struct GetBrokerMemberGroupHeader {
        cluster_name: Text = "clusterName",
        broker_name: Text = "brokerName",
    }
}

/// GET_BROKER_MEMBER_GROUP.
pub struct GetBrokerMemberGroup;

impl Request for GetBrokerMemberGroup {
    const CODE: i32 = 901;
    const NAME: &'static str = "GET_BROKER_MEMBER_GROUP";
    const TO: Direction = Direction::ToNameServer;
    type Header = GetBrokerMemberGroupHeader;
    type Reply = NoHeader;
}

/// The answer (`GetBrokerMemberGroupResponseBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerMemberGroupBody {
    /// The group.
    pub broker_member_group: BrokerMemberGroup,
}

/// Master and slaves under one broker name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerMemberGroup {
    /// Address by broker id.
    pub broker_addrs: BTreeMap<i64, Text>,
    /// The broker name.
    pub broker_name: Text,
    /// Its cluster.
    pub cluster: Text,
}
