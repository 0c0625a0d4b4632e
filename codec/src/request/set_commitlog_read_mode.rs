//! SET_COMMITLOG_READ_MODE (2004): how the kernel reads ahead in the log.
//!
//! Invariants:
//! - the number is that of `madvise`.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// The mode.
    pub struct SetCommitlogReadModeHeader {
        read_ahead_mode: Text = "READ_AHEAD_MODE",
    }
}

/// SET_COMMITLOG_READ_MODE.
pub struct SetCommitlogReadMode;

impl Request for SetCommitlogReadMode {
    const CODE: i32 = 2004;
    const NAME: &'static str = "SET_COMMITLOG_READ_MODE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = SetCommitlogReadModeHeader;
    type Reply = NoHeader;
}
