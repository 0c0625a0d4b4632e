//! LOCK_BATCH_MQ (41): a client locks queues for orderly consumption, or renews its locks.
//!
//! Invariants:
//! - a queue that another client holds is left out of the answer;
//! - body in: [`LockBody`], body out: [`LockReplyBody`].

use serde::{Deserialize, Serialize};

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::MessageQueue;

/// LOCK_BATCH_MQ.
pub struct LockBatchMq;

impl Request for LockBatchMq {
    const CODE: i32 = 41;
    const NAME: &'static str = "LOCK_BATCH_MQ";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// Queues a client wants to lock or unlock (`LockBatchRequestBody`, `UnlockBatchRequestBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LockBody {
    /// Who.
    pub client_id: Text,
    /// For which group.
    pub consumer_group: Text,
    /// Which queues.
    #[serde(rename = "mqSet")]
    pub queues: Vec<MessageQueue>,
    /// Not to be passed on to the other replicas.
    pub only_this_broker: bool,
}

/// Queues that are locked now (`LockBatchResponseBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LockReplyBody {
    /// Those the client holds.
    #[serde(rename = "lockOKMQSet")]
    pub locked: Vec<MessageQueue>,
}
