//! AUTH_DELETE_USER (3003): deletes a user.
//!
//! Invariants:
//! - a user that is not there is no error.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Who.
    pub struct AuthDeleteUserHeader {
        username: Text = "username",
    }
}

/// AUTH_DELETE_USER.
pub struct AuthDeleteUser;

impl Request for AuthDeleteUser {
    const CODE: i32 = 3003;
    const NAME: &'static str = "AUTH_DELETE_USER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthDeleteUserHeader;
    type Reply = NoHeader;
}
