//! AUTH_UPDATE_ACL (3007): changes the permissions of a subject.
//!
//! Invariants:
//! - the body is an [`crate::request::AclInfo`].

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Whose.
    pub struct AuthUpdateAclHeader {
        subject: Text = "subject",
    }
}

/// AUTH_UPDATE_ACL.
pub struct AuthUpdateAcl;

impl Request for AuthUpdateAcl {
    const CODE: i32 = 3007;
    const NAME: &'static str = "AUTH_UPDATE_ACL";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthUpdateAclHeader;
    type Reply = NoHeader;
}
