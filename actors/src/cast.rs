//! The cast: which actors there are, and the addresses by which they know each other.
//!
//! Invariants:
//! - an actor knows others by the addresses it was given here, never by a registry;
//! - a cast is built once, in `node`, and shared behind one `Arc`: nobody clones an address per message;
//! - every role that `node` starts stands in `CAST`, and the other way round.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use actix::Addr;
use arc_swap::ArcSwap;
use bytes::Bytes;
use troupemq_codec::request::StoredReplies;
use troupemq_codec::topic::DataVersion;
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::{Clock, IndexReader, LogReader, QueueTable, StoreConfig, light};

use crate::assignment::Assignments;
use crate::cold_flow::ColdFlow;
use crate::cold_reader::ColdReaders;
use crate::commit_log::CommitLog;
use crate::config::BrokerConfig;
use crate::credits::Credits;
use crate::detour::Detours;
use crate::directory::{Directory, TopicView};
use crate::dispatcher::Dispatcher;
use crate::filters::book::FilterBook;
use crate::flush::Flush;
use crate::groups::Groups;
use crate::heartbeat::HeartbeatScanner;
use crate::lookups::Lookups;
use crate::name_server::NameServerConfig;
use crate::name_server::kv::KvConfig;
use crate::name_server::registry::Routes;
use crate::net::Refusal;
use crate::net::sessions::Sessions;
use crate::offsets::{ConsumerOffsets, Published};
use crate::poison::Poison;
use crate::queue::room::Room;
use crate::registrar::Registrar;
use crate::retention::Retention;
use crate::retry::Retry;
use crate::schedule::Schedule;
use crate::send::ids::{IdSource, PlaceIds};
use crate::send::slow::SlowSends;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::stats::rates::Sampler;
use crate::timer::Timer;
use crate::topic::counters::Pair;
use crate::topics::{Attend, Topics};
use crate::transaction::TransactionChecker;

/// One line of the cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// The actor's type.
    pub actor: &'static str,
    /// What there is one of it for.
    pub one_per: &'static str,
    /// What it owns.
    pub owns: &'static str,
}

const fn role(actor: &'static str, one_per: &'static str, owns: &'static str) -> Role {
    Role { actor, one_per, owns }
}

/// Every actor a node starts.
pub const CAST: &[Role] = &[
    role("Watchdog", "node", "whether the core of the node lives"),
    role("ColdReaders", "node", "threads that read what is not in memory"),
    role("Retention", "store", "a thread: the checkpoint, what may be deleted and when"),
    role("Flush", "store", "flushed position, answers that wait for the disk"),
    role("Dispatcher", "store", "consume queues, index, dispatched position; tells queues of arrivals"),
    role("CommitLog", "store", "append position, queue offsets, the open segment"),
    role("Topics", "broker", "the list of topics, its version and file; which topics are in use"),
    role(
        "Topic",
        "topic in use",
        "its configuration and view, which of its queues are in use, its statistics",
    ),
    role("Filters", "broker", "who filters what by properties; publishes the filters"),
    role("Groups", "broker", "configuration of consumer groups; publishes the views of groups"),
    role("RebalanceCoordinator", "consumer group", "members, subscriptions, leases on queues"),
    role("ConsumerOffsets", "store", "committed offsets, resets"),
    role("Assignments", "broker", "how each group reads each topic, the queues of topics on other brokers"),
    role("HeartbeatScanner", "broker", "last-seen times of clients, connections of producers"),
    role("Registrar", "broker", "registration with every name server"),
    role("Timer", "store", "the wheel of messages that name the time of their delivery"),
    role("Schedule", "store", "the delay levels and how far each is delivered"),
    role("Sampler", "broker", "readings of the counters"),
    role("TransactionChecker", "store", "half messages that are not decided yet"),
    role("Retry", "broker", "messages that were sent back and are not stored again yet"),
    role("Queue", "topic and queue in use", "pulls on hold"),
    role(
        "Settings",
        "broker or name server",
        "settings that change at run time, and the file of the changes",
    ),
    role("Routes", "name server", "the cluster's brokers, topics and queues"),
    role("KvConfig", "name server", "values by key, kept in a file"),
    role("Sessions", "arbiter", "the sessions of one thread and the buffers they lease"),
    role("Session", "connection", "frames in flight, outbound bytes, calls that wait for their answer"),
    role("Listener", "port", "the listening socket"),
];

