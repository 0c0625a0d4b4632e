//! Where the queues of a topic are, as the name servers tell it.
//!
//! Invariants:
//! - a route is asked for again when it is older than [`FRESH`]; while no name server answers the old one stands;
//! - name servers are asked one after the other, beginning with the last that answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{GetBrokerClusterInfo, GetRouteinfoByTopic, GetRouteinfoByTopicHeader};
use troupemq_codec::route::{ClusterInfo, QueueData, TopicRouteData};
use troupemq_codec::topic::{PERM_READ, PERM_WRITE};
use troupemq_codec::{NoHeader, Request, ResponseCode, Text};

use super::error::ClientError;
use super::name_servers::NameServers;
use super::near::Near;
use super::peers::Peers;
use super::queue::Queue;

/// Age at which a route is asked for again.
pub(crate) const FRESH: Duration = Duration::from_secs(30);
/// Topic whose brokers make other topics on demand.
const TEMPLATE_TOPIC: &str = "TBW102";
/// Queues that a client wishes for a topic made on demand.
pub(crate) const TEMPLATE_QUEUES_MAX: i32 = 4;

/// The route of one topic.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    topic: Text,
    pub(crate) data: TopicRouteData,
    writable: Vec<Queue>,
    asked_at: Instant,
}

/// All routes that were asked for.
#[derive(Debug)]
pub(crate) struct Routes {
    name_servers: NameServers,
    near: Option<Arc<dyn Near>>,
    favourite: AtomicUsize,
    known: DashMap<Text, Arc<Route>>,
    asking: Semaphore,
    within: Duration,
}

impl Route {
    fn new(topic: &str, data: TopicRouteData) -> Route {
        let mut route = Route { topic: topic.into(), data, writable: Vec::new(), asked_at: Instant::now() };
        let mut queues =
            route.queues(|queue| (queue.perm & PERM_WRITE != 0).then_some(queue.write_queue_nums));
        queues.retain(|queue| route.master(&queue.broker_name).is_some());
        route.writable = queues;
        route
    }

    /// The topic.
    pub(crate) fn topic(&self) -> &Text {
        &self.topic
    }

    /// The queues that can be written to: those whose broker has a master.
    pub(crate) fn writable(&self) -> &[Queue] {
        &self.writable
    }

    /// The queues that can be read.
    pub(crate) fn readable(&self) -> Vec<Queue> {
        self.queues(|queue| (queue.perm & PERM_READ != 0).then_some(queue.read_queue_nums))
    }

    /// The address of the master of a broker name.
    pub(crate) fn master(&self, broker_name: &str) -> Option<&Text> {
        self.address(broker_name, 0)
    }

    /// The address to read from: the broker wished for, else the master, else any.
    pub(crate) fn reader(&self, broker_name: &str, broker_id: i64) -> Option<&Text> {
        self.address(broker_name, broker_id).or_else(|| self.master(broker_name)).or_else(|| {
            self.data
                .broker_datas
                .iter()
                .find(|broker| broker.broker_name == broker_name)?
                .broker_addrs
                .values()
                .next()
        })
    }

    /// Every address of every broker, masters first.
    pub(crate) fn addresses(&self) -> Vec<(i64, Text)> {
        let brokers = self.data.broker_datas.iter();
        let mut all: Vec<_> = brokers
            .flat_map(|broker| broker.broker_addrs.iter().map(|(id, address)| (*id, address.clone())))
            .collect();
        all.sort();
        all
    }

    fn address(&self, broker_name: &str, broker_id: i64) -> Option<&Text> {
        self.data
            .broker_datas
            .iter()
            .find(|broker| broker.broker_name == broker_name)?
            .broker_addrs
            .get(&broker_id)
    }

    fn queues(&self, count: impl Fn(&QueueData) -> Option<i32>) -> Vec<Queue> {
        let mut queues = Vec::new();
        for data in &self.data.queue_datas {
            let ids = 0..count(data).unwrap_or(0);
            let broker_name = &data.broker_name;
            let topic = &self.topic;
            queues.extend(ids.map(|queue_id| Queue {
                topic: topic.clone(),
                broker_name: broker_name.clone(),
                queue_id,
            }));
        }
        queues.sort();
        queues
    }
}

impl Routes {
    /// Knows nothing yet.
    pub(crate) fn new(name_servers: NameServers, near: Option<Arc<dyn Near>>, within: Duration) -> Routes {
        Routes {
            name_servers,
            near,
            favourite: AtomicUsize::new(0),
            known: DashMap::new(),
            asking: Semaphore::new(1),
            within,
        }
    }

    /// The route of a topic, asked for if it is not fresh.
    pub(crate) async fn route(&self, peers: &Peers, topic: &str) -> Result<Arc<Route>, ClientError> {
        if let Some(route) = self.fresh(topic) {
            return Ok(route);
        }
        let _permit = self.asking.acquire().await.expect("the semaphore of the routes is never closed");
        if let Some(route) = self.fresh(topic) {
            return Ok(route);
        }
        match self.ask(peers, topic).await {
            Ok(data) => Ok(self.keep(topic, data)),
            Err(error) if error.is_transport() => self.old(topic).ok_or(error),
            Err(error) => {
                self.known.remove(topic);
                Err(error)
            }
        }
    }

