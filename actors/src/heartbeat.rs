//! Which clients live, and for which groups they speak (RocketMQ: `ClientHousekeepingService`,
//! `ProducerManager`).
//!
//! Invariants:
//! - this is a plain state: time is an argument.
//!
//! Contents: `clients` the table.

pub mod clients;
