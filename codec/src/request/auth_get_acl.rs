//! AUTH_GET_ACL (3009): the permissions of a subject.
//!
//! Invariants:
//! - the body of the answer is JSON, or nothing if there are none.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Whose.
    pub struct AuthGetAclHeader {
        subject: Text = "subject",
    }
}

/// AUTH_GET_ACL.
pub struct AuthGetAcl;

impl Request for AuthGetAcl {
    const CODE: i32 = 3009;
    const NAME: &'static str = "AUTH_GET_ACL";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthGetAclHeader;
    type Reply = NoHeader;
}
