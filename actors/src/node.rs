//! The node: builds the cast in order and stops it in reverse. Java: `BrokerController`, `NamesrvController`.
//!
//! Invariants:
//! - a node lives in an actix system of its own on a thread of its own; nothing of it is global, so several
//!   live in one process;
//! - ports are opened first, so that a port in use is known before a store is touched; they are listened on
//!   last, so that nobody is served before everything is there;
//! - the stop goes in reverse: name servers told, no new connections, sessions closed, tables saved, log
//!   flushed, queues flushed, checkpoint, abort mark gone. A poisoned node skips what can no longer be trusted:
//!   the next start recovers.
//!
//! Contents: `broker` and `name_server` build the parts, `naming` what a broker is known by.

#[cfg(test)]
mod assignment_test;
#[cfg(test)]
mod batch_test;
mod broker;
#[cfg(test)]
mod check_test;
#[cfg(test)]
mod damage_test;
mod delivery;
#[cfg(test)]
mod delivery_statement_test;
#[cfg(test)]
mod delivery_test;
#[cfg(test)]
mod detour_test;
#[cfg(test)]
mod end_to_end_test;
#[cfg(test)]
mod filter_test;
#[cfg(test)]
mod full_disk_test;
#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod group_test;
#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod light_test;
#[cfg(test)]
mod mailbox_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod mutation_test;
mod name_server;
mod naming;
#[cfg(test)]
mod offset_test;
mod people;
#[cfg(test)]
mod property_test;
#[cfg(test)]
mod put_off_test;
#[cfg(test)]
mod read_test;
mod regained;
#[cfg(test)]
mod regained_test;
#[cfg(test)]
mod retry_test;
#[cfg(test)]
mod send_back_test;
#[cfg(test)]
mod send_test;
#[cfg(test)]
mod statement_test;
#[cfg(test)]
mod sync_test;
#[cfg(test)]
mod takeover_test;
#[cfg(test)]
mod timer_golden_test;
#[cfg(test)]
mod timer_model_test;
#[cfg(test)]
mod timer_test;
#[cfg(test)]
mod topic_test;
#[cfg(test)]
mod transaction_test;
#[cfg(test)]
mod units_test;
#[cfg(test)]
mod unnoted_test;
#[cfg(test)]
mod unreadable_test;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use actix::{Actor, Addr, Arbiter, ArbiterHandle, System};
use tokio::sync::{Notify, watch};
use troupemq_store::faults::{self, Phase};

use crate::cast::{BrokerCast, NameServerCast};
use crate::config::{ConfigError, NodeConfig};
use crate::credits::Credits;
use crate::net::listener::{Listener, StopListening};
use crate::net::sessions::{CloseAll, Sessions};
use crate::poison::Poison;
use crate::registrar::Settled;
use crate::watchdog::{StandDown, Watchdog};

/// How long sessions may take to write what waits when the node stops.
const CLOSING: Duration = Duration::from_secs(5);

/// Starts nodes.
#[derive(Debug)]
pub struct Node;

/// A running node; clones are handles of the same node. It keeps running when all handles are dropped.
#[derive(Debug, Clone)]
pub struct NodeHandle {
    parts: Arc<Parts>,
    stop: Arc<Notify>,
    ended: watch::Receiver<Option<Result<(), Arc<NodeError>>>>,
}

/// Why a node could not start, or how it ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A setting is wrong.
    #[error("setting {0}")]
    Config(#[from] ConfigError),
    /// The store could not be opened or closed.
    #[error(transparent)]
    Store(#[from] troupemq_store::StoreError),
    /// A port could not be opened.
    #[error("cannot listen on {address}: {cause}")]
    Port {
        /// The address wanted.
        address: SocketAddr,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start the thread {name}: {cause}")]
    Thread {
        /// What the thread was for.
        name: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The node stopped because it could not be trusted any more.
    #[error("stopped: {cause}")]
    Poisoned {
        /// The first cause.
        cause: String,
    },
    /// A part did not give back what it owned.
    #[error("the stop was not complete: {part} is gone")]
    Incomplete {
        /// The part.
        part: &'static str,
    },
}

/// What a started node tells about itself.
#[derive(Debug, Default)]
struct Parts {
    broker: Option<(Option<SocketAddr>, Arc<BrokerCast>)>,
    name_server: Option<(SocketAddr, Arc<NameServerCast>)>,
    cast: Vec<&'static str>,
}

impl Node {
    /// Starts a node and returns when it serves.
    pub fn start(config: NodeConfig) -> Result<NodeHandle, NodeError> {
        let (tell, started) = std::sync::mpsc::channel();
        let launched = launch(config, move |outcome| tell.send(outcome).is_ok(), || {})?;
        launched.into_handle(started.recv().unwrap_or_else(|_| gone()))
    }

    /// Starts a node without blocking the thread that waits; `after` runs on the node's thread when it has ended.
    pub async fn start_within(
        config: NodeConfig,
        after: impl FnOnce() + Send + 'static,
    ) -> Result<NodeHandle, NodeError> {
        let (tell, started) = tokio::sync::oneshot::channel();
        let launched = launch(config, move |outcome| tell.send(outcome).is_ok(), after)?;
        let mut unclaimed = Unclaimed(Some(launched.stop.clone()));
        let outcome = started.await.unwrap_or_else(|_| gone());
        unclaimed.0 = None;
        launched.into_handle(outcome)
    }
}

/// Stops a node that has told that it stands when nobody was waiting any more.
struct Unclaimed(Option<Arc<Notify>>);

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop.notify_one();
        }
    }
}

