//! The cast: which actors there are, and the addresses by which they know each other.
//!
//! Invariants:
//! - an actor knows others by the addresses it was given here, never by a registry;
//! - a cast is built once, in `node`, and shared behind one `Arc`: nobody clones an address per message;
//! - every role that `node` starts stands in `CAST`, and the other way round.

use std::net::SocketAddr;
use std::sync::Arc;

use actix::Addr;
use arc_swap::ArcSwap;
use troupemq_codec::Text;
use troupemq_store::Clock;

use crate::config::BrokerConfig;
use crate::credits::Credits;
use crate::directory::Directory;
use crate::name_server::NameServerConfig;
use crate::name_server::kv::KvConfig;
use crate::name_server::registry::Routes;
use crate::poison::Poison;

/// One line of the cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// The actor's type.
    pub actor: &'static str,
    /// What there is one of it for.
    pub one_per: &'static str,
    /// What it owns.
    pub owns: &'static str,
}

const fn role(actor: &'static str, one_per: &'static str, owns: &'static str) -> Role {
    Role { actor, one_per, owns }
}

/// Every actor a node starts.
pub const CAST: &[Role] = &[role("Watchdog", "node", "whether the core of the node lives")];

/// What the handlers of a broker know. Shared behind an `Arc`.
#[derive(Debug)]
pub struct BrokerCast {
    /// Behaviour; reloadable keys change by publishing a new one.
    pub config: Arc<ArcSwap<BrokerConfig>>,
    /// Where the time comes from.
    pub clock: crate::config::NodeClock,
    /// Name of the broker.
    pub broker_name: Text,
    /// The address others are told; it stands in message ids and stored records.
    pub advertised: SocketAddr,
    /// Published views of topics, groups and connections.
    pub directory: Arc<Directory>,
    /// Bytes of requests in flight.
    pub credits: Credits,
    /// Why the node is dying, if it is.
    pub poison: Poison,
}

/// What the handlers of a name server know. Shared behind an `Arc`.
#[derive(Debug)]
pub struct NameServerCast {
    /// Behaviour; tools change it by publishing a new one.
    pub config: Arc<ArcSwap<NameServerConfig>>,
    /// Where the time comes from.
    pub clock: crate::config::NodeClock,
    /// When it was started, epoch ms.
    pub started_ms: i64,
    /// Owner of the route tables.
    pub routes: Addr<Routes>,
    /// Owner of keys and values.
    pub kv: Addr<KvConfig>,
}

impl BrokerCast {
    /// Epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.clock.0.now_ms()
    }

    /// The clock itself.
    pub fn clock(&self) -> &dyn Clock {
        self.clock.0.as_ref()
    }
}
