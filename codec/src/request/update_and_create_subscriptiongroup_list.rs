//! UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): creates or changes several consumer groups.
//!
//! Invariants:
//! - the body is a [`SubscriptionGroupList`].

use serde::{Deserialize, Serialize};

use crate::group::SubscriptionGroupConfig;
use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST.
pub struct UpdateAndCreateSubscriptiongroupList;

impl Request for UpdateAndCreateSubscriptiongroupList {
    const CODE: i32 = 225;
    const NAME: &'static str = "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// The groups (`SubscriptionGroupList`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupList {
    /// One after the other.
    pub group_config_list: Vec<SubscriptionGroupConfig>,
}
