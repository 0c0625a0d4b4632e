//! What all producers and consumers of a client share: identity, connections, routes, and what brokers are told.
//!
//! Invariants:
//! - every known broker hears of every group at least every 30 s, and at once on a new connection;
//! - a broker's notice that a group changed reaches the consumer of that group without waiting for a timer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::runtime;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, ProducerData};
use troupemq_codec::loose_json::to_standard;
use troupemq_codec::message::message_id::UniqueIdText;
use troupemq_codec::request::{
    CheckTransactionState, HeartBeat, NotifyConsumerIdsChanged, NotifyConsumerIdsChangedHeader,
    PushReplyMessageToClient, UnregisterClient, UnregisterClientHeader,
};
use troupemq_codec::{Command, NoHeader, Request, ResponseCode, Text};

use super::ClientBuilder;
use super::connection::Dialling;
use super::consumer::asked::{self, Asked};
use super::error::ClientError;
use super::identity::Identity;
use super::link::{Link, ServerCall};
use super::name_servers::{List, NameServers};
use super::peers::Peers;
use super::request_reply::Requesters;
use super::routes::{Route, Routes};
use super::trace::collector::Collector;
use super::transaction::{Checker, answer_check};

/// How often brokers hear of the client.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Requests of brokers that may wait for the client.
const CALLS_MAX: usize = 256;
/// Rounds of heart-beats under way: one that waits for a silent broker does not hold up the next.
const BEATS_MAX: usize = 4;
/// How long brokers are told good-bye: one that is silent hears of it when the connection ends.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);
/// How long the end waits for traces.
const LAST_TRACES: Duration = Duration::from_secs(3);
/// Old routes asked for at a time.
const REFRESHES_MAX: usize = 4;

/// The middle of a client.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) identity: Identity,
    pub(crate) peers: Peers,
    pub(crate) routes: Routes,
    /// How long an answer is waited for.
    pub(crate) within: Duration,
    producers: DashMap<Text, Producing>,
    /// Who waits for replies.
    pub(crate) requesters: Requesters,
    consumers: DashMap<Text, Membership>,
    /// The collectors of traces that were started, the living among them.
    collectors: DashMap<u64, Collector>,
    last_collector: AtomicU64,
    /// Raised when the client is to end.
    closing: watch::Sender<bool>,
    /// How many consumers have not taken leave of the brokers yet.
    members: watch::Sender<usize>,
}

/// The producers of a group.
#[derive(Debug, Default)]
struct Producing {
    count: usize,
    checker: Option<Checker>,
}

/// What brokers are told of a consumer, and how it is told of changes in its group.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    pub(crate) data: ConsumerData,
    pub(crate) changed: Arc<Notify>,
    /// What brokers ask of it.
    pub(crate) asked: mpsc::Sender<Asked>,
}

/// The client's own task, on each runtime that has begun something with the client: one works, the others stand by
/// until that one's runtime has ended. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    tasks: DashMap<runtime::Id, AbortHandle>,
    work: Arc<Mutex<Work>>,
}

/// What the client's own task does.
#[derive(Debug)]
struct Work {
    /// What brokers ask.
    inbox: mpsc::Receiver<ServerCall>,
    /// Topics whose route is old.
    stale: mpsc::Receiver<Text>,
    /// How often the list of name servers is read, if there is one.
    reading: Option<Duration>,
}

impl Keeper {
    /// Has the present runtime stand by.
    pub(crate) fn stand_by(&self, hub: &Arc<Hub>) {
        let present = runtime::Handle::current();
        if self.tasks.contains_key(&present.id()) {
            return;
        }
        self.tasks.retain(|_, task| !task.is_finished());
        let task = present.spawn(keep(Arc::downgrade(hub), self.work.clone()));
        self.tasks.insert(present.id(), task.abort_handle());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|task| task.abort());
    }
}

