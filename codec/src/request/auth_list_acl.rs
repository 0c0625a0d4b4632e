//! AUTH_LIST_ACL (3010): the permissions of all subjects.
//!
//! Invariants:
//! - the body of the answer is a list in JSON.

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which of them.
    pub struct AuthListAclHeader {
        subject_filter: Option<Text> = "subjectFilter",
        resource_filter: Option<Text> = "resourceFilter",
    }
}

/// AUTH_LIST_ACL.
pub struct AuthListAcl;

impl Request for AuthListAcl {
    const CODE: i32 = 3010;
    const NAME: &'static str = "AUTH_LIST_ACL";
    const TO: Direction = Direction::ClientToBroker;
    type Header = AuthListAclHeader;
    type Reply = NoHeader;
}
