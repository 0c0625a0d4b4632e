//! Floor 1 of TroupeMQ: the files of a broker, mapped and synchronous.
//!
//! Invariants:
//! - the commit log is the truth; every other file is derived from it and can be rebuilt;
//! - no actor, no runtime and no socket is known here;
//! - `unsafe` stands in `mmap.rs` alone.
