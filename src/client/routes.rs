//! Where the queues of a topic are, as the name servers tell it.
//!
//! Invariants:
//! - a route that is known is given at once, however old it is; an old one is asked for beside, by the client's own
//!   task, so that no name server is waited for by who knows the way already;
//! - name servers are asked one after the other, beginning with the last that answered; one that keeps somebody waiting
//!   until he gives up is not the first to be asked next time;
//! - when none can be asked the error names each with its cause;
//! - that a topic does not exist is believed when no name server knows it, and of a known one not at once.
//!
//! Contents: `known` when a route is to be asked for again.

mod known;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::{Semaphore, mpsc};
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
use known::Known;

/// Topic whose brokers make other topics on demand.
const TEMPLATE_TOPIC: &str = "TBW102";
/// Queues that a client wishes for a topic made on demand.
pub(crate) const TEMPLATE_QUEUES_MAX: i32 = 4;
/// Routes of topics yet unknown that are asked for at a time; who comes then waits.
const ASKING_MAX: usize = 16;
/// Old routes that may wait to be asked for; beyond, one is left to who needs it next.
const STALE_MAX: usize = 1024;
/// Queues that an order may be configured over.
const ORDERED_MAX: usize = 1 << 16;
/// The least that a name server gets for its answer when there are others to ask.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// The route of one topic.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    topic: Text,
    pub(crate) data: TopicRouteData,
    writable: Vec<Queue>,
    /// The queues that keys fall on, if the topic's order is configured.
    ordered: Vec<Queue>,
}

/// All routes that were asked for.
#[derive(Debug)]
pub(crate) struct Routes {
    name_servers: NameServers,
    near: Option<Arc<dyn Near>>,
    favourite: AtomicUsize,
    known: DashMap<Text, Known>,
    /// Counts what makes a route that was known until then wrong.
    version: AtomicU64,
    asking: Semaphore,
    /// Topics whose route is old, on their way to who asks for it.
    stale: mpsc::Sender<Text>,
    within: Duration,
}

/// Name server `at` is asked; unless it answers, the next who asks begins with `next`.
struct Asking<'a> {
    favourite: &'a AtomicUsize,
    at: usize,
    next: usize,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // Somebody else may have found one that answers meanwhile: that one stays.
        let _ = self.favourite.compare_exchange(self.at, self.next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Asking<'_> {
    fn answered(mut self) {
        self.favourite.store(self.at, Ordering::Relaxed);
        self.next = self.at;
    }
}

