//! The directory: published, read-mostly handles, so that a session reaches what it needs with no hop.
//!
//! Invariants:
//! - a view is immutable: a change publishes a new one;
//! - each table has one writer: links are published by sessions.

use std::sync::Arc;

use dashmap::DashMap;

use crate::net::{Link, LinkId};

/// The tables of a broker that everybody reads.
#[derive(Debug, Default)]
pub struct Directory {
    links: DashMap<LinkId, Arc<Link>>,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Directory {
        Directory::default()
    }

    /// A connection by its name.
    pub fn link(&self, id: LinkId) -> Option<Arc<Link>> {
        self.links.get(&id).map(|entry| entry.value().clone())
    }

    /// How many connections there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }
}
