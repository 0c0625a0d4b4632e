//! Floor 2 of TroupeMQ: the cast of actors, network sessions and the name server.
//!
//! Invariants:
//! - every actor owns its state alone; state is a plain struct that knows no actor, clock or I/O;
//! - nothing blocks an arbiter.
#![forbid(unsafe_code)]
