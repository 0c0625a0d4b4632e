//! GET_KVLIST_BY_NAMESPACE (219): all values of a namespace.
//!
//! Invariants:
//! - QUERY_NOT_FOUND if there is none;
//! - the body of the answer is a [`KvTable`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::{NoHeader, header};
use crate::request::{Direction, Request};
use crate::text::Text;

header! {
    /// Which namespace.
    pub struct GetKvlistByNamespaceHeader {
        namespace: Text = "namespace",
    }
}

/// GET_KVLIST_BY_NAMESPACE.
pub struct GetKvlistByNamespace;

impl Request for GetKvlistByNamespace {
    const CODE: i32 = 219;
    const NAME: &'static str = "GET_KVLIST_BY_NAMESPACE";
    const TO: Direction = Direction::ToNameServer;
    type Header = GetKvlistByNamespaceHeader;
    type Reply = NoHeader;
}

/// Texts by key (`KVTable`); also the answer to codes 28 and 103.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KvTable {
    /// The pairs.
    pub table: BTreeMap<Text, Text>,
}