impl Hub {
    /// Makes the hub and starts its task; `peer` is an address of the network the client lives in.
    pub(crate) fn start(
        builder: ClientBuilder,
        list: Option<List>,
        dialling: Dialling,
        peer: Option<SocketAddr>,
    ) -> (Arc<Hub>, Keeper) {
        let (calls, inbox) = mpsc::channel(CALLS_MAX);
        let near = dialling.near.clone();
        let name_servers = NameServers::new(builder.name_servers, list);
        let reading = name_servers.are_listed().then_some(builder.name_server_list_every);
        let (routes, stale) = Routes::new(name_servers, near, builder.request_timeout);
        let hub = Arc::new(Hub {
            identity: Identity::new(peer, builder.instance.as_deref()),
            peers: Peers::new(calls, dialling),
            routes,
            within: builder.request_timeout,
            producers: DashMap::new(),
            requesters: Requesters::default(),
            consumers: DashMap::new(),
            collectors: DashMap::new(),
            last_collector: AtomicU64::new(0),
            closing: watch::Sender::new(false),
            members: watch::Sender::new(0),
        });
        let work = Arc::new(Mutex::new(Work { inbox, stale, reading }));
        let keeper = Keeper { tasks: DashMap::new(), work };
        keeper.stand_by(&hub);
        (hub, keeper)
    }

    /// The route of a topic.
    pub(crate) async fn route(&self, topic: &str) -> Result<Arc<Route>, ClientError> {
        self.routes.route(&self.peers, topic).await
    }

    /// The connection to the master of a broker name.
    pub(crate) async fn master_of(&self, topic: &str, broker_name: &str) -> Result<Arc<Link>, ClientError> {
        let route = self.routes.route_for_send(&self.peers, topic).await?;
        let no_queue = || ClientError::NoQueue { topic: topic.to_owned(), wanted: "reachable" };
        self.peers.link(route.master(broker_name).ok_or_else(no_queue)?).await
    }

    /// The addresses of all masters of all clusters.
    pub(crate) async fn masters(&self) -> Result<Vec<Text>, ClientError> {
        let info = self.routes.cluster(&self.peers).await?;
        let masters: Vec<_> = info
            .broker_addr_table
            .values()
            .filter_map(|broker| broker.broker_addrs.get(&0).cloned())
            .collect();
        if masters.is_empty() {
            return Err(ClientError::NoBroker { name_servers: self.routes.name_servers().join(";") });
        }
        Ok(masters)
    }

    /// Connects to a name server, so that a wrong address shows at once.
    pub(crate) async fn reach_a_name_server(&self) -> Result<(), ClientError> {
        self.routes.reach(&self.peers).await
    }

    /// Tells all consumers to end.
    pub(crate) fn begin_closing(&self) {
        self.closing.send_replace(true);
    }

    /// An error after the end of the client.
    pub(crate) fn still_open(&self) -> Result<(), ClientError> {
        match *self.closing.borrow() {
            true => Err(ClientError::ShutDown { what: "client" }),
            false => Ok(()),
        }
    }

    /// Sees when the client is to end.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Ends consumers, takes leave of the brokers and closes the connections.
    pub(crate) async fn close(self: &Arc<Hub>) {
        self.begin_closing();
        // The sender lives as long as the hub.
        let _ = self.members.subscribe().wait_for(|members| *members == 0).await;
        // Who waits for a reply waits no longer: it could not come any more.
        self.requesters.give_up();
        let mut flushing = JoinSet::new();
        for collector in self.collectors.iter() {
            flushing.spawn(collector.value().clone().flush());
        }
        let flushed = async { while flushing.join_next().await.is_some() {} };
        if timeout(LAST_TRACES, flushed).await.is_err() {
            tracing::warn!(within = ?LAST_TRACES, "traces left unsent");
        }
        let groups: Vec<_> = self.producers.iter().map(|entry| entry.key().clone()).collect();
        let mut leaving = JoinSet::new();
        for group in groups {
            let hub = self.clone();
            leaving.spawn(async move {
                let header = UnregisterClientHeader {
                    client_id: hub.identity.client_id().clone(),
                    producer_group: Some(group),
                    consumer_group: None,
                };
                let audience = hub.audience(hub.has_consumers());
                hub.tell_brokers::<UnregisterClient>(audience, header, Bytes::new()).await;
            });
        }
        let left = async { while leaving.join_next().await.is_some() {} };
        // One that is silent hears the end of the connection.
        let _ = timeout(FAREWELL, left).await;
        self.peers.close();
        // What is known already is not told any more either.
        self.routes.forget();
    }

    /// A new unique id for a message.
    pub(crate) fn new_message_id(&self, now_ms: i64) -> UniqueIdText {
        self.identity.message_id(now_ms)
    }

    /// A producer of a group began; the last checker that was given answers for the group.
    pub(crate) fn add_producer(&self, group: &Text, checker: Option<Checker>) {
        let mut producing = self.producers.entry(group.clone()).or_default();
        producing.count += 1;
        producing.checker = checker.or(producing.checker.take());
    }

