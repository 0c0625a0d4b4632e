//! The guides, as pages of this documentation; every program on them is run by `cargo test --doc`, every command by
//! the end-to-end tests.
//!
//! Invariants:
//! - the text stands in `docs/` alone.

#[doc = include_str!("../docs/client.md")]
pub mod client {}

#[doc = include_str!("../docs/embedding.md")]
pub mod embedding {}

#[doc = include_str!("../docs/daemon.md")]
pub mod daemon {}

#[doc = include_str!("../docs/migration.md")]
pub mod migration {}
