//! A broker inside a program: no process, no socket unless asked for, nothing global.
//!
//! Invariants:
//! - its threads are its own: it works within any Tokio runtime and within an actix system, and several live in one
//!   process;
//! - producers and consumers are the same handles as those of a [`Client`]; what they send goes to the actors directly;
//! - it installs no signal handler and no logger;
//! - with the last handle it stops by itself; [`Broker::shutdown`] also waits until it has.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use troupemq::{Broker, Message};
//!
//! let broker = Broker::builder().temporary().start().await?;
//! let producer = broker.producer("orders-writer").start().await?;
//! let receipt = producer.send(Message::new("orders", "hello").tag("new").key("42")).await?;
//! println!("{} at {}:{}", receipt.message_id, receipt.queue, receipt.queue_offset);
//!
//! let mut orders = broker.consumer("orders-reader").subscribe("orders", "new || paid").from_first().stream().await?;
//! let delivery = orders.next().await.expect("the broker runs")?;
//! assert_eq!(&delivery.message().body()[..], b"hello");
//! delivery.ack().await?;
//! broker.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod actor_form;
mod folder;
mod way;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::{Addr, Context, Handler, Recipient};
use troupemq_actors::queue::Queue;
use troupemq_actors::stats::rates::Sampler;
use troupemq_actors::topics::Topics;
use troupemq_actors::{
    BrokerCast, BrokerConfig, BrokerPart, NameServerPart, Node, NodeConfig, NodeError, NodeHandle,
};
use troupemq_store::{FlushMode, StoreConfig};

use crate::client::Client;
use crate::client::consumer::ConsumerBuilder;
use crate::client::producer::ProducerBuilder;
pub use actor_form::Incoming;
use folder::Folder;
use way::Way;

/// Messages that the cast of a broker answers, for [`Broker::topics`], [`Broker::queue`] and [`Broker::statistics`].
pub mod cast {
    pub use troupemq_actors::queue::{QueueReading, TellQueue};
    pub use troupemq_actors::stats::rates::{Rates, TellRates};
    pub use troupemq_actors::topics::table::TopicSnapshot;
    pub use troupemq_actors::topics::{AllTopics, DeleteTopic, SystemTopics};
}

/// How long a start waits for name servers that do not answer.
const REGISTRATION_MAX: Duration = Duration::from_secs(2);

/// Settings of a broker in this process.
#[derive(Clone)]
pub struct BrokerBuilder {
    part: BrokerPart,
    name_server: Option<SocketAddr>,
    folder: Place,
    /// What is changed of the store's settings; which ones they are is known when the place is.
    store_changes: Vec<StoreChange>,
}

/// Changes settings of a store.
type StoreChange = Arc<dyn Fn(&mut StoreConfig) + Send + Sync>;

/// Where the store is.
#[derive(Debug, Clone)]
enum Place {
    Missing,
    Kept(PathBuf),
    Temporary,
}

/// A broker in this process; cheap to clone.
#[derive(Debug, Clone)]
pub struct Broker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    node: NodeHandle,
    cast: Arc<BrokerCast>,
    client: Client,
}

/// Why a broker could not start, or how it ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BrokerError {
    /// No place for the store was given.
    #[error("the broker has no store: give it a store_dir, or make it temporary")]
    NoStore,
    /// The temporary folder could not be made.
    #[error("cannot make the temporary folder {}: {cause}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        cause: Arc<std::io::Error>,
    },
    /// The node could not start, or it did not end in order.
    #[error(transparent)]
    Node(Arc<NodeError>),
}

impl Broker {
    /// What a broker needs to know; only the place of its store has no default.
    pub fn builder() -> BrokerBuilder {
        let mut part = BrokerPart::new(StoreConfig::default());
        part.is_private = true;
        BrokerBuilder { part, name_server: None, folder: Place::Missing, store_changes: Vec::new() }
    }

    /// A producer of a group.
    pub fn producer(&self, group: &str) -> ProducerBuilder {
        self.inner.client.producer(group)
    }

