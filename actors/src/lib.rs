//! Floor 2 of TroupeMQ: the cast of actors, network sessions and the name server.
//!
//! Invariants:
//! - every actor owns its state alone; state is a plain struct that knows no actor, clock or I/O;
//! - nothing blocks an arbiter;
//! - what is acknowledged is visible: it is in its consume queue before the answer is written;
//! - a core actor that dies poisons the node, and the node stops in order.
//!
//! The cast stands in [`CAST`]; `node` starts it, in that order, and stops it in reverse.
#![forbid(unsafe_code)]

pub mod admin;
pub mod assignment;
pub mod cast;
pub mod cold_flow;
pub mod cold_reader;
pub mod commit_log;
pub mod config;
pub mod credits;
pub mod delayed;
mod deliverer;
pub mod detour;
pub mod directory;
pub mod dispatcher;
mod feed;
pub mod filters;
pub mod flush;
#[cfg(test)]
mod golden;
pub mod groups;
pub mod heartbeat;
pub mod held;
pub mod lookups;
mod memory;
pub mod name_server;
pub mod net;
pub mod node;
pub mod offsets;
pub mod own_route;
pub mod poison;
pub mod properties_text;
pub mod pull;
pub mod query;
pub mod queue;
pub mod read_ahead;
pub mod rebalance;
pub mod registrar;
pub mod reply;
pub mod retention;
pub mod retry;
pub mod router;
pub mod saving;
pub mod schedule;
pub mod send;
pub mod settings;
pub mod stats;
#[cfg(test)]
pub mod testing;
pub mod timer;
pub mod together;
pub mod topic;
pub mod topics;
pub mod transaction;
pub mod watchdog;

pub use cast::{BrokerCast, CAST, NameServerCast, Role};
pub use config::{BrokerConfig, BrokerPart, NameServerPart, NetConfig, NodeClock, NodeConfig};
pub use directory::Directory;
pub use name_server::NameServerConfig;
pub use net::{Answer, Call, CallError, Link, LinkId, Refusal};
pub use node::{Node, NodeError, NodeHandle};
