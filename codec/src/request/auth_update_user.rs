//! AUTH_UPDATE_USER (3002): changes a user.
//!
//! Invariants:
//! - the body is a [`crate::request::UserInfo`].

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Who.
    pub struct AuthUpdateUserHeader {
        username: Text = "username",
    }
}

/// AUTH_UPDATE_USER.
pub struct AuthUpdateUser;

impl Request for AuthUpdateUser {
    const CODE: i32 = 3002;
    const NAME: &'static str = "AUTH_UPDATE_USER";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthUpdateUserHeader;
    type Reply = NoHeader;
}
