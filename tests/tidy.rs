//! Rules about the shape of the source that clippy does not know.
//!
//! Invariants:
//! - the list of exceptions may only get shorter.

fn main() {}
