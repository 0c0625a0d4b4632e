//! DELETE_SUBSCRIPTIONGROUP (207): deletes a consumer group.
//!
//! Invariants:
//! - a group that is not there is no error.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group.
    pub struct DeleteSubscriptiongroupHeader {
        group: Text = "groupName",
        /// Its offsets too.
        clean_offset: Option<bool> = "cleanOffset",
    }
}

/// DELETE_SUBSCRIPTIONGROUP.
pub struct DeleteSubscriptiongroup;

impl Request for DeleteSubscriptiongroup {
    const CODE: i32 = 207;
    const NAME: &'static str = "DELETE_SUBSCRIPTIONGROUP";
    const TO: Direction = Direction::ClientToBroker;
    type Header = DeleteSubscriptiongroupHeader;
    type Reply = NoHeader;
}
