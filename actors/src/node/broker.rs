//! Builds the broker of a node, and stops it.
//!
//! Invariants:
//! - an actor is started after those it sends to;
//! - log, dispatcher, flush and topics run on arbiter 0: a hop between them costs no wake of a thread; queues run
//!   beside who reads them, see `queue`;
//! - what the store gave out at its opening is collected again before it is closed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use actix::{Actor, Addr, AsyncContext};
use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use troupemq_codec::Text;
use troupemq_codec::filter::BloomFilter;
use troupemq_codec::message::properties::{CLUSTER, MSG_REGION, TRACE_ON, put_property};
use troupemq_codec::request::StoredReplies;
use troupemq_codec::topic::DataVersion;
use troupemq_store::dispatch::FilterBits;
use troupemq_store::dispatch::delay_levels::DelayLevels;
use troupemq_store::tables::{ConsumerFilterTable, TableFile};
use troupemq_store::timer::{TimerStore, TimerView};
use troupemq_store::{
    Closing, FlushMode, IndexReader, LogFlusher, LogReader, Marks, Opened, QueueTable, StoreConfig,
};

use crate::cast::BrokerCast;
use crate::cold_reader::ColdReaders;
use crate::commit_log::{CommitLog, ReleaseLog};
use crate::config::{BrokerConfig, BrokerPart, DEFAULT_REGION, NetConfig, NodeClock, NodeConfig};
use crate::detour::Detours;
use crate::directory::Directory;
use crate::dispatcher::{Dispatcher, ReleaseWriter};
use crate::filters::book::FilterBook;
use crate::filters::table::FilterTable;
use crate::flush::{Flush, FlushThread, Nudge};
use crate::lookups::Lookups;
use crate::memory::memory_bytes;
use crate::net::listener::{Listener, bind};
use crate::node::delivery::{Addressed, Delivery};
use crate::node::naming::{self, Known, Naming};
use crate::node::people::{People, PeopleTables};
use crate::node::regained::regain;
use crate::node::{NodeError, Stage};
use crate::poison::Poison;
use crate::properties_text;
use crate::queue::room::Room;
use crate::registrar::{Leave, Registrar};
use crate::retention::{Retention, Upkeep};
use crate::retry::Retry;
use crate::router::Served;
use crate::schedule::Schedule;
use crate::send::ids::{IdSource, PlaceIds};
use crate::send::slow::SlowSends;
use crate::settings::{Configured, STORE_FILE, Settings};
use crate::stats::rates::Sampler;
use crate::timer::Timer;
use crate::timer::admit::TimerGate;
use crate::transaction::TransactionChecker;
use crate::watchdog::Watchdog;

/// File of the settings that were changed at run time, beside the tables.
const SETTINGS_FILE: &str = "brokerSettings.json";

/// A broker that is ready to be listened for.
pub(super) struct Built {
    /// Where it can be reached; a private broker has neither port nor listener.
    pub(super) address: Option<SocketAddr>,
    pub(super) cast: Arc<BrokerCast>,
    pub(super) listener: Option<Listener>,
}

/// What of a running broker has to be stopped.
pub(super) struct Running {
    registrar: Option<Addr<Registrar>>,
    commit_log: Addr<CommitLog>,
    dispatcher: Addr<Dispatcher>,
    retention: (Retention, JoinHandle<Marks>),
    flushing: (FlushThread, JoinHandle<LogFlusher>),
    queues: QueueTable,
    people: Option<People>,
    delivery: Option<Delivery>,
}

