//! The members of a consumer group, what they read, and who holds which queue
//! (RocketMQ: `ConsumerManager`, `RebalanceLockManager`).
//!
//! Invariants:
//! - these are plain states: time is an argument, nobody is told anything here.
//!
//! Contents: `members` who belongs to the group, `locks` leases on queues, `assign` who reads which queue.

pub mod assign;
pub mod locks;
pub mod members;
