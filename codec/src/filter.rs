//! Which messages a subscription selects: by tags, by SQL92 over properties.
//!
//! Invariants:
//! - evaluation reads a message's properties in place and allocates nothing.
//!
//! Contents: [`tags`] hashes and tag subscriptions.

pub mod tags;

pub use tags::{TagFilter, java_hash, tags_code, tags_code_of};
