//! Floor 0 of TroupeMQ: bytes to values and back, with no I/O, clock or thread.
//!
//! Invariants:
//! - every decoder takes any bytes at all and answers with a value or an error, never a panic;
//! - a length read from a peer is checked before memory is asked for;
//! - every number on the wire and on disk is big-endian.
//!
//! Contents: frames and commands ([`frame`], [`command`], [`fields`], [`header`]), the requests
//! ([`request`]), their answers ([`response`]); messages as they are stored and sent ([`message`]), and
//! what selects them ([`filter`]).
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod base64;
pub mod command;
mod cursor;
pub mod ending;
pub mod error;
pub mod fields;
pub mod filter;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "the bytes of these tests are known")]
mod golden;
pub mod group;
pub mod ha;
pub mod header;
pub mod heartbeat_data;
pub mod language;
pub mod loose_json;
pub mod message;
pub mod order;
mod pattern;
pub mod pop_record;
pub mod request;
pub mod response;
pub mod route;
pub mod sent;
pub mod signature;
pub mod text;
pub mod timer_record;
pub mod topic;
pub mod version;

pub use command::{Command, CommandView, Head, HeaderForm};
pub use error::CodecError;
pub use fields::Fields;
pub use header::{Header, NoHeader};
pub use language::Language;
pub use message::Message;
pub use order::Order;
pub use request::Request;
pub use response::ResponseCode;
pub use sent::Sent;
pub use text::Text;