/// What the handlers of a broker know. Shared behind an `Arc`.
#[derive(Debug)]
pub struct BrokerCast {
    /// Behaviour; reloadable keys change by publishing a new one.
    pub config: Arc<ArcSwap<BrokerConfig>>,
    /// Where the time comes from.
    pub clock: crate::config::NodeClock,
    /// Name of the broker.
    pub broker_name: Text,
    /// The address others are told; it stands in message ids and stored records.
    pub advertised: SocketAddr,
    /// Published views of topics, groups and connections.
    pub directory: Arc<Directory>,
    /// Consume queues.
    pub queues: QueueTable,
    /// Where messages wait before they reach their topics.
    pub detours: Detours,
    /// Delivers what waits in a delay level.
    pub schedule: Addr<Schedule>,
    /// Decides transactions.
    pub transactions: Addr<TransactionChecker>,
    /// How many transactions are open, as their owner last said.
    pub open_halves: Arc<AtomicUsize>,
    /// Takes back what consumers failed with.
    pub retry: Addr<Retry>,
    /// Delivers messages that name the time of their delivery.
    pub timer: Addr<Timer>,
    /// Records of the log.
    pub log: LogReader,
    /// Keys of messages.
    pub index: IndexReader,
    /// Folder of the store; its `config` folder holds the tables.
    pub store_dir: PathBuf,
    /// Settings of the store; reloadable keys change by publishing new ones.
    pub store_config: Arc<ArcSwap<StoreConfig>>,
    /// Changes `config`.
    pub settings: Addr<Settings<BrokerConfig>>,
    /// Changes `store_config`.
    pub store_settings: Addr<Settings<StoreConfig>>,
    /// Counts the changes of both.
    pub settings_version: Arc<ArcSwap<DataVersion>>,
    /// Bytes of requests in flight.
    pub credits: Credits,
    /// Why the node is dying, if it is.
    pub poison: Poison,
    /// Counters of the broker.
    pub stats: Arc<Stats>,
    /// What the counters said in the last minutes and mornings.
    pub sampler: Addr<Sampler>,
    /// Pulls on hold at all queues.
    pub held_pulls: Room,
    /// Reads what is not in memory.
    pub cold: ColdReaders,
    /// Who reads how much of that.
    pub cold_flow: Arc<ColdFlow>,
    /// Reads single old messages.
    pub lookups: Lookups,
    /// Appends.
    pub commit_log: Addr<CommitLog>,
    /// Makes appended messages visible.
    pub dispatcher: Addr<Dispatcher>,
    /// Waits for the disk.
    pub flush: Addr<Flush>,
    /// Deletes what is old.
    pub retention: Retention,
    /// Makes and changes topics.
    pub topics: Addr<Topics>,
    /// Makes and changes consumer groups.
    pub groups: Addr<Groups>,
    /// Who filters what by properties.
    pub filters: FilterBook,
    /// How far groups have read.
    pub offsets: Addr<ConsumerOffsets>,
    /// What pulls look at before they ask the owner of the offsets.
    pub offsets_published: Published,
    /// Which clients live.
    pub heartbeats: Addr<HeartbeatScanner>,
    /// How groups read topics, and where those are.
    pub assignments: Addr<Assignments>,
    /// Registers the broker with the name servers.
    pub registrar: Addr<Registrar>,
    /// Where connections of our own are taken in; see `net::dialer`.
    pub sessions: Addr<Sessions>,
    /// Properties that every stored message gets: region, trace, cluster.
    pub own_properties: Bytes,
    /// Name of the region.
    pub region: Text,
    /// Whether clients are told to trace.
    pub trace_on: bool,
    /// What the answers to stored sends have in common.
    pub stored_replies: StoredReplies,
    /// Sends that took long.
    pub slow_sends: SlowSends,
    /// Unique ids for messages that come without.
    pub ids: IdSource,
    /// Ids of places in the log.
    pub message_ids: PlaceIds,
    /// Memory that the process may use, in bytes.
    pub memory_bytes: u64,
    /// End of the log when the node started: what comes behind has surely been in memory.
    pub hot_from: u64,
}

/// What the handlers of a name server know. Shared behind an `Arc`.
#[derive(Debug)]
pub struct NameServerCast {
    /// Behaviour; tools change it by publishing a new one.
    pub config: Arc<ArcSwap<NameServerConfig>>,
    /// Where the time comes from.
    pub clock: crate::config::NodeClock,
    /// When it was started, epoch ms.
    pub started_ms: i64,
    /// Owner of the route tables.
    pub routes: Addr<Routes>,
    /// Owner of keys and values.
    pub kv: Addr<KvConfig>,
    /// Changes `config`.
    pub settings: Addr<Settings<NameServerConfig>>,
}

impl BrokerCast {
    /// Epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.clock.0.now_ms()
    }

    /// The view of a topic.
    ///
    /// # Errors
    /// If there is no such topic.
    pub fn topic(&self, name: &str) -> Result<Arc<TopicView>, Refusal> {
        self.directory
            .topic(name)
            .ok_or_else(|| Refusal::new(ResponseCode::TOPIC_NOT_EXIST, format!("topic[{name}] not exist")))
    }

    /// How long messages are kept, in ms.
    pub fn reserved_ms(&self) -> i64 {
        i64::from(self.store_config.load().reserved_hours) * 3_600_000
    }

    /// Counts messages that were stored in queues of a topic.
    pub fn count_put(&self, topic: &str, queues: impl IntoIterator<Item = (i32, Pair)>) {
        self.directory.look_at_topic(topic, |view| {
            for (queue_id, sends) in queues {
                view.counters.put(queue_id, &sends);
            }
            self.attend(view);
        });
    }

    /// Counts messages of a queue that the broker itself took on behalf of a group.
    pub fn count_got(&self, topic: &str, (group, queue_id): (&str, i32), taken: &Pair) {
        self.directory.look_at_topic(topic, |view| {
            view.counters.got(group, queue_id, taken);
            self.attend(view);
        });
    }

    /// Sees to it that somebody takes samples of what a topic counts.
    pub fn attend(&self, topic: &TopicView) {
        if !topic.counters.claim() {
            return;
        }
        let name = match self.directory.is_light(&topic.name) {
            true => Text::from_static(light::PREFIX),
            false => topic.name.clone(),
        };
        if self.topics.try_send(Attend(name)).is_err() {
            // The next one who counts asks again.
            topic.counters.release();
        }
    }

    /// The clock itself.
    pub fn clock(&self) -> &dyn Clock {
        self.clock.0.as_ref()
    }
}
