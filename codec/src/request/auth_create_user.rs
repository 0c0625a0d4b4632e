//! AUTH_CREATE_USER (3001): creates a user.
//!
//! Invariants:
//! - the body is a [`UserInfo`].

use serde::{Deserialize, Serialize};

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

/// A user (`UserInfo`); also of the other codes for users. What is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserInfo {
    /// In clear.
    pub password: Option<Text>,
    /// `enable` or `disable`.
    pub user_status: Option<Text>,
    /// `Super` or `Normal`.
    pub user_type: Option<Text>,
    /// The name; the header's counts.
    pub username: Option<Text>,
}