/// Builds it.
pub(super) fn build(
    stage: &mut Stage,
    config: &NodeConfig,
    part: &BrokerPart,
    watchdog: &mut Watchdog,
) -> Result<Built, NodeError> {
    let failed = |cause| NodeError::Port { address: part.listen, cause };
    let socket = (!part.is_private).then(|| bind(part.listen)).transpose().map_err(failed)?;
    let address = socket.as_ref().map(std::net::TcpListener::local_addr).transpose().map_err(failed)?;
    let (filters, book) = read_filters(config, part)?;
    let bits = part.config.enable_calc_filter_bit_map.then(|| Box::new(book.clone()) as Box<dyn FilterBits>);
    let file = |name| part.store.dir.join("config").join(name);
    let (store_configured, store) = Configured::open(part.store.clone(), Some(file(STORE_FILE)))?;
    let opened = troupemq_store::open_with(store, config.clock.0.clone(), bits)?;
    let (configured, settings) = Configured::open(part.config.clone(), Some(file(SETTINGS_FILE)))?;
    let configured = (configured, store_configured);
    let part = &BrokerPart { config: settings, ..part.clone() };
    let now_ms = config.clock.0.now_ms();
    let timers = TimerStore::open(&opened.config, &opened.queues, &opened.reader, now_ms)?;
    regain(&opened, &timers, &part.config, now_ms)?;
    let view = timers.view();
    opened.keeper.needed().tell_timers(view.clone());
    let below = start_store(stage, config, &part.config, (opened, watchdog))?;
    let tables = PeopleTables::read(&below.store.load(), (filters, book))?;
    let progress = tables.transactions();
    let directory = Arc::new(match below.store.load().light_queues_enabled {
        true => Directory::with_light_queues(),
        false => Directory::new(),
    });
    let settings = (&part.config, &below.log, &config.clock);
    let people = People::start(stage, tables, &directory, settings, watchdog);
    if let Some(running) = &mut stage.broker {
        running.people = Some(people.clone());
    }
    let addressed = Addressed::default();
    let (transactions, schedule) = (addressed.checker.address(), addressed.schedule.address());
    let retry = addressed.retry.address();
    let timer = addressed.timer.address();
    let advertised = advertised(part, address);
    let ground =
        Ground { advertised, directory, people, transactions, schedule, retry, timer, view, configured };
    let cast = start(stage, config, part, ground, (below, watchdog))?;
    let delivery = Delivery::start(stage, &cast, (addressed, progress, timers), watchdog)?;
    if let Some(running) = &mut stage.broker {
        running.delivery = Some(delivery);
    }
    tell_bounds(config, cast.memory_bytes);
    let served = || Served::Broker(cast.clone());
    let listener = socket.map(|socket| Listener::new(socket, stage.sessions.clone(), served()));
    Ok(Built { address, cast, listener })
}

/// Says what bounds the memory that a broker takes beside its maps; there are no other pools.
fn tell_bounds(config: &NodeConfig, memory_bytes: u64) {
    let NetConfig { in_flight_max_bytes, outbound_max_bytes, calls_max, .. } = config.net;
    let mailbox = crate::commit_log::MAILBOX;
    tracing::info!(
        memory_bytes,
        in_flight_max_bytes,
        outbound_max_bytes,
        calls_max,
        mailbox,
        "requests and answers are bounded by these numbers"
    );
}

/// The filters that were saved: what is replayed at the opening of the store gets their bits.
fn read_filters(
    config: &NodeConfig,
    part: &BrokerPart,
) -> Result<((FilterTable, TableFile<ConsumerFilterTable>), FilterBook), NodeError> {
    let (file, saved) = TableFile::<ConsumerFilterTable>::open(&part.store.dir)?;
    let BrokerConfig { max_error_rate_of_bloom_filter: rate, expect_consumer_num_use_filter: groups, .. } =
        part.config;
    let table = FilterTable::restored(BloomFilter::new(rate, groups), saved, config.clock.0.now_ms());
    let book = FilterBook::default();
    book.publish(table.pages());
    Ok(((table, file), book))
}

/// The address others are told; of a private broker, the one that stands in its messages.
fn advertised(part: &BrokerPart, opened: Option<SocketAddr>) -> SocketAddr {
    let opened = opened.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
    let ip = part.advertise.unwrap_or_else(|| match opened.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => own_ip(),
        IpAddr::V6(ip) if ip.is_unspecified() => own_ip(),
        ip => ip,
    });
    SocketAddr::new(ip, part.advertise_port.unwrap_or(opened.port()))
}

