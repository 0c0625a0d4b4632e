//! AUTH_CREATE_ACL (3006): creates the permissions of a subject.
//!
//! Invariants:
//! - the body is JSON.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Whose.
    pub struct AuthCreateAclHeader {
        subject: Text = "subject",
    }
}

/// AUTH_CREATE_ACL.
pub struct AuthCreateAcl;

impl Request for AuthCreateAcl {
    const CODE: i32 = 3006;
    const NAME: &'static str = "AUTH_CREATE_ACL";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthCreateAclHeader;
    type Reply = NoHeader;
}
