//! QUERY_CONSUME_QUEUE (321): units of a consume queue.
//!
//! Invariants:
//! - the body of the answer is a [`ConsumeQueueUnits`].

use serde::{Deserialize, Serialize};

use crate::header::{NoHeader, header};
use crate::heartbeat_data::SubscriptionData;
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which units.
    pub struct QueryConsumeQueueHeader {
        topic: Text = "topic",
        queue_id: i32 = "queueId",
        queue_offset: i64 = "index",
        units_max: i32 = "count",
        /// Whose filter is to be shown.
        group: Option<Text> = "consumerGroup",
    }
}

/// QUERY_CONSUME_QUEUE.
pub struct QueryConsumeQueue;

impl Request for QueryConsumeQueue {
    const CODE: i32 = 321;
    const NAME: &'static str = "QUERY_CONSUME_QUEUE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = QueryConsumeQueueHeader;
    type Reply = NoHeader;
}

/// Units of a consume queue (`QueryConsumeQueueResponseBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeQueueUnits {
    /// The stored filter of the group as Java prints it, `null` for none.
    pub filter_data: Option<Text>,
    /// One past the last unit.
    pub max_queue_index: i64,
    /// The first unit.
    pub min_queue_index: i64,
    /// The units.
    pub queue_data: Vec<ConsumeQueueUnit>,
    /// The subscription of the group.
    pub subscription_data: Option<SubscriptionData>,
}

/// One unit (`ConsumeQueueData`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeQueueUnit {
    /// The bits of filtering groups, from the extension.
    pub bit_map: Option<Text>,
    /// Whether the group's filter was evaluated and passes.
    pub eval: bool,
    /// What went wrong with this unit.
    pub msg: Option<Text>,
    /// Log offset of the message.
    pub physic_offset: i64,
    /// Bytes of the message.
    pub physic_size: i32,
    /// Code of its tags.
    pub tags_code: i64,
}
