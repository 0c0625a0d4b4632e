//! A client of RocketMQ-compatible brokers: producers and consumers over the remoting protocol.
//!
//! Invariants:
//! - it needs Tokio and the codec only, nothing of the broker;
//! - there is no global state: every [`Client`] has its own connections, and all its tasks end with its last handle;
//! - every wait has a limit, and every error says which server or setting it is about.
//!
//! ```no_run
//! # async fn example() -> Result<(), troupemq::ClientError> {
//! use troupemq::{Client, Message};
//!
//! let client = Client::builder().name_servers("127.0.0.1:9876").connect().await?;
//! let producer = client.producer("orders-writer").start().await?;
//! let receipt = producer.send(Message::new("orders", "hello").tag("new").key("42")).await?;
//! println!("{} at {}:{}", receipt.message_id, receipt.queue, receipt.queue_offset);
//! # Ok(())
//! # }
//! ```
//!
//! Contents: [`producer`] sends, [`consumer`] receives as a member of a group, [`pull`] reads queues by hand;
//! below them `hub` (what a client knows and tells all brokers), `routes`, `peers`, `link`.

pub mod admin;
mod allocation;
mod backoff;
pub mod connection;
pub mod consumer;
mod credentials;
pub mod error;
mod faults;
mod hub;
mod identity;
mod legal;
pub(crate) mod link;
pub mod message;
mod name_servers;
mod names;
pub(crate) mod near;
mod peers;
pub mod producer;
mod progress;
pub mod pull;
pub mod queue;
pub mod request_reply;
mod routes;
#[cfg_attr(not(feature = "tls"), path = "client/no_tls.rs")]
pub mod tls;
mod trace;
pub mod transaction;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use troupemq_codec::Command;
use troupemq_codec::request::{UpdateAndCreateTopic, UpdateAndCreateTopicHeader};

use connection::{Connection, Dialling};
use consumer::ConsumerBuilder;
use error::ClientError;
use hub::Hub;
use name_servers::List;
use names::Names;
use producer::ProducerBuilder;
use queue::Queue;

pub(crate) use identity::epoch_ms;

/// What to know before a [`Client`] can be made.
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    name_servers: Vec<String>,
    name_server_list: Option<String>,
    name_server_list_every: Duration,
    instance: Option<String>,
    request_timeout: Duration,
    connect_timeout: Duration,
    credentials: credentials::Told,
    #[cfg(feature = "tls")]
    tls: Option<tls::Tls>,
}

/// A connection to a cluster; cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) hub: Arc<Hub>,
    /// Ends the client's own task with the last handle.
    keeper: Arc<hub::Keeper>,
}

impl Client {
    /// What a client needs to know; only the name servers have no default.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            name_servers: Vec::new(),
            name_server_list: None,
            name_server_list_every: Duration::from_secs(120),
            instance: None,
            request_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(3),
            credentials: credentials::Told::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The client of a broker in this process; it must be called within a Tokio runtime.
    #[cfg(feature = "broker")]
    pub(crate) fn of(near: Arc<dyn near::Near>) -> Client {
        let builder = Client::builder();
        let within = builder.connect_timeout;
        let dialling =
            Dialling { within, names: Names::default(), near: Some(near), credentials: None, security: None };
        let (hub, keeper) = Hub::start(builder, None, dialling, None);
        Client { hub, keeper: Arc::new(keeper) }
    }

    /// Ends everything this client and its clones have begun: consumers commit how far they have come and leave their
    /// groups, their streams end, the brokers are told, the connections are closed. What is asked of it later fails
    /// with [`ClientError::ShutDown`].
    pub async fn shutdown(&self) {
        self.hub.close().await;
    }

    /// A producer of a group.
    pub fn producer(&self, group: &str) -> ProducerBuilder {
        ProducerBuilder::new(self.clone(), group)
    }

    /// A consumer that shares the queues of its topics with the other members of its group.
    pub fn consumer(&self, group: &str) -> ConsumerBuilder {
        ConsumerBuilder::new(self.clone(), group)
    }

