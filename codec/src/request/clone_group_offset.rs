//! CLONE_GROUP_OFFSET (314): copies a group's offsets to another.
//!
//! Invariants:
//! - without a topic all topics are copied.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// From where to where.
    pub struct CloneGroupOffsetHeader {
        source_group: Text = "srcGroup",
        target_group: Text = "destGroup",
        topic: Option<Text> = "topic",
        /// Whether topics count that the source group does not subscribe to now.
        offline: Option<bool> = "offline",
    }
}

/// CLONE_GROUP_OFFSET.
pub struct CloneGroupOffset;

impl Request for CloneGroupOffset {
    const CODE: i32 = 314;
    const NAME: &'static str = "CLONE_GROUP_OFFSET";
    const TO: Direction = Direction::ClientToBroker;
    type Header = CloneGroupOffsetHeader;
    type Reply = NoHeader;
}