/// A node whose start is not known to have succeeded.
struct Launched {
    stop: Arc<Notify>,
    ended: watch::Receiver<Option<Result<(), Arc<NodeError>>>>,
}

impl Launched {
    fn into_handle(self, started: Result<Parts, NodeError>) -> Result<NodeHandle, NodeError> {
        Ok(NodeHandle { parts: Arc::new(started?), stop: self.stop, ended: self.ended })
    }
}

/// Starts the thread of a node. `started` tells whether anybody waits for the node: else it stops at once.
fn launch(
    config: NodeConfig,
    started: impl FnOnce(Result<Parts, NodeError>) -> bool + Send + 'static,
    after: impl FnOnce() + Send + 'static,
) -> Result<Launched, NodeError> {
    config.check()?;
    let (ended_by, ended) = watch::channel(None);
    let stop = Arc::new(Notify::new());
    let wanted = stop.clone();
    std::thread::Builder::new()
        .name("node".to_owned())
        .spawn(move || {
            let outcome = System::new().block_on(live(config, started, wanted));
            after();
            ended_by.send_replace(Some(outcome.map_err(Arc::new)));
        })
        .map_err(|cause| NodeError::Thread { name: "node", cause })?;
    Ok(Launched { stop, ended })
}

fn gone() -> Result<Parts, NodeError> {
    Err(NodeError::Incomplete { part: "the node's thread" })
}

impl NodeHandle {
    /// The address the broker's port was opened on.
    pub fn broker_address(&self) -> Option<SocketAddr> {
        self.parts.broker.as_ref().and_then(|(address, _)| *address)
    }

    /// The address the name server's port was opened on.
    pub fn name_server_address(&self) -> Option<SocketAddr> {
        self.parts.name_server.as_ref().map(|(address, _)| *address)
    }

    /// The broker's cast, for programs that embed it.
    pub fn broker(&self) -> Option<&Arc<BrokerCast>> {
        self.parts.broker.as_ref().map(|(_, cast)| cast)
    }

    /// The name server's cast, for programs that embed it.
    pub fn name_server(&self) -> Option<&Arc<NameServerCast>> {
        self.parts.name_server.as_ref().map(|(_, cast)| cast)
    }

    /// The types of all actors that were started.
    pub fn cast(&self) -> &[&'static str] {
        &self.parts.cast
    }

    /// Waits until every name server was told of the broker or could not be; false if that takes too long.
    pub async fn registered(&self, at_most: Duration) -> bool {
        let Some(cast) = self.broker() else { return true };
        // A registrar that is gone has nothing to wait for; the end of the node tells why.
        tokio::time::timeout(at_most, cast.registrar.send(Settled)).await.is_ok()
    }

    /// Asks the node to stop; `ended` tells when it has.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits for the end of the node: an error if it was poisoned or could not stop in order.
    pub async fn ended(&self) -> Result<(), Arc<NodeError>> {
        let mut ended = self.ended.clone();
        let outcome = ended.wait_for(Option::is_some).await;
        let gone = || Err(Arc::new(NodeError::Incomplete { part: "the node's thread" }));
        outcome.map_or_else(|_| gone(), |outcome| outcome.clone().unwrap_or_else(gone))
    }

    /// Stops the node and waits for its end. Not for use inside an async runtime; there, `stop` and `ended`.
    pub fn stop_and_wait(&self) -> Result<(), Arc<NodeError>> {
        self.stop();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime =
            runtime.map_err(|cause| NodeError::Thread { name: "waiting", cause }).map_err(Arc::new)?;
        runtime.block_on(self.ended())
    }
}