    /// A connection of its own to a server, made as all of this client's are: for a program that speaks the protocol
    /// itself, and signs its requests by [`Client::sign`].
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::Tls`].
    pub async fn connection(&self, address: &str) -> Result<Box<dyn Connection>, ClientError> {
        self.hub.peers.connection(address).await
    }

    /// Signs a request with the credentials of this client, if it has any.
    pub fn sign(&self, request: &mut Command) {
        self.hub.peers.sign(request);
    }

    /// The client begins to work on the present runtime; an error after its end.
    fn begin_here(&self) -> Result<(), ClientError> {
        self.hub.still_open()?;
        self.keeper.stand_by(&self.hub);
        Ok(())
    }

    /// The name by which brokers know this client.
    pub fn client_id(&self) -> &str {
        self.hub.identity.client_id()
    }

    /// The queues of a topic that can be read.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if no name server knows the topic.
    pub async fn queues(&self, topic: &str) -> Result<Vec<Queue>, ClientError> {
        Ok(self.hub.route(topic).await?.readable())
    }

    /// The queues of a topic that can be written to, the ones a send to a new topic would make included.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if no name server knows the topic and no broker makes topics on demand.
    pub async fn writable_queues(&self, topic: &str) -> Result<Vec<Queue>, ClientError> {
        Ok(self.hub.routes.route_for_send(&self.hub.peers, topic).await?.writable().to_vec())
    }

    /// Makes a topic with `queues` queues on every master of the cluster, or changes it; returns when a name
    /// server gives its route.
    ///
    /// # Errors
    /// [`ClientError::IllegalName`] at once, [`ClientError::NoBroker`], or what the first broker that refuses says;
    /// [`ClientError::NoRoute`] if no broker has registered the topic after some seconds.
    pub async fn create_topic(&self, topic: &str, queues: i32) -> Result<(), ClientError> {
        legal::topic(topic)?;
        let header = UpdateAndCreateTopicHeader {
            topic: topic.into(),
            default_topic: "TBW102".into(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: 6,
            topic_filter_type: "SINGLE_TAG".into(),
            topic_sys_flag: Some(0),
            order: Some(false),
            ..Default::default()
        };
        for address in self.hub.masters().await? {
            let link = self.hub.peers.link(&address).await?;
            link.ask::<UpdateAndCreateTopic>(&header, Bytes::new(), self.hub.within).await?;
        }
        self.await_route(topic).await
    }

    /// Returns when a name server gives the route of a topic that was just made.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if no broker has registered the topic after some seconds.
    pub async fn await_route(&self, topic: &str) -> Result<(), ClientError> {
        let mut tries = 1..=ROUTE_TRIES;
        loop {
            match self.hub.routes.renew(&self.hub.peers, topic).await {
                Err(ClientError::NoRoute { .. }) if tries.next().is_some() => {
                    tokio::time::sleep(ROUTE_PAUSE).await;
                }
                known => return known.map(drop),
            }
        }
    }
}

/// How often the route of a new topic is asked for before it counts as missing.
const ROUTE_TRIES: u32 = 50;

/// How long a client waits before it asks for the route of a new topic again.
const ROUTE_PAUSE: Duration = Duration::from_millis(200);

/// Shortest pause between two readings of the list of name servers.
const READING_MIN: Duration = Duration::from_millis(10);

/// Longest pause between two readings of the list of name servers: a day.
const READING_MAX: Duration = Duration::from_secs(86_400);

impl ClientBuilder {
    /// The name servers: `host:port`, several separated by `;`; more calls add further ones. RocketMQ: `namesrvAddr`.
    pub fn name_servers(mut self, addresses: &str) -> ClientBuilder {
        self.name_servers.extend(name_servers::split(addresses).map(str::to_owned));
        self
    }

    /// Where a web server keeps the list of name servers, instead of [`ClientBuilder::name_servers`]:
    /// `http://host:port/path`, plain text of `host:port` with `;` or lines between. It is read before the client is
    /// made, and again every 2 minutes; while it cannot be read the last one stands. RocketMQ's
    /// `rocketmq.namesrv.domain` is `http://jmenv.tbsite.net:8080/rocketmq/nsaddr` by default.
    pub fn name_server_list(mut self, url: &str) -> ClientBuilder {
        self.name_server_list = Some(url.to_owned());
        self
    }

    /// How often the list of name servers is read. Default: every 120 s. Bounds: 10 ms ..= a day.
    pub fn name_server_list_every(mut self, interval: Duration) -> ClientBuilder {
        self.name_server_list_every = interval;
        self
    }

