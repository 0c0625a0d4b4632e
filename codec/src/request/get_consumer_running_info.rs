//! GET_CONSUMER_RUNNING_INFO (307): what a consumer is doing.
//!
//! Invariants:
//! - the broker passes request and answer on as they are.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::heartbeat_data::SubscriptionData;
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::MessageQueue;

header! {
    /// Which client.
    pub struct GetConsumerRunningInfoHeader {
        group: Text = "consumerGroup",
        client_id: Text = "clientId",
        with_stacks: Option<bool> = "jstackEnable",
    }
}

/// GET_CONSUMER_RUNNING_INFO.
pub struct GetConsumerRunningInfo;

impl Request for GetConsumerRunningInfo {
    const CODE: i32 = 307;
    const NAME: &'static str = "GET_CONSUMER_RUNNING_INFO";
    const TO: Direction = Direction::ThroughBroker;
    type Header = GetConsumerRunningInfoHeader;
    type Reply = NoHeader;
}

/// What a consumer is doing (`ConsumerRunningInfo`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerRunningInfo {
    /// Stacks of its threads, if asked for.
    pub jstack: Option<Text>,
    /// Queues it pops, by queue.
    #[serde(rename = "mqPopTable")]
    pub popped_queues: BTreeMap<MessageQueue, PopQueueInfo>,
    /// Queues it pulls, by queue.
    #[serde(rename = "mqTable")]
    pub pulled_queues: BTreeMap<MessageQueue, ProcessQueueInfo>,
    /// Its settings; the `PROP_…` keys are read by tools.
    pub properties: BTreeMap<Text, Text>,
    /// By topic.
    pub status_table: BTreeMap<Text, ConsumeStatus>,
    /// What it has subscribed.
    pub subscription_set: Vec<SubscriptionData>,
    /// What the application adds.
    pub user_consumer_info: BTreeMap<Text, Text>,
}

/// A queue that a client pulls; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessQueueInfo {
    /// Messages in memory.
    pub cached_msg_count: i32,
    /// The last of them.
    pub cached_msg_max_offset: i64,
    /// The first of them.
    pub cached_msg_min_offset: i64,
    /// Their bodies.
    pub cached_msg_size_in_mi_b: i32,
    /// What it has committed.
    pub commit_offset: i64,
    /// Given up; Java's spelling.
    pub droped: bool,
    /// When it consumed last.
    pub last_consume_timestamp: i64,
    /// When it locked the queue last.
    pub last_lock_timestamp: i64,
    /// When it pulled last.
    pub last_pull_timestamp: i64,
    /// Whether it holds the lock of the queue.
    pub locked: bool,
    /// Messages that an orderly listener has in its hands.
    pub transaction_msg_count: i32,
    /// The last of them.
    pub transaction_msg_max_offset: i64,
    /// The first of them.
    pub transaction_msg_min_offset: i64,
    /// How often it tried to give the lock up.
    pub try_unlock_times: i64,
}

/// A queue that a client pops.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PopQueueInfo {
    /// Given up; Java's spelling.
    pub droped: bool,
    /// When it popped last, in milliseconds.
    pub last_pop_timestamp: i64,
    /// Messages not acknowledged yet.
    pub wait_ack_count: i32,
}

/// How a client gets on with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStatus {
    /// Failures of the last hour.
    pub consume_failed_msgs: i64,
    /// Failures a second.
    #[serde(rename = "consumeFailedTPS")]
    pub consume_failed_tps: f64,
    /// Successes a second.
    #[serde(rename = "consumeOKTPS")]
    pub consume_ok_tps: f64,
    /// Milliseconds for one message.
    #[serde(rename = "consumeRT")]
    pub consume_rt: f64,
    /// Milliseconds for one pull.
    #[serde(rename = "pullRT")]
    pub pull_rt: f64,
    /// Pulls a second.
    #[serde(rename = "pullTPS")]
    pub pull_tps: f64,
}
