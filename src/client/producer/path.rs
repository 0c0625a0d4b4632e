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
    fn link(&self, hub: &Hub, route: &Arc<Route>, broker_name: &Text) -> Option<Arc<Link>> {
        let path = self.current.load();
        // One whose route was looked up again is learnt anew.
        let holds =
            |path: &&Arc<Path>| Arc::ptr_eq(&path.route, route) && path.version == hub.routes.version();
        let path = path.as_ref().filter(holds)?;
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
        let hub = &self.state.client.hub;
        hub.peers.still_open()?;
        Ok(self.state.paths.link(hub, route, &queue.broker_name))
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

#[cfg(all(test, feature = "broker"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Broker, Message};

    #[tokio::test]
    async fn a_way_is_taken_again_until_something_says_that_it_may_lead_elsewhere() {
        let broker = Broker::builder().temporary().start().await.expect("a broker starts");
        let client = broker.client();
        for topic in ["t", "u"] {
            client.create_topic(topic, 2).await.expect("a topic is made");
        }
        let producer = client.producer("p").start().await.expect("a producer starts");
        let send = async |topic: &'static str| {
            producer.send(Message::new(topic, "x")).await.expect("it is stored").queue.broker_name
        };
        let (hub, paths, now) = (&client.hub, &producer.state.paths, Instant::now());
        let remembered = |topic: &'static str| paths.route(hub, &Text::from_static(topic), now);
        let broker_name = send("t").await;
        let route = remembered("t").expect("it was taken");
        assert!(remembered("u").is_none() && paths.link(hub, &route, &Text::from_static("other")).is_none());
        assert!(paths.link(hub, &route, &broker_name).is_some(), "it is open");
        assert!(paths.route(hub, route.topic(), now + Duration::from_secs(60)).is_none(), "it is old");

        hub.routes.doubt("another");
        assert!(remembered("t").is_none(), "it is looked up whatever is doubted");
        send("t").await;
        assert!(remembered("t").is_some());
        for _ in 0..MISSES_MAX {
            assert!(remembered("t").is_some() && remembered("u").is_none());
            send("u").await;
        }
        let route = remembered("u").expect("all take it now");
        assert!(paths.link(hub, &route, &broker_name).is_some());

        broker.shutdown().await.expect("a clean end");
        assert!(remembered("u").is_none(), "nothing is known after the end");
        assert!(paths.link(hub, &route, &broker_name).is_none(), "no connection is kept");
    }
}