    /// Whether somebody answers for the transactions of a group.
    pub(crate) fn has_checker(&self, group: &str) -> bool {
        self.producers.get(group).is_some_and(|producing| producing.checker.is_some())
    }

    /// A producer of a group ended.
    pub(crate) fn remove_producer(&self, group: &Text) {
        if let Some(mut producing) = self.producers.get_mut(group) {
            producing.count -= 1;
        }
        self.producers.remove_if(group, |_, producing| producing.count == 0);
    }

    /// A collector of traces began: the end of the client waits until it has sent what it has.
    pub(crate) fn add_collector(&self, collector: Collector) {
        self.collectors.retain(|_, collector| collector.is_running());
        self.collectors.insert(self.last_collector.fetch_add(1, Ordering::Relaxed), collector);
    }

    /// A consumer began; a client has at most one of a group.
    pub(crate) fn add_consumer(&self, group: &Text, membership: Membership) -> Result<(), ClientError> {
        match self.consumers.entry(group.clone()) {
            dashmap::Entry::Occupied(_) => {
                let why = format!("this client has a consumer of group {group} already");
                Err(ClientError::Setting { setting: "group", why })
            }
            dashmap::Entry::Vacant(vacant) => {
                vacant.insert(membership);
                self.members.send_modify(|members| *members += 1);
                Ok(())
            }
        }
    }

    /// A consumer ended: brokers are told, so that the others take over at once.
    pub(crate) async fn remove_consumer(self: &Arc<Hub>, group: &Text) {
        let audience = self.audience(self.has_consumers());
        self.consumers.remove(group);
        let header = UnregisterClientHeader {
            client_id: self.identity.client_id().clone(),
            consumer_group: Some(group.clone()),
            producer_group: None,
        };
        let told = self.tell_brokers::<UnregisterClient>(audience, header, Bytes::new());
        // One that is silent notices by itself: the heart-beats do not name the group any more.
        let _ = timeout(FAREWELL, told).await;
        self.members.send_modify(|members| *members -= 1);
    }

    /// Has old routes asked for, and forgets servers that no route leads to any more.
    fn look_round(&self) {
        self.routes.look_round();
        let brokers: BTreeSet<Text> = self.routes.brokers().into_iter().map(|(_, address)| address).collect();
        let servers = self.routes.name_servers();
        self.peers
            .forget(|address| !brokers.contains(address) && !servers.iter().any(|server| server == address));
    }

    /// Tells every known broker of every group.
    pub(crate) async fn heartbeat(self: &Arc<Hub>) {
        self.meet(self.audience(self.has_consumers())).await;
    }

    /// Tells some brokers of every group.
    pub(crate) async fn meet(self: &Arc<Hub>, brokers: BTreeSet<Text>) {
        let producers = self.producers.iter().map(|entry| ProducerData { group_name: entry.key().clone() });
        let data = HeartbeatData {
            client_id: self.identity.client_id().clone(),
            producer_data_set: producers.collect(),
            consumer_data_set: self.consumers.iter().map(|entry| entry.data.clone()).collect(),
            ..Default::default()
        };
        if data.producer_data_set.is_empty() && data.consumer_data_set.is_empty() {
            return;
        }
        self.tell_brokers::<HeartBeat>(brokers, NoHeader, to_standard(&data).into()).await;
    }

    fn has_consumers(&self) -> bool {
        !self.consumers.is_empty()
    }

    /// The addresses of all known masters; of the slaves too for a client that reads.
    fn audience(&self, reads: bool) -> BTreeSet<Text> {
        let brokers = self.routes.brokers().into_iter().filter(|(id, _)| *id == 0 || reads);
        brokers.map(|(_, address)| address).collect()
    }

    /// Asks brokers the same; what they answer is only logged.
    async fn tell_brokers<R: Request<Header: Clone + Send + Sync + 'static> + 'static>(
        self: &Arc<Hub>,
        addresses: BTreeSet<Text>,
        header: R::Header,
        body: Bytes,
    ) {
        let mut asked = JoinSet::new();
        for address in addresses {
            let (hub, header, body) = (self.clone(), header.clone(), body.clone());
            asked.spawn(async move {
                let answer = match hub.peers.link_within(&address, hub.within).await {
                    Ok(link) => link.call::<R>(&header, body, hub.within).await,
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(answer) if answer.response_code() == ResponseCode::SUCCESS => {}
                    Ok(answer) => {
                        tracing::warn!(%address, request = R::NAME, code = %answer.response_code(), "refused")
                    }
                    Err(error) => tracing::debug!(%address, %error, "broker not told"),
                }
            });
        }
        while asked.join_next().await.is_some() {}
    }

