//! QUERY_ASSIGNMENT (400): which queues a client is to read, decided by the broker.
//!
//! Invariants:
//! - no list means that the client keeps what it has, an empty list that it drops everything;
//! - body in: [`AssignmentBody`], body out: [`AssignmentReplyBody`].

use serde::{Deserialize, Serialize};

use crate::header::NoHeader;
use crate::heartbeat_data::MessageModel;
use crate::request::RequestMode;
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::MessageQueue;

/// QUERY_ASSIGNMENT.
pub struct QueryAssignment;

impl Request for QueryAssignment {
    const CODE: i32 = 400;
    const NAME: &'static str = "QUERY_ASSIGNMENT";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// Who asks, and for what (`QueryAssignmentRequestBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AssignmentBody {
    /// The client.
    pub client_id: Text,
    /// Its group.
    pub consumer_group: Text,
    /// How the group shares a topic.
    pub message_model: MessageModel,
    /// `AVG` or `AVG_BY_CIRCLE`.
    pub strategy_name: Option<Text>,
    /// The topic.
    pub topic: Text,
}

/// The queues (`QueryAssignmentResponseBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AssignmentReplyBody {
    /// `None` if no valid result could be found.
    pub message_queue_assignments: Option<Vec<QueueAssignment>>,
}

/// One queue and how it is to be read (`MessageQueueAssignment`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueAssignment {
    /// The queue; id -1 stands for all of the broker.
    pub message_queue: MessageQueue,
    /// How.
    pub mode: RequestMode,
}
