//! The daemon: name server and broker in one process, or one of them.
//!
//! Invariants:
//! - a file comes first, the environment over it, flags over both;
//! - SIGHUP reads file and environment again and takes over what may change while the daemon runs;
//! - SIGINT and SIGTERM stop in order: what was acknowledged is stored, and the exit code is 0;
//! - standard output gets three lines when everything listens, and nothing more.

mod reload;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use troupemq_actors::config::NAME_SERVER_PORT;
use troupemq_actors::node::{Node, NodeHandle};
use troupemq_actors::{BrokerPart, NameServerPart, NodeConfig};
use troupemq_store::{FlushMode, StoreConfig};

use super::Failure;
use super::settings::{Settings, SettingsError};

/// How long the greeting waits for the name servers at most.
const REGISTRATION_MAX: Duration = Duration::from_secs(2);

/// Settings of a broker.
#[derive(Debug, Default, PartialEq, Args)]
pub(super) struct BrokerFlags {
    /// Where the broker listens [default: 0.0.0.0:10911]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The address clients are told, IP or IP:PORT [default: that of this machine]
    #[arg(long, value_name = "ADDR")]
    advertise: Option<String>,
    /// Name servers, separated by `;`
    #[arg(long, value_name = "ADDRS")]
    namesrv: Option<String>,
    /// Folder of the store [default: ./troupemq-data]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// Name of the broker [default: the host's name]
    #[arg(long, value_name = "NAME")]
    broker_name: Option<String>,
    /// 0 for a master; a slave has more, and gets no copies yet: there is no replication
    #[arg(long, value_name = "N")]
    broker_id: Option<i64>,
    /// Name of the cluster [default: DefaultCluster]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// When a message counts as stored [default: async]
    #[arg(long, value_enum)]
    flush: Option<Flush>,
    /// A file of settings: troupemq.toml, or key=value lines as in RocketMQ's broker.conf
    /// [default: troupemq.toml of the current folder, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// When a message counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Flush {
    /// When the disk has it
    Sync,
    /// When the page cache has it
    Async,
}

/// Name server and broker in one process.
#[derive(Debug, Default, PartialEq, Args)]
pub(super) struct Both {
    #[command(flatten)]
    broker: BrokerFlags,
    /// Where the name server listens [default: 0.0.0.0:9876]
    #[arg(long, value_name = "ADDR")]
    namesrv_listen: Option<SocketAddr>,
}

/// Run a broker
#[derive(Debug, Args)]
pub(super) struct Broker {
    #[command(flatten)]
    broker: BrokerFlags,
}

/// Run a name server
#[derive(Debug, Args)]
pub(super) struct NameServer {
    /// Where it listens [default: 0.0.0.0:9876]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Folder of its key-value configuration [default: ./troupemq-data]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// A file of settings, as of a broker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Both {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let file = Settings::file(self.broker.config.as_deref());
        let (part, settings) = self.broker.part()?;
        let name_server = name_server_part(&settings, self.namesrv_listen, &part.store.dir);
        serve(file, settings, Some(part), Some(name_server)).await
    }
}

impl Broker {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let file = Settings::file(self.broker.config.as_deref());
        let (part, settings) = self.broker.part()?;
        serve(file, settings, Some(part), None).await
    }
}

impl NameServer {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let file = Settings::file(self.config.as_deref());
        let settings = Settings::load(self.config.as_deref())?;
        let dir = self.store_dir.unwrap_or(settings.store.dir.clone());
        let part = name_server_part(&settings, self.listen, &dir);
        serve(file, settings, None, Some(part)).await
    }
}

impl BrokerFlags {
    fn part(self) -> Result<(BrokerPart, Settings), SettingsError> {
        let settings = Settings::load(self.config.as_deref())?;
        let store = StoreConfig {
            dir: self.store_dir.unwrap_or(settings.store.dir.clone()),
            flush: match self.flush {
                Some(Flush::Sync) => FlushMode::Sync,
                Some(Flush::Async) => FlushMode::Async,
                None => settings.store.flush,
            },
            ..settings.store.clone()
        };
        settings.check_log_place(&store.dir)?;
        let mut part = BrokerPart::new(store);
        part.config = settings.broker.clone();
        replace(&mut part.config.namesrv_addr, self.namesrv);
        replace(&mut part.config.broker_name, self.broker_name);
        replace(&mut part.config.broker_id, self.broker_id);
        replace(&mut part.config.broker_cluster_name, self.cluster);
        part.listen = self.listen.unwrap_or(settings.ports.listen);
        let advertised = self.advertise.as_ref().unwrap_or(&settings.ports.advertise);
        if !advertised.is_empty() {
            (part.advertise, part.advertise_port) = advertise(advertised)?;
        }
        Ok((part, settings))
    }
}