    /// What tells this client from others of the same machine in its client id. Default: process id and time. RocketMQ:
    /// `instanceName`.
    pub fn instance(mut self, name: &str) -> ClientBuilder {
        self.instance = Some(name.to_owned());
        self
    }

    /// Signs every request with a user's secret. RocketMQ: `AclClientRPCHook` with an access key and its secret key.
    pub fn credentials(mut self, user: &str, secret: &str) -> ClientBuilder {
        self.credentials.user = Some((user.into(), secret.into()));
        self
    }

    /// A temporary token that goes with the credentials.
    pub fn security_token(mut self, token: &str) -> ClientBuilder {
        self.credentials.token = Some(token.into());
        self
    }

    /// How long an answer is waited for; sends have a limit of their own. Default: 3 s. RocketMQ: `mqClientApiTimeout`.
    pub fn request_timeout(mut self, within: Duration) -> ClientBuilder {
        self.request_timeout = within;
        self
    }

    /// How long a connection may take, TLS included. Default: 3 s. RocketMQ:
    /// `com.rocketmq.remoting.client.connect.timeout`.
    pub fn connect_timeout(mut self, within: Duration) -> ClientBuilder {
        self.connect_timeout = within;
        self
    }

    /// Speaks TLS with every name server and broker. Default: no TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: tls::Tls) -> ClientBuilder {
        self.tls = Some(tls);
        self
    }

    /// Makes the client; it must be called within a Tokio runtime, which does what the client does by itself: it must
    /// go on being driven.
    ///
    /// # Errors
    /// [`ClientError::Setting`] without a name server, with a token for no credentials or with files of TLS that cannot
    /// be used,
    /// [`ClientError::NameServerList`] if their list cannot be read,
    /// [`ClientError::Connect`] if no name server can be reached, [`ClientError::Tls`] if none speaks it.
    pub async fn connect(mut self) -> Result<Client, ClientError> {
        let credentials = std::mem::take(&mut self.credentials).credentials()?;
        let list = self.list()?;
        if let Some(list) = &list {
            self.name_servers = list.read(self.request_timeout).await?;
        }
        let dialling = Dialling {
            within: self.connect_timeout,
            names: Names::default(),
            near: None,
            credentials: credentials.map(Arc::new),
            security: self.security().await?,
        };
        let peer = self.first_address().await;
        let (hub, keeper) = Hub::start(self, list, dialling, peer);
        let client = Client { hub, keeper: Arc::new(keeper) };
        client.hub.reach_a_name_server().await?;
        Ok(client)
    }

    /// Where the list of name servers is, if it is one that says who they are.
    fn list(&self) -> Result<Option<List>, ClientError> {
        let wrong = |setting, why: &str| Err(ClientError::Setting { setting, why: why.to_owned() });
        match (&self.name_server_list, self.name_servers.is_empty()) {
            (None, true) => wrong("name_servers", "none was given"),
            (None, false) => Ok(None),
            (Some(_), false) => wrong("name_server_list", "name_servers were given too; one of both counts"),
            (Some(_), true) if !(READING_MIN..=READING_MAX).contains(&self.name_server_list_every) => {
                let why =
                    format!("{:?} is not {READING_MIN:?} to {READING_MAX:?}", self.name_server_list_every);
                wrong("name_server_list_every", &why)
            }
            (Some(url), true) => List::at(url).map(Some),
        }
    }

    /// The address of the first name server whose host is known, as far as that can be found out in time.
    async fn first_address(&self) -> Option<SocketAddr> {
        let names = Names::default();
        let found = async {
            for server in &self.name_servers {
                if let Ok(addresses) = names.addresses(server).await
                    && let Some(first) = addresses.first()
                {
                    return Some(*first);
                }
            }
            None
        };
        timeout(self.connect_timeout, found).await.ok().flatten()
    }

    /// Reads the files of TLS, on a thread that may wait for a disk.
    #[cfg(feature = "tls")]
    async fn security(&self) -> Result<Option<tls::Security>, ClientError> {
        let Some(tls) = self.tls.clone() else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || tls.prepare()).await;
        let lost =
            |error: tokio::task::JoinError| ClientError::Setting { setting: "tls", why: error.to_string() };
        read.map_err(lost)?.map(Some)
    }

    #[cfg(not(feature = "tls"))]
    async fn security(&self) -> Result<Option<tls::Security>, ClientError> {
        Ok(None)
    }
}
