//! Builds what a broker is known by: its topics and its registration.
//!
//! Invariants:
//! - a broker that names no name server registers with that of its own node, if there is one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use actix::Addr;
use arc_swap::ArcSwap;
use troupemq_codec::Text;
use troupemq_store::QueueTable;
use troupemq_store::tables::TableFile;

use crate::config::{BrokerConfig, BrokerPart, NodeConfig};
use crate::directory::Directory;
use crate::node::{NodeError, Stage};
use crate::registrar::{Identity, Registrar, RegistrarParts, addresses};
use crate::retention::Retention;
use crate::topics::{TellChanges, TopicParts, Topics};

/// The owner of the topics, and who tells the name servers of them.
pub(super) struct Naming {
    pub(super) topics: Addr<Topics>,
    pub(super) registrar: Addr<Registrar>,
}

/// What the topics of a broker are made from.
pub(super) struct Known<'a> {
    pub(super) shared: &'a Arc<ArcSwap<BrokerConfig>>,
    pub(super) directory: &'a Arc<Directory>,
    pub(super) queues: &'a QueueTable,
    pub(super) retention: &'a Retention,
}

/// Starts both.
pub(super) fn start(
    stage: &mut Stage,
    config: &NodeConfig,
    part: &BrokerPart,
    advertised: SocketAddr,
    Known { shared, directory, queues, retention }: Known<'_>,
) -> Result<Naming, NodeError> {
    let broker = &part.config;
    let (file, saved) = TableFile::open(&part.store.dir)?;
    stage.enter("Topics");
    stage.enter("Topic");
    let parts = TopicParts {
        directory: directory.clone(),
        queues: queues.clone(),
        retention: retention.clone(),
        clock: config.clock.clone(),
        file: Some(file),
        config: shared.clone(),
        poison: stage.poison.clone(),
    };
    let topics = Topics::new(parts, saved).launch();
    stage.enter("Registrar");
    let registrar = Registrar::new(RegistrarParts {
        identity: identity(broker, advertised),
        name_servers: name_servers(broker, stage.own_name_server),
        topics: topics.clone(),
        sessions: stage.sessions[0].clone(),
        config: shared.clone(),
        clock: config.clock.clone(),
    })
    .launch();
    #[expect(clippy::disallowed_methods, reason = "the first message of a mailbox that is empty")]
    topics.do_send(TellChanges(registrar.clone().recipient()));
    Ok(Naming { topics, registrar })
}

fn identity(broker: &BrokerConfig, advertised: SocketAddr) -> Identity {
    let ha_port = advertised.port().checked_add(1).unwrap_or(advertised.port());
    Identity {
        cluster: Text::from(broker.broker_cluster_name.as_str()),
        broker: Text::from(broker.broker_name.as_str()),
        id: broker.broker_id,
        address: Text::from(advertised.to_string()),
        ha_address: Text::from(SocketAddr::new(advertised.ip(), ha_port).to_string()),
    }
}

fn name_servers(broker: &BrokerConfig, own: Option<SocketAddr>) -> Vec<String> {
    let named = addresses(&broker.namesrv_addr);
    match own {
        Some(own) if named.is_empty() => vec![reachable(own).to_string()],
        _ => named,
    }
}

/// The address by which a port of this machine is reached from this machine.
fn reachable(opened: SocketAddr) -> SocketAddr {
    let ip = match opened.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, opened.port())
}