    /// The route of a topic; of one that does not exist yet, the route it would get when a message is sent to it.
    pub(crate) async fn route_for_send(&self, peers: &Peers, topic: &str) -> Result<Arc<Route>, ClientError> {
        let error = match self.route(peers, topic).await {
            Err(error @ ClientError::NoRoute { .. }) => error,
            outcome => return outcome,
        };
        // The template's route is kept: its brokers are told of this client's groups like any other.
        let Ok(template) = self.route(peers, TEMPLATE_TOPIC).await else { return Err(error) };
        let mut data = template.data.clone();
        for queue in &mut data.queue_datas {
            let count = queue.read_queue_nums.min(TEMPLATE_QUEUES_MAX);
            (queue.read_queue_nums, queue.write_queue_nums) = (count, count);
        }
        // It is not kept: after the first send the real one is there.
        Ok(Arc::new(Route::new(topic, data)))
    }

    /// The addresses of the name servers.
    pub(crate) fn name_servers(&self) -> Arc<Vec<String>> {
        self.name_servers.current()
    }

    /// Reads the list of name servers, if there is one.
    pub(crate) async fn refresh_name_servers(&self, peers: &Peers) -> Result<(), ClientError> {
        for gone in self.name_servers.refresh(self.within).await? {
            peers.leave(&gone);
        }
        Ok(())
    }

    /// Connects to the first name server that can be reached.
    pub(crate) async fn reach(&self, peers: &Peers) -> Result<(), ClientError> {
        let mut last = Ok(());
        for (at, address) in self.name_servers().iter().enumerate() {
            match peers.link(address).await {
                Ok(_) => {
                    self.favourite.store(at, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => last = Err(error),
            }
        }
        last
    }

    /// Forgets how fresh a route is, so that it is asked for when next needed.
    pub(crate) fn doubt(&self, topic: &str) {
        if let Some(mut route) = self.known.get_mut(topic) {
            let mut doubted = Route::clone(&route);
            doubted.asked_at = doubted.asked_at.checked_sub(FRESH).unwrap_or(doubted.asked_at);
            *route = Arc::new(doubted);
        }
    }

    /// Every address of every known broker, with its id.
    pub(crate) fn brokers(&self) -> Vec<(i64, Text)> {
        let mut all: Vec<_> = self.known.iter().flat_map(|route| route.addresses()).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Asks each name server until one answers.
    pub(crate) async fn ask_name_servers<R: Request>(
        &self,
        peers: &Peers,
        header: &R::Header,
    ) -> Result<(R::Reply, Bytes), ClientError> {
        let first = self.favourite.load(Ordering::Relaxed);
        let mut last = None;
        let servers = self.name_servers();
        for step in 0..servers.len() {
            let at = (first + step) % servers.len();
            let asked = match peers.link(&servers[at]).await {
                Ok(link) => link.ask::<R>(header, Bytes::new(), self.within).await,
                Err(error) => Err(error),
            };
            match asked {
                Err(error) if error.is_transport() => last = Some(error),
                outcome => {
                    self.favourite.store(at, Ordering::Relaxed);
                    return outcome;
                }
            }
        }
        let none = || ClientError::Setting { setting: "name_servers", why: "none was given".to_owned() };
        Err(last.unwrap_or_else(none))
    }

    /// All brokers of all clusters.
    pub(crate) async fn cluster(&self, peers: &Peers) -> Result<ClusterInfo, ClientError> {
        if let Some(near) = &self.near {
            return Ok(near.cluster());
        }
        let (_, body) = self.ask_name_servers::<GetBrokerClusterInfo>(peers, &NoHeader).await?;
        from_loose(&body).map_err(|cause| ClientError::Malformed {
            address: "name server".to_owned(),
            request: GetBrokerClusterInfo::NAME,
            cause,
        })
    }

    async fn ask(&self, peers: &Peers, topic: &str) -> Result<TopicRouteData, ClientError> {
        if let Some(near) = &self.near {
            let why = || "the broker does not have it".to_owned();
            return near
                .route(topic)
                .ok_or_else(|| ClientError::NoRoute { topic: topic.to_owned(), why: why() });
        }
        let header = GetRouteinfoByTopicHeader {
            topic: topic.into(),
            accepts_standard_json_only: Some(true),
            ..Default::default()
        };
        match self.ask_name_servers::<GetRouteinfoByTopic>(peers, &header).await {
            Ok((_, body)) => from_loose(&body).map_err(|cause| ClientError::Malformed {
                address: "name server".to_owned(),
                request: GetRouteinfoByTopic::NAME,
                cause,
            }),
            Err(ClientError::Refused { code: ResponseCode::TOPIC_NOT_EXIST, remark, .. }) => {
                Err(ClientError::NoRoute { topic: topic.to_owned(), why: remark })
            }
            Err(error) => Err(error),
        }
    }

    fn keep(&self, topic: &str, data: TopicRouteData) -> Arc<Route> {
        let route = Arc::new(Route::new(topic, data));
        self.known.insert(route.topic.clone(), route.clone());
        route
    }

    fn fresh(&self, topic: &str) -> Option<Arc<Route>> {
        self.old(topic).filter(|route| route.asked_at.elapsed() < FRESH)
    }

    fn old(&self, topic: &str) -> Option<Arc<Route>> {
        self.known.get(topic).map(|route| route.clone())
    }
}
