//! Floor 2 of TroupeMQ: the cast of actors, network sessions and the name server.
//!
//! Invariants:
//! - every actor owns its state alone; state is a plain struct that knows no actor, clock or I/O;
//! - nothing blocks an arbiter;
//! - what is acknowledged is visible: it is in its consume queue before the answer is written;
//! - a core actor that dies poisons the node, and the node stops in order.
//!
//! The cast stands in [`CAST`].
#![forbid(unsafe_code)]

pub mod cast;
pub mod config;
pub mod credits;
pub mod directory;
pub mod heartbeat;
pub mod held;
pub mod name_server;
pub mod net;
pub mod offsets;
pub mod poison;
pub mod properties_text;
pub mod rebalance;
pub mod router;
pub mod saving;
pub mod topic;
pub mod watchdog;

pub use cast::{BrokerCast, CAST, NameServerCast, Role};
pub use config::{BrokerConfig, BrokerPart, NameServerPart, NetConfig, NodeClock, NodeConfig};
pub use directory::Directory;
pub use name_server::NameServerConfig;
pub use net::{Answer, Call, CallError, Link, LinkId, Refusal};
