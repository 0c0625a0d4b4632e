//! AUTH_LIST_USER (3005): all users.
//!
//! Invariants:
//! - the body of the answer is a list in JSON.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Whose names have this in them.
    pub struct AuthListUserHeader {
        filter: Option<Text> = "filter",
    }
}

/// AUTH_LIST_USER.
pub struct AuthListUser;

impl Request for AuthListUser {
    const CODE: i32 = 3005;
    const NAME: &'static str = "AUTH_LIST_USER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthListUserHeader;
    type Reply = NoHeader;
}
