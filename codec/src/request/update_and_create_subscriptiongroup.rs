//! UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): creates or changes a consumer group.
//!
//! Invariants:
//! - the body is a [`SubscriptionGroupConfig`](crate::group::SubscriptionGroupConfig).

use crate::header::NoHeader;
use crate::request::{Direction, Request};

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
pub struct UpdateAndCreateSubscriptiongroup;

impl Request for UpdateAndCreateSubscriptiongroup {
    const CODE: i32 = 200;
    const NAME: &'static str = "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}
