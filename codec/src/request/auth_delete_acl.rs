//! AUTH_DELETE_ACL (3008): deletes permissions of a subject.
//!
//! Invariants:
//! - without a resource all of them go.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Whose, and which.
    pub struct AuthDeleteAclHeader {
        subject: Text = "subject",
        policy_type: Option<Text> = "policyType",
        resource: Option<Text> = "resource",
    }
}

/// AUTH_DELETE_ACL.
pub struct AuthDeleteAcl;

impl Request for AuthDeleteAcl {
    const CODE: i32 = 3008;
    const NAME: &'static str = "AUTH_DELETE_ACL";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthDeleteAclHeader;
    type Reply = NoHeader;
}
