//! GET_SUBSCRIPTIONGROUP_CONFIG (352): one consumer group of a broker.
//!
//! Invariants:
//! - the body of the answer is a [`SubscriptionGroupConfig`](crate::group::SubscriptionGroupConfig).

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group.
    pub struct GetSubscriptiongroupConfigHeader {
        group: Text = "group",
    }
}

/// GET_SUBSCRIPTIONGROUP_CONFIG.
pub struct GetSubscriptiongroupConfig;

impl Request for GetSubscriptiongroupConfig {
    const CODE: i32 = 352;
    const NAME: &'static str = "GET_SUBSCRIPTIONGROUP_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetSubscriptiongroupConfigHeader;
    type Reply = NoHeader;
}
