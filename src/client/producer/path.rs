//! The way that the last send took: most take it again, and it need not be looked up.
//!
//! Invariants:
//! - it is taken only while nothing it was made of has changed: what is known of routes, the runtime, the connection;
//! - it keeps no connection open.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;
use troupemq_codec::Text;

use super::Producer;
use crate::client::error::ClientError;
use crate::client::hub::Hub;
use crate::client::link::Link;
use crate::client::peers::{Carrier, carrier};
use crate::client::queue::Queue;
use crate::client::routes::Route;

/// Sends by other ways, one after the other, before one of theirs is remembered instead.
const MISSES_MAX: u8 = 8;
/// Brokers of a topic that are remembered.
const BROKERS_MAX: usize = 16;

/// What a producer remembers.
#[derive(Debug, Default)]
pub(super) struct Paths {
    current: ArcSwapOption<Path>,
    misses: AtomicU8,
}

/// The way to the brokers of a topic.
#[derive(Debug, Clone)]
struct Path {
    route: Arc<Route>,
    /// What was known of all routes when this one was.
    version: u64,
    /// When the route is old.
    until: Instant,
    carrier: Carrier,
    /// To masters, by the name of the broker.
    links: Vec<(Text, Weak<Link>)>,
}

impl Paths {
    /// The route of a topic, if it is the one remembered and holds still.
    pub(super) fn route(&self, hub: &Hub, topic: &Text, now: Instant) -> Option<Arc<Route>> {
        let path = self.current.load();
        let path = path.as_ref()?;
        let holds = path.route.topic() == topic && path.version == hub.routes.version() && now < path.until;
        holds.then(|| path.route.clone())
    }

    /// The connection to a broker on a route, if it is remembered and open.
    pub(super) fn link(&self, route: &Arc<Route>, broker_name: &Text) -> Option<Arc<Link>> {
        let path = self.current.load();
        let path = path.as_ref().filter(|path| Arc::ptr_eq(&path.route, route))?;
        let (_, link) = path.links.iter().find(|(known, _)| known == broker_name)?;
        let link = link.upgrade().filter(|link| !link.is_closed() && path.carrier == carrier())?;
        if self.misses.load(Ordering::Relaxed) > 0 {
            self.misses.store(0, Ordering::Relaxed);
        }
        Some(link)
    }

    /// A connection was looked up: it is remembered, unless another way is taken more often.
    pub(super) fn learn(&self, hub: &Hub, route: &Arc<Route>, broker_name: &Text, link: &Arc<Link>) {
        let version = hub.routes.version();
        let current = self.current.load_full();
        let holds = |path: &Path| path.version == version && path.until > Instant::now();
        let is_other =
            |path: &Path| holds(path) && (path.route.topic() != route.topic() || path.carrier != carrier());
        if current.as_deref().is_some_and(is_other)
            && self.misses.fetch_add(1, Ordering::Relaxed).saturating_add(1) < MISSES_MAX
        {
            return;
        }
        self.misses.store(0, Ordering::Relaxed);
        let Some(until) = hub.routes.holds_until(route) else { return };
        let known = current.filter(|path| Arc::ptr_eq(&path.route, route) && path.carrier == carrier());
        let mut links = known.map_or_else(Vec::new, |path| path.links.clone());
        links.retain(|(known, _)| known != broker_name);
        links.truncate(BROKERS_MAX - 1);
        links.push((broker_name.clone(), Arc::downgrade(link)));
        let path = Path { route: route.clone(), version, until, carrier: carrier(), links };
        self.current.store(Some(Arc::new(path)));
    }
}

impl Producer {
    /// The connection to the master of a queue, if it is remembered.
    pub(super) fn open_link(
        &self,
        route: &Arc<Route>,
        queue: &Queue,
    ) -> Result<Option<Arc<Link>>, ClientError> {
        self.state.client.hub.peers.still_open()?;
        Ok(self.state.paths.link(route, &queue.broker_name))
    }

    /// The connection to the master of a queue.
    pub(super) async fn link(
        &self,
        route: &Arc<Route>,
        queue: &Queue,
        deadline: Instant,
    ) -> Result<Arc<Link>, ClientError> {
        if let Some(link) = self.open_link(route, queue)? {
            return Ok(link);
        }
        let (hub, paths) = (&self.state.client.hub, &self.state.paths);
        let no_queue = || ClientError::NoQueue { topic: queue.topic.to_string(), wanted: "reachable" };
        let address = route.master(&queue.broker_name).ok_or_else(no_queue)?;
        let link = match hub.peers.open(address)? {
            Some(link) => link,
            None => Box::pin(self.dial(address, (route, queue), deadline)).await?,
        };
        paths.learn(hub, route, &queue.broker_name, &link);
        Ok(link)
    }

    async fn dial(
        &self,
        address: &str,
        (route, queue): (&Route, &Queue),
        deadline: Instant,
    ) -> Result<Arc<Link>, ClientError> {
        let left = deadline.saturating_duration_since(Instant::now());
        // A broker that cannot be reached leaves time for another one, if there is one.
        let is_other = |other: &Queue| other.broker_name != queue.broker_name;
        let within = if route.writable().iter().any(is_other) { left / 2 } else { left };
        self.state.client.hub.peers.link_within(address, within).await
    }
}
