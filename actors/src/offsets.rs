//! How far each group has read (RocketMQ: `ConsumerOffsetManager`).
//!
//! Invariants:
//! - this is a plain state: nothing is written to disk here.
//!
//! Contents: `progress` the table.

pub mod progress;
