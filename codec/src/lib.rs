//! Floor 0 of TroupeMQ: bytes to values and back, with no I/O, clock or thread.
//!
//! Invariants:
//! - every decoder takes any bytes at all and answers with a value or an error, never a panic;
//! - a length read from a peer is checked before memory is asked for;
//! - every number on the wire and on disk is big-endian.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod error;
pub mod filter;
pub mod message;
pub mod text;

pub use error::CodecError;
pub use message::Message;
pub use text::Text;