impl Route {
    fn new(topic: &str, data: TopicRouteData) -> Route {
        let ordered = data.order_topic_conf.as_deref().map_or_else(Vec::new, |conf| ordered(topic, conf));
        let mut route = Route { topic: topic.into(), data, writable: Vec::new(), ordered };
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

    /// The queues that ordering keys fall on: those configured, whoever is there, so that no key moves while a broker
    /// is away; else those that can be written to.
    pub(crate) fn in_order(&self) -> &[Queue] {
        if self.ordered.is_empty() { &self.writable } else { &self.ordered }
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
    /// Knows nothing yet. Who has the other end is told of topics whose route is old, and is to [`Routes::refresh`] it.
    pub(crate) fn new(
        name_servers: NameServers,
        near: Option<Arc<dyn Near>>,
        within: Duration,
    ) -> (Routes, mpsc::Receiver<Text>) {
        let (stale, wanted) = mpsc::channel(STALE_MAX);
        let (favourite, known, asking) = (AtomicUsize::new(0), DashMap::new(), Semaphore::new(ASKING_MAX));
        let version = AtomicU64::new(0);
        (Routes { name_servers, near, favourite, known, version, asking, stale, within }, wanted)
    }

    /// While it is the same, routes that were known hold until they are old.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// When a route is old; none if it is not the one that is known.
    pub(crate) fn holds_until(&self, route: &Arc<Route>) -> Option<Instant> {
        let known = self.known.get(route.topic())?;
        Arc::ptr_eq(&known.route, route).then(|| known.stale_at)
    }

    /// Routes that were known may hold no longer.
    fn changed(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// The route of a topic, asked for if it is not known.
    pub(crate) async fn route(&self, peers: &Peers, topic: &str) -> Result<Arc<Route>, ClientError> {
        if let Some(route) = self.known(topic, Instant::now()) {
            return Ok(route);
        }
        let _permit = self.asking.acquire().await.expect("the semaphore of the routes is never closed");
        match self.known(topic, Instant::now()) {
            Some(route) => Ok(route),
            None => self.renew(peers, topic).await,
        }
    }

    /// The route of a topic if it is known; an old one is asked for beside.
    pub(crate) fn known(&self, topic: &str, now: Instant) -> Option<Arc<Route>> {
        let known = self.known.get(topic)?;
        if !known.wants_asking(now) {
            return Some(known.route.clone());
        }
        drop(known);
        if self.near.is_some() {
            // The broker of this process tells it at once.
            return None;
        }
        let mut known = self.known.get_mut(topic)?;
        if known.wants_asking(now) && self.stale.try_send(topic.into()).is_ok() {
            known.asked_for();
        }
        Some(known.route.clone())
    }

    /// Has every route asked for that will soon be old.
    pub(crate) fn look_round(&self) {
        let now = Instant::now();
        for mut known in self.known.iter_mut() {
            if known.wants_asking_soon(now) && self.stale.try_send(known.route.topic.clone()).is_ok() {
                known.asked_for();
            }
        }
    }

    /// Asks for a route that is old.
    pub(crate) async fn refresh(&self, peers: &Peers, topic: &str) {
        if let Err(error) = self.renew(peers, topic).await {
            tracing::debug!(topic, %error, "the route stays as it is");
        }
    }

    /// The route of a topic as the name servers tell it now.
    pub(crate) async fn renew(&self, peers: &Peers, topic: &str) -> Result<Arc<Route>, ClientError> {
        peers.still_open()?;
        let error = match self.ask(peers, topic).await {
            Ok(data) => return Ok(self.keep(topic, data)),
            Err(error) => error,
        };
        let now = Instant::now();
        let stands = |known: &mut Known| match error {
            ClientError::NoRoute { .. } => self.near.is_none() && known.denied(now),
            _ => {
                known.unanswered(now);
                true
            }
        };
        if self.known.get_mut(topic).is_some_and(|mut known| !stands(&mut known)) {
            self.known.remove(topic);
            self.changed();
        }
        Err(error)
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
        let mut causes = Vec::new();
        for (at, address) in self.name_servers().iter().enumerate() {
            match peers.link(address).await {
                Ok(_) => {
                    self.favourite.store(at, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => causes.push(error),
            }
        }
        Err(none_answers(causes))
    }

    /// Forgets all.
    pub(crate) fn forget(&self) {
        self.known.clear();
        self.changed();
    }

    /// A route may be wrong: it is asked for when next needed.
    pub(crate) fn doubt(&self, topic: &str) {
        if let Some(mut known) = self.known.get_mut(topic) {
            known.doubted(Instant::now());
        }
        self.changed();
    }

    /// What is said when the name servers took longer than somebody could wait.
    pub(crate) fn silent(&self, after: Duration) -> ClientError {
        let address = self.name_servers().join(";");
        ClientError::TimedOut { address, request: GetRouteinfoByTopic::NAME, after }
    }

    /// Every address of every known broker, with its id.
    pub(crate) fn brokers(&self) -> Vec<(i64, Text)> {
        let mut all: Vec<_> = self.known.iter().flat_map(|known| known.route.addresses()).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Learns the way to every master, as far as name servers tell it: by the template's topic, which a broker has
    /// that makes topics on demand, else by the topics that are named after the clusters.
    pub(crate) async fn know_all_masters(&self, peers: &Peers) -> Result<(), ClientError> {
        if self.route(peers, TEMPLATE_TOPIC).await.is_err() {
            for cluster in self.cluster(peers).await?.cluster_addr_table.keys() {
                self.route(peers, cluster).await?;
            }
        }
        Ok(())
    }

    /// Asks each name server until one answers.
    pub(crate) async fn ask_name_servers<R: Request>(
        &self,
        peers: &Peers,
        header: &R::Header,
    ) -> Result<(R::Reply, Bytes), ClientError> {
        let mut causes = Vec::new();
        let servers = self.name_servers();
        for at in self.in_turn(&servers) {
            match self.ask_one::<R>(peers, (&servers[..], at), header).await {
                Err(error) if error.is_transport() => causes.push(error),
                outcome => return outcome,
            }
        }
        Err(none_answers(causes))
    }

    /// The name servers, the one that answered last first.
    fn in_turn(&self, servers: &[String]) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.favourite.load(Ordering::Relaxed), servers.len());
        (0..count).map(move |step| (first + step) % count)
    }

    async fn ask_one<R: Request>(
        &self,
        peers: &Peers,
        (servers, at): (&[String], usize),
        header: &R::Header,
    ) -> Result<(R::Reply, Bytes), ClientError> {
        let count = servers.len();
        let asking = Asking { favourite: &self.favourite, at, next: (at + 1) % count };
        let share = self.within / u32::try_from(count).unwrap_or(u32::MAX);
        let within = share.max(ANSWER_MIN).min(self.within);
        let link = peers.link(&servers[at]).await?;
        let answer = link.ask::<R>(header, Bytes::new(), within).await;
        if !matches!(&answer, Err(error) if error.is_transport()) {
            asking.answered();
        }
        answer
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
        let (mut denied, mut causes) = (None, Vec::new());
        let servers = self.name_servers();
        for at in self.in_turn(&servers) {
            match self.ask_one::<GetRouteinfoByTopic>(peers, (&servers[..], at), &header).await {
                Ok((_, body)) => {
                    return from_loose(&body).map_err(|cause| ClientError::Malformed {
                        address: servers[at].clone(),
                        request: GetRouteinfoByTopic::NAME,
                        cause,
                    });
                }
                // Another may know it: this one may have started a moment ago.
                Err(ClientError::Refused { code: ResponseCode::TOPIC_NOT_EXIST, remark, .. }) => {
                    denied = Some(remark);
                }
                Err(error) if error.is_transport() => causes.push(error),
                Err(error) => return Err(error),
            }
        }
        let Some(mut why) = denied else { return Err(none_answers(causes)) };
        // Those that could not be asked may know it.
        causes.iter().for_each(|cause| why.push_str(&format!("; {cause}")));
        Err(ClientError::NoRoute { topic: topic.to_owned(), why })
    }

    fn keep(&self, topic: &str, data: TopicRouteData) -> Arc<Route> {
        let route = Arc::new(Route::new(topic, data));
        self.known.insert(route.topic.clone(), Known::new(route.clone(), Instant::now()));
        self.changed();
        route
    }
}

/// The queues of `broker:count;broker:count`, in the order in which RocketMQ's clients count them.
fn ordered(topic: &str, conf: &str) -> Vec<Queue> {
    let brokers = conf.split(';').filter_map(|broker| broker.split_once(':'));
    let queues = brokers.flat_map(|(name, count)| {
        let (topic, broker_name): (Text, Text) = (topic.into(), name.into());
        (0..count.trim().parse::<i32>().unwrap_or(0)).map(move |queue_id| Queue {
            topic: topic.clone(),
            broker_name: broker_name.clone(),
            queue_id,
        })
    });
    queues.take(ORDERED_MAX).collect()
}

/// What is said when no name server could be asked.
fn none_answers(mut causes: Vec<ClientError>) -> ClientError {
    match (causes.len(), causes.pop()) {
        (1, Some(cause)) => cause,
        (_, Some(cause)) => {
            causes.push(cause);
            ClientError::NameServers { causes }
        }
        (_, None) => ClientError::Setting { setting: "name_servers", why: "none was given".to_owned() },
    }
}

#[cfg(test)]
mod routes_test;
