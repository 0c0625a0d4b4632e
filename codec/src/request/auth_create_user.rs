//! AUTH_CREATE_USER (3001): creates a user.
//!
//! Invariants:
//! - the body is JSON.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Who.
    pub struct AuthCreateUserHeader {
        username: Text = "username",
    }
}

/// AUTH_CREATE_USER.
pub struct AuthCreateUser;

impl Request for AuthCreateUser {
    const CODE: i32 = 3001;
    const NAME: &'static str = "AUTH_CREATE_USER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthCreateUserHeader;
    type Reply = NoHeader;
}
