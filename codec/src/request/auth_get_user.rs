//! AUTH_GET_USER (3004): one user.
//!
//! Invariants:
//! - the body of the answer is JSON, or nothing if there is no such user.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Who.
    pub struct AuthGetUserHeader {
        username: Text = "username",
    }
}

/// AUTH_GET_USER.
pub struct AuthGetUser;

impl Request for AuthGetUser {
    const CODE: i32 = 3004;
    const NAME: &'static str = "AUTH_GET_USER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthGetUserHeader;
    type Reply = NoHeader;
}
