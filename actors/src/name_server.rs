//! The name server: who asks which topic is where gets it here.
//!
//! Invariants:
//! - name servers know nothing of each other; brokers register with every one;
//! - all but the key-value configuration lives in memory only.
//!
//! Contents: `routes` the tables, `liveness` which broker lives, `kv` the configuration by key.

pub mod kv;
pub mod liveness;
pub mod routes;