/// The address of this machine by which it reaches others; no packet is sent to find it out.
fn own_ip() -> IpAddr {
    let found = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    found.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

/// The parts of the store and the actors that own them.
struct StoreCast {
    retention: Retention,
    store: Arc<ArcSwap<StoreConfig>>,
    log: LogReader,
    index: IndexReader,
    queues: QueueTable,
    cold: ColdReaders,
    flush: Addr<Flush>,
    dispatcher: Addr<Dispatcher>,
    commit_log: Addr<CommitLog>,
}

/// Starts the actors that own the store.
fn start_store(
    stage: &mut Stage,
    config: &NodeConfig,
    broker: &BrokerConfig,
    (opened, watchdog): (Opened, &mut Watchdog),
) -> Result<StoreCast, NodeError> {
    let Opened { log, reader, flusher, dispatch, queues, marks, keeper, config: store, .. } = opened;
    let thread = |name| move |cause| NodeError::Thread { name, cause };
    let is_sync = store.flush == FlushMode::Sync;
    let store = Arc::new(ArcSwap::from_pointee(store));
    let (poison, clock) = (stage.poison.clone(), config.clock.clone());

    stage.enter("ColdReaders");
    let cold = ColdReaders::start(&poison).map_err(thread("cold-reader"))?;
    let upkeep = Upkeep {
        marks,
        log: flusher.watch(),
        reader: reader.clone(),
        queues: queues.clone(),
        derived: dispatch.flusher().clone(),
        keeper,
        config: store.clone(),
        clock: clock.clone(),
    };
    stage.enter("Retention");
    let retention = Retention::start(upkeep, poison.clone()).map_err(thread("retention"))?;
    let flushing = FlushThread::start(flusher, store.clone(), poison.clone()).map_err(thread("flusher"))?;
    stage.enter("Flush");
    let flush =
        Flush::new(flushing.0.clone(), clock.clone(), broker.sync_flush_timeout, poison.clone()).start();
    stage.enter("Dispatcher");
    let waits = is_sync.then(|| flush.clone());
    let index = dispatch.index().clone();
    let dispatcher =
        Dispatcher::new(dispatch, reader.clone(), waits, (poison.clone(), clock.clone())).start();
    stage.enter("CommitLog");
    let nudge = Nudge::new(flushing.0.clone(), store.clone(), reader.wrote_to());
    let commit_log = CommitLog::new(log, clock, dispatcher.clone(), nudge, poison).start();

    watchdog.watch("Flush", flush.clone());
    watchdog.watch("Dispatcher", dispatcher.clone());
    watchdog.watch("CommitLog", commit_log.clone());
    let handle = retention.0.clone();
    stage.broker = Some(Running {
        registrar: None,
        commit_log: commit_log.clone(),
        dispatcher: dispatcher.clone(),
        retention,
        flushing,
        queues: queues.clone(),
        people: None,
        delivery: None,
    });
    Ok(StoreCast {
        retention: handle,
        store,
        log: reader,
        index,
        queues,
        cold,
        flush,
        dispatcher,
        commit_log,
    })
}

/// What the actors of a broker stand on beside its store.
struct Ground {
    advertised: SocketAddr,
    directory: Arc<Directory>,
    people: People,
    transactions: Addr<TransactionChecker>,
    schedule: Addr<Schedule>,
    retry: Addr<Retry>,
    configured: (Configured<BrokerConfig>, Configured<StoreConfig>),
    timer: Addr<Timer>,
    view: TimerView,
}

/// Starts the actors of the broker on top of those of its store.
fn start(
    stage: &mut Stage,
    config: &NodeConfig,
    part: &BrokerPart,
    Ground { advertised, directory, people, transactions, schedule, retry, timer, view, configured }: Ground,
    (below, watchdog): (StoreCast, &mut Watchdog),
) -> Result<Arc<BrokerCast>, NodeError> {
    let (clock, broker) = (config.clock.clone(), &part.config);
    let shared = Arc::new(ArcSwap::from_pointee(broker.clone()));
    let (queues, retention) = (&below.queues, &below.retention);
    let known = Known { shared: &shared, directory: &directory, queues, retention };
    let Naming { topics, registrar } = naming::start(stage, config, part, advertised, known)?;
    watchdog.watch("Topics", topics.clone());
    if let Some(running) = &mut stage.broker {
        running.registrar = Some(registrar.clone());
    }
    ["Settings", "Sampler", "Queue"].iter().for_each(|actor| stage.enter(actor));
    let changes = start_settings(configured, (&shared, &below.store), &clock);
    let levels = DelayLevels::parse(&below.store.load().delay_levels)?;
    Ok(Arc::new(BrokerCast {
        transactions,
        schedule,
        retry,
        open_halves: Arc::default(),
        timer,
        detours: Detours::new(levels, TimerGate::new(shared.clone(), view), below.queues.clone()),
        config: shared,
        ids: IdSource::new(advertised.ip(), clock.0.now_ms()),
        message_ids: PlaceIds::new(advertised),
        broker_name: Text::from(broker.broker_name.as_str()),
        region: region(broker),
        trace_on: broker.trace_on,
        slow_sends: SlowSends::default(),
        stored_replies: StoredReplies::new(&broker.region_id, broker.trace_on),
        own_properties: own_properties(broker),
        memory_bytes: memory_bytes(),
        hot_from: below.log.wrote_to(),
        store_dir: below.store.load().dir.clone(),
        store_config: below.store,
        settings: changes.broker,
        store_settings: changes.store,
        settings_version: changes.version,
        sessions: stage.sessions[0].clone(),
        credits: stage.credits.clone(),
        poison: stage.poison.clone(),
        sampler: Sampler::new(people.stats.clone(), clock.clone()).start(),
        stats: people.stats,
        groups: people.groups,
        filters: people.book,
        offsets: people.offsets,
        offsets_published: people.published,
        heartbeats: people.heartbeats,
        assignments: people.assignments,
        log: below.log,
        queues: below.queues,
        index: below.index,
        held_pulls: Room::of_node(),
        cold: below.cold,
        cold_flow: Arc::default(),
        lookups: Lookups::default(),
        commit_log: below.commit_log,
        dispatcher: below.dispatcher,
        flush: below.flush,
        retention: below.retention,
        clock,
        advertised,
        directory,
        topics,
        registrar,
    }))
}

/// Who changes settings, and how often that happened.
struct Changes {
    broker: Addr<Settings<BrokerConfig>>,
    store: Addr<Settings<StoreConfig>>,
    version: Arc<ArcSwap<DataVersion>>,
}

/// Starts the actors that change the settings of the broker and of its store, and count their changes together.
fn start_settings(
    (of_broker, of_store): (Configured<BrokerConfig>, Configured<StoreConfig>),
    (broker, store): (&Arc<ArcSwap<BrokerConfig>>, &Arc<ArcSwap<StoreConfig>>),
    clock: &NodeClock,
) -> Changes {
    let version = DataVersion { timestamp: clock.0.now_ms(), ..DataVersion::default() };
    let version = Arc::new(ArcSwap::from_pointee(version));
    let others = properties_text::parse(&properties_text::write(&**store.load()));
    let both = (broker.clone(), version.clone());
    let broker = Settings::new(of_broker, others, both, clock.clone()).start();
    let both = (store.clone(), version.clone());
    let store = Settings::new(of_store, BTreeMap::new(), both, clock.clone()).start();
    Changes { broker, store, version }
}

/// The name of the region. It goes to another thread with each answer to a send of this process: the name that most
/// regions have is not counted, so that no processor waits for another's count.
fn region(config: &BrokerConfig) -> Text {
    match config.region_id.as_str() {
        DEFAULT_REGION => Text::from_static(DEFAULT_REGION),
        other => Text::from(other),
    }
}

/// What every message is stored with.
fn own_properties(config: &BrokerConfig) -> Bytes {
    let mut text = BytesMut::new();
    put_property(&mut text, MSG_REGION, &config.region_id);
    put_property(&mut text, TRACE_ON, if config.trace_on { "true" } else { "false" });
    put_property(&mut text, CLUSTER, &config.broker_cluster_name);
    text.freeze()
}

impl Running {
    /// Tells the name servers that the broker stops.
    pub(super) async fn leave(&self) {
        if let Some(registrar) = &self.registrar {
            // A registrar that is gone has nothing registered any more.
            let _ = registrar.send(Leave).await;
        }
    }

    /// Stops the broker once no session is left: what was taken in is stored, then the store is closed.
    pub(super) async fn stop(self, poison: &Poison) -> Result<(), NodeError> {
        let delivered = match &self.delivery {
            Some(delivery) => match delivery.stop().await {
                Ok(()) => {
                    self.flushing.0.flush().await;
                    delivery.save().await
                }
                stopped => stopped,
            },
            None => Ok(()),
        };
        let saved = match &self.people {
            Some(people) => people.stop().await,
            None => Ok(()),
        };
        let gone = |part| move |_| NodeError::Incomplete { part };
        let log = self.commit_log.send(ReleaseLog).await.map_err(gone("CommitLog"));
        let dispatch = self.dispatcher.send(ReleaseWriter).await.map_err(gone("Dispatcher"));
        self.retention.0.stop();
        self.flushing.0.stop();
        let marks = self.retention.1.join().map_err(|_| NodeError::Incomplete { part: "retention" });
        let flusher = self.flushing.1.join().map_err(|_| NodeError::Incomplete { part: "flusher" });
        if poison.cause().is_some() {
            return Ok(());
        }
        let missing = |part| NodeError::Incomplete { part };
        troupemq_store::close(Closing {
            log: log?.ok_or(missing("CommitLog"))?,
            flusher: flusher?,
            dispatch: dispatch?.ok_or(missing("Dispatcher"))?,
            queues: self.queues,
            marks: marks?,
        })?;
        delivered.and(saved)
    }
}