    /// Does what a broker asks.
    async fn serve(self: Arc<Hub>, call: ServerCall) {
        let command = call.command;
        let answer = match command.code {
            NotifyConsumerIdsChanged::CODE => {
                let Ok(header) = command.header::<NotifyConsumerIdsChangedHeader>() else { return };
                if let Some(member) = self.consumers.get(&header.group) {
                    member.changed.notify_one();
                }
                return;
            }
            CheckTransactionState::CODE => {
                let checker = |group: &str| {
                    let producing = self.producers.get(group)?;
                    Some((producing.key().clone(), producing.checker.clone()?))
                };
                if let Some(mut decided) = answer_check(&command, &call.address, checker).await {
                    self.peers.sign(&mut decided);
                    call.answers.send(decided).await;
                }
                return;
            }
            PushReplyMessageToClient::CODE => self.requesters.replied(&command),
            code if asked::is_about_consumer(code) => {
                let asked = |group: &str| self.consumers.get(group).map(|member| member.asked.clone());
                asked::answer(&command, asked).await
            }
            code => {
                let remark = format!("request code {code} is not supported by this client");
                Command::response(ResponseCode::REQUEST_CODE_NOT_SUPPORTED).with_remark(remark)
            }
        };
        if !command.is_oneway() {
            call.answers.send(answer.answering(&command)).await;
        }
    }
}

/// Waits until a client is to end.
pub(crate) async fn asked_to_end(closing: &mut watch::Receiver<bool>) {
    // A hub that is gone has nothing left that could go on.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// The client's own task: heart-beats, routes that are old, the requests of brokers, and now and then the list of name
/// servers. It waits for no server itself.
async fn keep(hub: Weak<Hub>, work: Arc<Mutex<Work>>) {
    // Who has it keeps it until his runtime ends.
    let mut work = work.lock().await;
    let Work { inbox, stale, reading } = &mut *work;
    let Some(dialled) = hub.upgrade().map(|hub| hub.peers.dialled()) else { return };
    // What brokers ask is done beside each other: a listener may take its time. It ends with the client.
    let mut calls = JoinSet::new();
    let (mut beats, mut refreshes) = (JoinSet::new(), JoinSet::new());
    let mut ticks = interval(HEARTBEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if let Some(every) = reading {
        calls.spawn(read_list(hub.clone(), *every));
    }
    loop {
        tokio::select! {
            call = inbox.recv(), if calls.len() < CALLS_MAX => {
                let (Some(call), Some(hub)) = (call, hub.upgrade()) else { return };
                calls.spawn(hub.serve(call));
            }
            Some(served) = calls.join_next() => {
                if let Err(error) = served {
                    tracing::warn!(%error, "what a broker asked was not done");
                }
            }
            topic = stale.recv(), if refreshes.len() < REFRESHES_MAX => {
                let (Some(topic), Some(hub)) = (topic, hub.upgrade()) else { return };
                refreshes.spawn(async move { hub.routes.refresh(&hub.peers, &topic).await });
            }
            Some(_) = refreshes.join_next() => {}
            Some(_) = beats.join_next() => {}
            _ = ticks.tick(), if beats.len() < BEATS_MAX => {
                let Some(hub) = hub.upgrade() else { return };
                hub.look_round();
                beats.spawn(async move { hub.heartbeat().await });
            }
            () = dialled.notified(), if beats.len() < BEATS_MAX => {
                let Some(hub) = hub.upgrade() else { return };
                beats.spawn(async move { hub.heartbeat().await });
            }
        }
    }
}

/// Reads the list of name servers again and again.
async fn read_list(hub: Weak<Hub>, every: Duration) {
    loop {
        sleep(every).await;
        let Some(hub) = hub.upgrade().filter(|hub| !*hub.closing.borrow()) else { return };
        if let Err(error) = hub.routes.refresh_name_servers(&hub.peers).await {
            tracing::warn!(%error, "the name servers stay as they are");
        }
    }
}
