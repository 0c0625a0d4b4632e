//! GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): all consumer groups of a broker; a slave copies them.
//!
//! Invariants:
//! - a client that sends no fields wants everything in one body;
//! - the body of the answer is a [`SubscriptionGroupTable`](crate::group::SubscriptionGroupTable).

use crate::header::header;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which page.
    pub struct GetAllSubscriptiongroupConfigHeader {
        /// Number of the first group wanted, in the order of their names; from 0 on.
        group_seq: Option<i32> = "groupSeq",
        /// Version of the page before, as JSON.
        data_version: Option<Text> = "dataVersion",
        /// Groups wanted.
        groups_max: Option<i32> = "maxGroupNum",
    }
}

header! {
    /// How many there are; old brokers do not say.
    pub struct GetAllSubscriptiongroupConfigReplyHeader {
        groups_total: Option<i32> = "totalGroupNum",
    }
}

/// GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
pub struct GetAllSubscriptiongroupConfig;

impl Request for GetAllSubscriptiongroupConfig {
    const CODE: i32 = 201;
    const NAME: &'static str = "GET_ALL_SUBSCRIPTIONGROUP_CONFIG";
    const TO: Direction = Direction::ClientToBroker;
    type Header = GetAllSubscriptiongroupConfigHeader;
    type Reply = GetAllSubscriptiongroupConfigReplyHeader;
}
