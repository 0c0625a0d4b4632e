//! NOTIFY_CONSUMER_IDS_CHANGED (40): a member of a consumer group came, left or changed its subscription;
//! one-way.
//!
//! Invariants:
//! - clients rebalance as soon as they read it.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group.
    pub struct NotifyConsumerIdsChangedHeader {
        group: Text = "consumerGroup",
    }
}

/// NOTIFY_CONSUMER_IDS_CHANGED.
pub struct NotifyConsumerIdsChanged;

impl Request for NotifyConsumerIdsChanged {
    const CODE: i32 = 40;
    const NAME: &'static str = "NOTIFY_CONSUMER_IDS_CHANGED";
    const TO: Direction = Direction::BrokerToClient;
    type Header = NotifyConsumerIdsChangedHeader;
    type Reply = NoHeader;
}
