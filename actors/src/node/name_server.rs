//! Builds the name server of a node.
//!
//! Invariants:
//! - its actors run on arbiter 0.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::cast::NameServerCast;
use crate::config::{NameServerPart, NodeConfig};
use crate::net::listener::{Listener, bind};
use crate::node::{NodeError, Stage};
use crate::router::Served;

/// A name server that is ready to be listened for.
pub(super) struct Built {
    pub(super) address: SocketAddr,
    pub(super) cast: Arc<NameServerCast>,
    pub(super) listener: Listener,
}

/// Builds it.
pub(super) fn build(
    stage: &mut Stage,
    config: &NodeConfig,
    part: &NameServerPart,
) -> Result<Built, NodeError> {
    let failed = |cause| NodeError::Port { address: part.listen, cause };
    let socket = bind(part.listen).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    stage.enter("Routes");
    stage.enter("KvConfig");
    stage.enter("Settings");
    let cast = Arc::new(NameServerCast::start(part.config.clone(), config.clock.clone())?);
    let listener = Listener::new(socket, stage.sessions.clone(), Served::NameServer(cast.clone()));
    Ok(Built { address, cast, listener })
}
