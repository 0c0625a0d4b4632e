//! The `troupemq` program: name server, broker and tools in one binary.
//!
//! Invariants:
//! - standard output belongs to the user of a command, logs go to standard error.
#![forbid(unsafe_code)]

fn main() {}