    /// A consumer that shares the queues of its topics with the other members of its group.
    pub fn consumer(&self, group: &str) -> ConsumerBuilder {
        self.inner.client.consumer(group)
    }

    /// The client of this broker: everything a [`Client`] of a cluster can do, with no socket between.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// The address it listens on, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.node.broker_address()
    }

    /// The address its name server listens on, if it has one.
    pub fn name_server_address(&self) -> Option<SocketAddr> {
        self.inner.node.name_server_address()
    }

    /// The folder of its store.
    pub fn store_dir(&self) -> &Path {
        &self.inner.cast.store_dir
    }

    /// The owner of the topics, for any message it handles; see [`cast`].
    pub fn topics<M>(&self) -> Recipient<M>
    where
        M: actix::Message<Result: Send> + Send + 'static,
        Topics: Handler<M>,
        Context<Topics>: ToEnvelope<Topics, M>,
    {
        self.inner.cast.topics.clone().recipient()
    }

    /// What the broker counts, for any message its keeper handles; see [`cast`].
    pub fn statistics<M>(&self) -> Recipient<M>
    where
        M: actix::Message<Result: Send> + Send + 'static,
        Sampler: Handler<M>,
        Context<Sampler>: ToEnvelope<Sampler, M>,
    {
        self.inner.cast.sampler.clone().recipient()
    }

    /// The actor of one queue, for any message it handles. There is one while somebody waits at the queue for a
    /// message; a queue that only takes messages needs none.
    pub fn queue<M>(&self, topic: &str, queue_id: i32) -> Option<Recipient<M>>
    where
        M: actix::Message<Result: Send> + Send + 'static,
        Queue: Handler<M>,
        Context<Queue>: ToEnvelope<Queue, M>,
    {
        let cast = &self.inner.cast;
        let topic = cast.directory.topic(topic)?;
        let queue = cast.directory.queue(&topic, queue_id, &cast.queues).ok()??;
        Some(Addr::clone(&*queue.actor()?).recipient())
    }

    /// Stops the broker and returns when it has: consumers have committed, what was acknowledged is on disk, a
    /// temporary folder is gone.
    ///
    /// # Errors
    /// [`BrokerError::Node`] if the broker had to stop before, or could not stop in order.
    pub async fn shutdown(&self) -> Result<(), BrokerError> {
        self.inner.client.shutdown().await;
        self.inner.node.stop();
        self.ended().await
    }

    /// Waits for the end of the broker, whoever brings it about.
    ///
    /// # Errors
    /// [`BrokerError::Node`] with the cause if it stopped because it could not be trusted any more.
    pub async fn ended(&self) -> Result<(), BrokerError> {
        self.inner.node.ended().await.map_err(BrokerError::Node)
    }
}

impl fmt::Debug for BrokerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self.store_changes.len();
        f.debug_struct("BrokerBuilder")
            .field("part", &self.part)
            .field("name_server", &self.name_server)
            .field("folder", &self.folder)
            .field("store_changes", &changes)
            .finish()
    }
}

/// Settings of a store that will not hold much, and need not leave room to others.
fn small_files(store: StoreConfig) -> StoreConfig {
    StoreConfig {
        log_segment_bytes: 32 << 20,
        queue_file_bytes: 60_000,
        batch_queue_file_bytes: 46_000,
        index_slots_max: 10_000,
        index_entries_max: 40_000,
        timer_log_file_bytes: 1 << 20,
        disk_full_percent: 100,
        disk_free_floor_bytes: 0,
        ..store
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.client.hub.begin_closing();
        self.node.stop();
    }
}

impl BrokerBuilder {
    /// The folder of the store; it is made if it is not there.
    pub fn store_dir(mut self, dir: impl Into<PathBuf>) -> BrokerBuilder {
        self.folder = Place::Kept(dir.into());
        self
    }

    /// A store with small files in a temporary folder, which is removed when the broker has ended: for tests. What
    /// [`BrokerBuilder::store_settings`] says holds, be it said before or after.
    pub fn temporary(mut self) -> BrokerBuilder {
        self.folder = Place::Temporary;
        self
    }

