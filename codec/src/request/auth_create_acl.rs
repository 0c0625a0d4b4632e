//! AUTH_CREATE_ACL (3006): creates the permissions of a subject.
//!
//! Invariants:
//! - the body is an [`AclInfo`].

use serde::{Deserialize, Serialize};

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

/// What a subject may do (`AclInfo`); also of the other codes for access lists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AclInfo {
    /// The policies.
    pub policies: Vec<PolicyInfo>,
    /// `User:name`.
    pub subject: Option<Text>,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyInfo {
    /// What it says.
    pub entries: Vec<PolicyEntry>,
    /// `Custom` or `Default`.
    pub policy_type: Option<Text>,
}

/// One rule (`PolicyEntryInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyEntry {
    /// `Pub`, `Sub`, `Create`, …, or `All`; the case does not matter.
    pub actions: Vec<Text>,
    /// `Allow` or `Deny`; the case does not matter.
    pub decision: Option<Text>,
    /// `Topic:name`, `Group:name`, `Cluster:name` or `Any:*`; `*` at the end makes a prefix of it.
    pub resource: Option<Text>,
    /// Addresses and networks; absent: all.
    pub source_ips: Option<Vec<Text>>,
}
