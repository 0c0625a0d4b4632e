//! UPDATE_AND_GET_GROUP_FORBIDDEN (353): forbids or allows a group to read a topic, and tells which it is.
//!
//! Invariants:
//! - the body of the answer is a [`GroupForbidden`].

use serde::{Deserialize, Serialize};

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which group and topic.
    pub struct UpdateAndGetGroupForbiddenHeader {
        group: Text = "group",
        topic: Text = "topic",
        /// Absent: only tell.
        readable: Option<bool> = "readable",
    }
}

/// UPDATE_AND_GET_GROUP_FORBIDDEN.
pub struct UpdateAndGetGroupForbidden;

impl Request for UpdateAndGetGroupForbidden {
    const CODE: i32 = 353;
    const NAME: &'static str = "UPDATE_AND_GET_GROUP_FORBIDDEN";
    const TO: Direction = Direction::ClientToBroker;
    type Header = UpdateAndGetGroupForbiddenHeader;
    type Reply = NoHeader;
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupForbidden {
    /// The group.
    pub group: Text,
    /// Whether it may read.
    pub readable: bool,
    /// The topic.
    pub topic: Text,
}
