//! TroupeMQ: a message broker compatible with Apache RocketMQ, made of actors.
//!
//! Invariants:
//! - the facade adds names and defaults, never behaviour: that lives on the floors below.
#![forbid(unsafe_code)]