/// The life of a node, on its own thread.
async fn live(
    config: NodeConfig,
    started: impl FnOnce(Result<Parts, NodeError>) -> bool,
    stop: Arc<Notify>,
) -> Result<(), NodeError> {
    let mut stage = Stage::new(&config);
    let parts = match stage.build(&config) {
        Ok(parts) => parts,
        Err(error) => {
            let stopped = stage.stop().await;
            if let Err(error) = stopped {
                tracing::warn!(%error, "a node that could not start did not stop in order");
            }
            started(Err(error));
            return Ok(());
        }
    };
    faults::enter(Phase::Serve);
    if started(Ok(parts)) {
        tokio::select! {
            () = stop.notified() => {}
            _cause = stage.poison.tripped() => {}
        }
    }
    faults::enter(Phase::Stop);
    stage.stop().await
}

/// Everything that must be stopped, in the order it was started.
struct Stage {
    poison: Poison,
    credits: Credits,
    cast: Vec<&'static str>,
    sessions: Vec<Addr<Sessions>>,
    listeners: Vec<Addr<Listener>>,
    watchdog: Option<Addr<Watchdog>>,
    broker: Option<broker::Running>,
    own_name_server: Option<SocketAddr>,
    arbiters: Vec<Arbiter>,
}

impl Stage {
    fn new(config: &NodeConfig) -> Stage {
        Stage {
            poison: Poison::new(),
            credits: Credits::new(config.net.in_flight_max_bytes),
            cast: Vec::new(),
            sessions: Vec::new(),
            listeners: Vec::new(),
            watchdog: None,
            broker: None,
            own_name_server: None,
            arbiters: Vec::new(),
        }
    }

    fn build(&mut self, config: &NodeConfig) -> Result<Parts, NodeError> {
        let mut watchdog = Watchdog::new(self.poison.clone());
        self.start_sessions(config);
        let mut parts = Parts::default();
        let mut ready = Vec::new();
        if let Some(part) = &config.name_server {
            let built = name_server::build(self, config, part)?;
            self.own_name_server = Some(built.address);
            parts.name_server = Some((built.address, built.cast));
            ready.push(built.listener);
        }
        if let Some(part) = &config.broker {
            let built = broker::build(self, config, part, &mut watchdog)?;
            parts.broker = Some((built.address, built.cast));
            ready.extend(built.listener);
        }
        self.enter("Watchdog");
        self.watchdog = Some(watchdog.start());
        for listener in ready {
            self.enter("Listener");
            self.listeners.push(listener.start());
        }
        self.enter("Session");
        parts.cast = self.cast.clone();
        Ok(parts)
    }

    /// Notes that actors of a type are started.
    fn enter(&mut self, actor: &'static str) {
        if !self.cast.contains(&actor) {
            self.cast.push(actor);
        }
    }

    fn start_sessions(&mut self, config: &NodeConfig) {
        let next_link = Arc::new(AtomicU64::new(1));
        let mut handles: Vec<ArbiterHandle> = vec![Arbiter::current()];
        for _ in 1..config.net.session_arbiters {
            let arbiter = Arbiter::new();
            handles.push(arbiter.handle());
            self.arbiters.push(arbiter);
        }
        self.enter("Sessions");
        for handle in handles {
            let (net, clock) = (config.net.clone(), config.clock.clone());
            let (credits, next_link) = (self.credits.clone(), next_link.clone());
            self.sessions.push(Sessions::start_in_arbiter(&handle, move |_| {
                Sessions::new(net, clock, credits, next_link)
            }));
        }
    }

    /// Stops everything in reverse.
    async fn stop(&mut self) -> Result<(), NodeError> {
        if let Some(watchdog) = self.watchdog.take() {
            // One that is gone watches nothing.
            let _ = watchdog.send(StandDown).await;
        }
        if let Some(broker) = &self.broker {
            broker.leave().await;
        }
        for listener in self.listeners.drain(..) {
            // One that is gone accepts nothing.
            let _ = listener.send(StopListening).await;
        }
        let closing = self.sessions.iter().map(|sessions| sessions.send(CloseAll)).collect::<Vec<_>>();
        for closed in closing {
            if tokio::time::timeout(CLOSING, closed).await.is_err() {
                tracing::warn!("some connections did not take what was written for them");
            }
        }
        let closed = match self.broker.take() {
            Some(broker) => broker.stop(&self.poison).await,
            None => Ok(()),
        };
        self.sessions.clear();
        for arbiter in self.arbiters.drain(..) {
            arbiter.stop();
            // Its thread ends by itself; what runs on it has been answered.
            let _ = arbiter.join();
        }
        match self.poison.cause() {
            Some(cause) => Err(NodeError::Poisoned { cause: cause.to_owned() }),
            None => closed,
        }
    }
}