    /// Opens a port for other processes; port 0 takes any free one, [`Broker::address`] tells which.
    pub fn listen(mut self, address: impl Into<SocketAddr>) -> BrokerBuilder {
        self.part.listen = address.into();
        self.part.is_private = false;
        self
    }

    /// The address by which others reach the port, if it is not the one it is opened on.
    pub fn advertise(mut self, address: impl Into<SocketAddr>) -> BrokerBuilder {
        let address = address.into();
        self.part.advertise = Some(address.ip());
        self.part.advertise_port = Some(address.port());
        self
    }

    /// Starts a name server beside the broker, for clients of other processes; port 0 takes any free one.
    pub fn listen_as_name_server(mut self, address: impl Into<SocketAddr>) -> BrokerBuilder {
        self.name_server = Some(address.into());
        self
    }

    /// Name servers that shall know the broker: `host:port`, several separated by `;`.
    pub fn name_servers(mut self, addresses: &str) -> BrokerBuilder {
        self.part.config.namesrv_addr = addresses.to_owned();
        self
    }

    /// The broker's name. Default: the host's name.
    pub fn broker_name(mut self, name: &str) -> BrokerBuilder {
        self.part.config.broker_name = name.to_owned();
        self
    }

    /// When a message counts as stored. Default: when the page cache has it.
    pub fn flush(self, mode: FlushMode) -> BrokerBuilder {
        self.store_settings(move |store| store.flush = mode)
    }

    /// Changes any setting of the broker's behaviour.
    pub fn settings(mut self, change: impl FnOnce(&mut BrokerConfig)) -> BrokerBuilder {
        change(&mut self.part.config);
        self
    }

    /// Changes any setting of the store; its folder is set by [`BrokerBuilder::store_dir`].
    pub fn store_settings(
        mut self,
        change: impl Fn(&mut StoreConfig) + Send + Sync + 'static,
    ) -> BrokerBuilder {
        self.store_changes.push(Arc::new(change));
        self
    }

    /// Starts the broker and returns when it serves; it must be called within a Tokio runtime. A broker whose start is
    /// not waited for to its end does not stay.
    ///
    /// # Errors
    /// [`BrokerError`]: no store, a setting out of bounds, a store that cannot be opened, a port in use.
    pub async fn start(mut self) -> Result<Broker, BrokerError> {
        let (dir, folder) = match self.folder {
            Place::Missing => return Err(BrokerError::NoStore),
            Place::Kept(dir) => (dir, None),
            Place::Temporary => {
                let folder = Folder::make()?;
                self.part.store = small_files(self.part.store);
                (folder.path().to_owned(), Some(folder))
            }
        };
        self.store_changes.iter().for_each(|change| change(&mut self.part.store));
        self.part.store.dir = dir;
        let mut config = NodeConfig::empty();
        if self.part.is_private {
            // What is in this process is served by the thread that also writes the log.
            config.net.session_arbiters = 1;
            // The processors belong to the program.
            config.net.busy_poll_us = 0;
        }
        config.name_server = self.name_server.map(|listen| {
            let mut part = NameServerPart { listen, ..NameServerPart::default() };
            let file = self.part.store.dir.join("namesrv").join("kvConfig.json");
            part.config.kv_config_path = file.display().to_string();
            part
        });
        config.broker = Some(self.part);
        let node = Node::start_within(config, move || drop(folder)).await;
        let node = node.map_err(|error| BrokerError::Node(Arc::new(error)))?;
        let cast = node.broker().expect("the node was given a broker").clone();
        let client = Client::of(Arc::new(Way::new(cast.clone())));
        // From here on it ends with its handle: also if nobody waits for the rest.
        let broker = Broker { inner: Arc::new(Inner { node, cast, client }) };
        if !broker.inner.node.registered(REGISTRATION_MAX).await {
            tracing::warn!("not all name servers know the broker yet");
        }
        Ok(broker)
    }
}