/// A name server with its files below `dir`, where no others are set; two on one machine have files each.
fn name_server_part(settings: &Settings, listen: Option<SocketAddr>, dir: &Path) -> NameServerPart {
    let listen = listen.unwrap_or(settings.ports.namesrv_listen);
    let mut part = NameServerPart { listen, config: settings.name_server.clone() };
    let file = |name: &str| {
        let file = match listen.port() {
            NAME_SERVER_PORT => format!("{name}.json"),
            port => format!("{name}-{port}.json"),
        };
        dir.join("namesrv").join(file).display().to_string()
    };
    if part.config.kv_config_path.is_empty() {
        part.config.kv_config_path = file("kvConfig");
    }
    if part.config.config_store_path.is_empty() {
        part.config.config_store_path = file("namesrvSettings");
    }
    part
}

fn replace<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

/// An address to be told to others: an IP, or an IP with a port.
pub(super) fn advertise(text: &str) -> Result<(Option<IpAddr>, Option<u16>), SettingsError> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok((Some(address.ip()), Some(address.port())));
    }
    match text.parse::<IpAddr>() {
        Ok(ip) => Ok((Some(ip), None)),
        Err(_) => Err(SettingsError::Value {
            key: "advertise".to_owned(),
            value: text.to_owned(),
            wanted: "an IP address, with or without a port",
        }),
    }
}

/// Runs a node with these parts until a signal or its own end.
async fn serve(
    file: Option<PathBuf>,
    mut settings: Settings,
    broker: Option<BrokerPart>,
    name_server: Option<NameServerPart>,
) -> Result<(), Failure> {
    if let Some(file) = &file {
        tracing::info!(file = %file.display(), "settings read");
    }
    if let Some(BrokerPart { config, .. }) = &broker
        && config.broker_id != 0
    {
        tracing::warn!(
            broker_id = config.broker_id,
            "a slave gets no copies, as there is no replication here"
        );
    }
    let config = NodeConfig { broker, name_server, net: settings.net.clone(), ..NodeConfig::empty() };
    let store = config.broker.as_ref().map(|part| part.store.dir.display().to_string());
    troupemq_actors::net::listener::raise_open_files();
    let node = Node::start(config).map_err(|error| Failure::Node(Arc::new(error)))?;
    // Before anybody is told that it runs: who reads the greeting may stop it at once.
    let unwatched = |cause| Failure::Io { what: "cannot watch for signals", cause };
    let mut interrupted = signal(SignalKind::interrupt()).map_err(unwatched)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(unwatched)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(unwatched)?;
    if !node.registered(REGISTRATION_MAX).await {
        tracing::warn!("not all name servers know the broker yet");
    }
    greet(&node, store.as_deref());
    loop {
        tokio::select! {
            _ = interrupted.recv() => tracing::info!("interrupted, stopping"),
            _ = terminated.recv() => tracing::info!("terminated, stopping"),
            _ = hung_up.recv() => {
                reload::reload(&node, file.as_deref(), &mut settings).await;
                continue;
            }
            ended = node.ended() => return Ok(ended?),
        }
        break;
    }
    node.stop();
    Ok(node.ended().await?)
}

/// Says what listens where and what to try next, in three lines.
fn greet(node: &NodeHandle, store: Option<&str>) {
    let mut parts = Vec::new();
    if let Some(address) = node.name_server_address() {
        parts.push(format!("name server on {address}"));
    }
    if let (Some(address), Some(cast)) = (node.broker_address(), node.broker()) {
        let is_told = node.name_server_address().is_some() || !cast.config.load().namesrv_addr.is_empty();
        let alone = if is_told { "" } else { " (told to no name server, see --namesrv)" };
        parts.push(format!("broker {} on {address}, known as {}{alone}", cast.broker_name, cast.advertised));
    }
    if let Some(store) = store {
        parts.push(format!("store in {store}"));
    }
    let told = node.broker().map(|cast| cast.config.load().namesrv_addr.clone()).unwrap_or_default();
    let namesrv = match node.name_server_address().map(|address| address.port()) {
        Some(9876) => String::new(),
        Some(port) => format!(" -n 127.0.0.1:{port}"),
        None if told.is_empty() => " -n NAMESRV:9876".to_owned(),
        None => format!(" -n \"{told}\""),
    };
    let program = program();
    let lines = format!(
        "{}\n\
         try:  echo hello | {program} produce{namesrv} --topic demo\n\
         then: {program} consume{namesrv} --topic demo\n",
        parts.join("; ")
    );
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!(%error, "the greeting could not be printed");
    }
}

/// How this program was called, so that what the greeting says can be copied to another terminal of the same folder.
fn program() -> String {
    let called =
        std::env::args().next().filter(|name| !name.is_empty() && !name.contains(char::is_whitespace));
    called.unwrap_or_else(|| "troupemq".to_owned())
}
