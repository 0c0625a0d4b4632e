//! Settings of the daemon: a file, the environment, flags, each over the one before.
//!
//! Invariants:
//! - a key is declared once, as a field of a settings struct: its name, default and documentation come from there;
//! - a value that does not fit its key is an error that names file and line, or the variable;
//! - a key of RocketMQ that has no meaning here is logged, a key that nobody knows is an error with the nearest name.
//!
//! Contents: `keys` which keys there are, `file` the forms of files, `known` what a key can be mistaken for.

mod file;
mod keys;
mod known;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use troupemq_actors::config::ConfigError;
use troupemq_actors::settings::promises;
use troupemq_actors::{BrokerConfig, NameServerConfig, NetConfig};
use troupemq_store::{StoreConfig, StoreError};

pub(super) use keys::{Key, Part, keys};
pub(super) use known::{name, nearest, of_rocketmq};

/// Read without being asked for, if it is there.
const FILE: &str = "troupemq.toml";
/// Beginning of the variables that are settings.
const PREFIX: &str = "TROUPEMQ_";
/// Variables with that beginning that are none.
const OTHER_VARIABLES: [&str; 3] = ["TROUPEMQ_CONFIG", "TROUPEMQ_CRASH_AT", "TROUPEMQ_REFUSE_AT"];

/// All settings of a daemon, and where each that is not a default comes from.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// Where it listens, and what others are told.
    pub(super) ports: Ports,
    /// Behaviour of the broker.
    pub(super) broker: BrokerConfig,
    /// Its store.
    pub(super) store: StoreConfig,
    /// Connections and threads.
    pub(super) net: NetConfig,
    /// Behaviour of the name server.
    pub(super) name_server: NameServerConfig,
    /// Keys that were given, with their origins, in the order in which they were read.
    pub(super) given: Vec<(String, Origin)>,
    /// Where the log shall lie, if somebody said so.
    log_place: Option<Given>,
}

/// Where the daemon listens, and what others are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ports {
    /// IP and port on which the broker listens. RocketMQ's listenPort sets the port alone. Default: 0.0.0.0:10911.
    pub(super) listen: SocketAddr,
    /// IP, or IP and port, by which clients reach the broker; RocketMQ's brokerIP1. Default: that of this machine.
    pub(super) advertise: String,
    /// IP and port on which the name server listens. Default: 0.0.0.0:9876.
    pub(super) namesrv_listen: SocketAddr,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// A line of a file.
    Line { file: PathBuf, line: usize },
    /// A variable of the environment.
    Variable(String),
}

/// A value that was given, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    /// The table it stands in, if it stands in one.
    table: Option<String>,
    key: String,
    text: String,
    origin: Origin,
}

/// Why settings are not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("cannot read {}: {cause}", file.display())]
    Read { file: PathBuf, cause: std::io::Error },
    #[error("{origin}: {cause}")]
    At { origin: Origin, cause: Box<SettingsError> },
    #[error("no `=` in {text:?}")]
    NoValue { text: String },
    #[error("{why}")]
    Syntax { why: String },
    #[error("unknown key {key:?}, the nearest known one is {nearest:?}")]
    Unknown { key: String, nearest: String },
    #[error("{key} does not belong into [{table}] but into [{right}]")]
    Misplaced { key: String, table: String, right: &'static str },
    #[error("{key} = {value} cannot be kept: {why}")]
    Promise { key: String, value: String, why: &'static str },
    #[error(
        "{key} = {value} cannot be kept: the log of a store is in its folder, here {}, and nowhere else; set \
         storePathRootDir (or --store-dir) to the folder that has the log as `commitlog`",
        log.display()
    )]
    LogElsewhere { key: String, value: String, log: PathBuf },
    #[error("{key} = {value:?} is not {wanted}")]
    Value { key: String, value: String, wanted: &'static str },
    #[error("{key} = {value:?} cannot be: {why}")]
    Misfit { key: String, value: String, why: String },
    #[error(transparent)]
    Bounds(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Line { file, line } => write!(f, "{}:{line}", file.display()),
            Origin::Variable(name) => f.write_str(name),
        }
    }
}

impl Default for Ports {
    fn default() -> Ports {
        let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
        Ports {
            listen: any(troupemq_actors::config::BROKER_PORT),
            advertise: String::new(),
            namesrv_listen: any(troupemq_actors::config::NAME_SERVER_PORT),
        }
    }
}

impl Settings {
    /// The file that counts: the one named, the one of the environment, `troupemq.toml` of the current folder, or none.
    pub(super) fn file(named: Option<&Path>) -> Option<PathBuf> {
        let of_environment = || std::env::var_os("TROUPEMQ_CONFIG").map(PathBuf::from);
        let usual = || Some(PathBuf::from(FILE)).filter(|file| file.try_exists().unwrap_or(true));
        named.map(Path::to_owned).or_else(of_environment).or_else(usual)
    }

    /// Defaults, over them the file that counts, over it the environment.
    pub(super) fn load(named: Option<&Path>) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        if let Some(file) = Settings::file(named) {
            let read = |cause| SettingsError::Read { file: file.clone(), cause };
            let text = std::fs::read_to_string(&file).map_err(read)?;
            settings.take(&file::given(&file, &text)?)?;
        }
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        });
        settings.take(&of_environment(variables))?;
        Ok(settings)
    }

    /// Refuses what is out of bounds.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        self.broker.check()?;
        self.net.check()?;
        self.name_server.check()?;
        Ok(self.store.check()?)
    }

    /// Refuses a log that shall lie elsewhere than in the store in `dir`: a broker that went on would begin a new one,
    /// beside the messages that there are.
    pub(super) fn check_log_place(&self, dir: &Path) -> Result<(), SettingsError> {
        let Some(given) = &self.log_place else { return Ok(()) };
        if known::is_log_of(dir, &given.text) {
            return Ok(());
        }
        let (key, value) = (given.key.clone(), given.text.clone());
        let cause = Box::new(SettingsError::LogElsewhere { key, value, log: dir.join(known::LOG_FOLDER) });
        Err(SettingsError::At { origin: given.origin.clone(), cause })
    }

    /// Where a key's value comes from; nowhere if it is a default.
    pub(super) fn origin(&self, key: &str) -> Option<&Origin> {
        self.given.iter().rev().find(|(name, _)| name == key).map(|(_, origin)| origin)
    }

    /// The value of a key as it counts.
    pub(super) fn value(&self, key: &Key) -> Value {
        self.table(key.part).remove(&key.name).unwrap_or(Value::Null)
    }

    fn table(&self, part: Part) -> Map<String, Value> {
        match part {
            Part::Ports => object(&self.ports),
            Part::Broker => object(&self.broker),
            Part::Store => object(&self.store),
            Part::Net => object(&self.net),
            Part::NameServer => object(&self.name_server),
        }
    }

    fn take(&mut self, all: &[Given]) -> Result<(), SettingsError> {
        let mut tables = Part::ALL.map(|part| self.table(part));
        for given in all {
            take_one(&mut tables, given).map_err(|cause| SettingsError::At {
                origin: given.origin.clone(),
                cause: Box::new(cause),
            })?;
            if known::LOG_PLACES.contains(&given.key.as_str()) && !given.text.is_empty() {
                self.log_place = Some(given.clone());
            }
            self.given.push((name(&given.key).to_owned(), given.origin.clone()));
        }
        let [ports, broker, store, net, name_server] = tables;
        self.ports = value(ports);
        self.broker = value(broker);
        self.store = value(store);
        self.net = value(net);
        self.name_server = value(name_server);
        Ok(())
    }
}

/// Puts a value where its key stands; a key that two parts have goes to both.
fn take_one(tables: &mut [Map<String, Value>; 5], given: &Given) -> Result<(), SettingsError> {
    let key = name(&given.key);
    let text = known::text(&given.key, &given.text, &tables[0])?;
    let mut is_known = false;
    for (part, table) in Part::ALL.into_iter().zip(tables.iter_mut()) {
        if let Some(value) = table.get_mut(key) {
            *value = fitting(key, &text, value)?;
            if let Err(why) = read_back(part, table) {
                return Err(SettingsError::Misfit { key: key.to_owned(), value: text, why });
            }
            is_known = true;
        }
    }
    if let Some(why) = promises::broken(key, &text) {
        return Err(SettingsError::Promise { key: key.to_owned(), value: text, why });
    }
    if known::LOG_PLACES.contains(&key) {
        // It is looked at when it is known where the store is.
        return Ok(());
    }
    if !is_known && known::is_of_rocketmq(key) {
        tracing::warn!(key, origin = %given.origin, "a setting of RocketMQ that has no meaning here");
        return Ok(());
    }
    if !is_known {
        let nearest = nearest(key, tables.iter().flat_map(Map::keys));
        return Err(SettingsError::Unknown { key: key.to_owned(), nearest });
    }
    match &given.table {
        Some(table)
            if !Part::ALL
                .iter()
                .zip(tables)
                .any(|(part, keys)| part.table() == table && keys.contains_key(key)) =>
        {
            let right =
                keys().into_iter().find(|known| known.name == key).map_or("", |known| known.part.table());
            Err(SettingsError::Misplaced { key: key.to_owned(), table: table.clone(), right })
        }
        _ => Ok(()),
    }
}

/// `TROUPEMQ_MAX_MESSAGE_SIZE` is `maxMessageSize`.
fn of_environment(variables: impl Iterator<Item = (String, String)>) -> Vec<Given> {
    let names = keys();
    let mut all: Vec<_> = variables
        .filter(|(name, _)| name.starts_with(PREFIX) && !OTHER_VARIABLES.contains(&name.as_str()))
        .filter(|(name, value)| !known::is_of_orchestrator(name, value))
        .map(|(name, text)| {
            let bare = name.trim_start_matches(PREFIX).replace('_', "").to_lowercase();
            let known = names.iter().find(|key| key.name.to_lowercase() == bare);
            let key = known.map_or_else(|| bare.clone(), |key| key.name.clone());
            Given { table: None, key, text, origin: Origin::Variable(name) }
        })
        .collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

fn object<T: Serialize>(settings: &T) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(table)) => table,
        other => panic!("a settings struct is an object, not {other:?}"),
    }
}

/// Whether the settings of a part can be made of its table: a number may be beyond what its field holds, a word none of
/// those that there are.
fn read_back(part: Part, table: &Map<String, Value>) -> Result<(), String> {
    fn fits<T: DeserializeOwned>(table: &Map<String, Value>) -> Result<(), String> {
        T::deserialize(table).map(|_| ()).map_err(|why| why.to_string())
    }
    match part {
        Part::Ports => fits::<Ports>(table),
        Part::Broker => fits::<BrokerConfig>(table),
        Part::Store => fits::<StoreConfig>(table),
        Part::Net => fits::<NetConfig>(table),
        Part::NameServer => fits::<NameServerConfig>(table),
    }
}

fn value<T: DeserializeOwned>(table: Map<String, Value>) -> T {
    serde_json::from_value(Value::Object(table)).expect("each value was read back when it was taken")
}

/// The value of a text, of the same type as the one it replaces.
fn fitting(key: &str, text: &str, like: &Value) -> Result<Value, SettingsError> {
    let wrong = |wanted| Err(SettingsError::Value { key: key.to_owned(), value: text.to_owned(), wanted });
    match like {
        Value::Bool(_) => parsed::<bool>(key, text, "true or false").map(Value::Bool),
        Value::Number(number) if number.is_f64() => parsed::<f64>(key, text, "a number").map(Value::from),
        Value::Number(number) if number.is_u64() => parsed::<u32>(key, text, "a whole number")
            .map(Value::from)
            .or_else(|_| parsed::<i64>(key, text, "a whole number").map(Value::from)),
        Value::Number(_) => parsed::<i64>(key, text, "a whole number").map(Value::from),
        _ if key == "flushDiskType" && !matches!(text, "SYNC_FLUSH" | "ASYNC_FLUSH") => {
            wrong("SYNC_FLUSH or ASYNC_FLUSH")
        }
        _ if matches!(key, "listen" | "namesrvListen") && text.parse::<SocketAddr>().is_err() => {
            wrong("an IP address with a port")
        }
        _ => Ok(Value::String(text.to_owned())),
    }
}

fn parsed<T: std::str::FromStr>(key: &str, text: &str, wanted: &'static str) -> Result<T, SettingsError> {
    text.parse().map_err(|_| SettingsError::Value { key: key.to_owned(), value: text.to_owned(), wanted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use troupemq_store::FlushMode;

    fn taken(name: &str, text: &str) -> Result<Settings, String> {
        let mut settings = Settings::default();
        let given = file::given(Path::new(name), text).map_err(|error| error.to_string())?;
        settings.take(&given).map_err(|error| error.to_string())?;
        Ok(settings)
    }

    #[test]
    fn a_broker_conf_of_rocketmq_is_understood() {
        let settings = taken(
            "broker.conf",
            "# broker\nbrokerClusterName = GoldCluster\nbrokerName=broker-a\nbrokerId=0\nlistenPort=29011\n\
             brokerIP1=127.0.0.1\nflushDiskType=SYNC_FLUSH\nautoCreateTopicEnable=false\n\
             mappedFileSizeCommitLog=67108864\nwarmMapedFileEnable=true\nstorePathRootDir=\"/data/mq\"\n",
        )
        .expect("a good file");
        assert_eq!(settings.broker.broker_cluster_name, "GoldCluster");
        assert!(!settings.broker.auto_create_topic_enable);
        assert_eq!(settings.ports.listen.to_string(), "0.0.0.0:29011");
        assert_eq!(settings.ports.advertise, "127.0.0.1");
        assert_eq!(settings.store.flush, FlushMode::Sync);
        assert_eq!(settings.store.log_segment_bytes, 67_108_864);
        assert_eq!(settings.store.dir, Path::new("/data/mq"));
    }

    #[test]
    fn every_key_of_rocketmqs_own_files_is_accepted() {
        let usual = "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\nbrokerRole=ASYNC_MASTER\n\
            deleteWhen=04\nfileReservedTime=48\nflushDiskType=ASYNC_FLUSH\nnamesrvAddr=127.0.0.1:9876\n\
            listenPort=10911\nhaListenPort=10912\nstorePathRootDir=/data/store\nslaveReadEnable=true\n\
            storePathCommitLog=/data/store/commitlog\nstorePathConsumeQueue=/data/store/consumequeue\n\
            mapedFileSizeConsumeQueue=6000000\ndestroyMapedFileIntervalForcibly=120000\n\
            redeleteHangedFileInterval=120000\nflushCommitLogLeastPages=4\nflushConsumeQueueLeastPages=2\n\
            flushCommitLogThoroughInterval=10000\ncheckTransactionMessageEnable=false\n\
            waitTimeMillsInSendQueue=200\nosPageCacheBusyTimeOutMills=1000\nhaMasterAddress=10.0.0.1:10912\n\
            aclEnable=false\nserverWorkerThreads=8\noffsetCheckInSlave=false\nclusterTopicEnable=true\n\
            brokerTopicEnable=true\ntransferMsgByHeap=true\nbrokerFastFailureEnable=true\n\
            enableDLegerCommitLog=false\ndLegerGroup=RaftNode00\ndLegerPeers=n0-127.0.0.1:40911\n\
            dLegerSelfId=n0\nduplicationEnable=false\nsendMessageThreadPoolNums=16\n\
            pullMessageThreadPoolNums=128\nfetchNamesrvAddrByAddressServer=false\nenableSlaveActingMaster=true\n\
            controllerAddr=127.0.0.1:9878\nallAckInSyncStateSet=true\nmaxTransferBytesOnMessageInMemory=262144\n";
        let settings = taken("broker.conf", usual).expect("RocketMQ knows them all");
        assert_eq!(settings.store.queue_file_bytes, 6_000_000);
        let wrong = taken("broker.conf", "destroyMapedFileIntervallForcibly=1\n").expect_err("misspelt");
        assert!(wrong.starts_with("broker.conf:1: unknown key"), "{wrong}");
    }

    #[test]
    fn a_key_that_promises_what_is_not_here_is_refused_with_why() {
        let refused = |text: &str| taken("broker.conf", text).expect_err("it cannot be kept");
        assert_eq!(
            refused("brokerName=a\naclEnable=true\n"),
            "broker.conf:2: aclEnable = true cannot be kept: there is no access control here, everybody could do \
             everything"
        );
        assert!(refused("brokerRole=SLAVE").contains("second master"));
        assert!(refused("enableDLegerCommitLog=true").contains("no replication"));
    }

    #[test]
    fn a_log_outside_of_its_store_is_refused_and_one_inside_is_where_it_is_anyway() {
        let place = |lines: &str| {
            let settings = taken("broker.conf", lines).expect("RocketMQ knows the keys");
            settings.check_log_place(&settings.store.dir).map_err(|error| error.to_string())
        };
        let root = "storePathRootDir=/data/store\n";
        assert_eq!(place(root), Ok(()));
        for same in ["/data/store/commitlog", "/data/store/commitlog/", "/data//store/./commitlog", ""] {
            assert_eq!(place(&format!("{root}storePathCommitLog={same}\n")), Ok(()), "{same}");
        }
        for other in ["/data2/commitlog", "/data/store/commitlog,/data2/commitlog", "/data/store"] {
            let why = place(&format!("{root}storePathCommitLog={other}\n")).expect_err("it lies elsewhere");
            let start = format!(
                "broker.conf:2: storePathCommitLog = {other} cannot be kept: the log of a store is in"
            );
            assert!(why.starts_with(&start) && why.contains("here /data/store/commitlog,"), "{why}");
        }
        assert!(place("storePathCommitLog=/data/store/commitlog\n").is_err(), "the store is elsewhere");
        let more = place(&format!("{root}readOnlyCommitLogStorePaths=/old/commitlog\n"));
        assert!(more.expect_err("its messages would be missing").contains("readOnlyCommitLogStorePaths"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (there, link) = (folder.path().join("log"), folder.path().join("commitlog"));
        std::fs::create_dir(&there).expect("writable");
        std::os::unix::fs::symlink(&there, &link).expect("writable");
        let lines = format!("storePathCommitLog={}\n", there.display());
        let settings = taken("broker.conf", &lines).expect("RocketMQ knows the key");
        settings.check_log_place(folder.path()).expect("a link leads there");
    }

    #[test]
    fn a_toml_file_sets_the_same_keys_in_tables_or_without() {
        let text = "maxMessageSize = 5000\n[store]\nflushDiskType = 'SYNC_FLUSH'\n\n[ports]\nlisten = '127.0.0.1:1'\n";
        let settings = taken("troupemq.toml", text).expect("a good file");
        assert_eq!(settings.broker.max_message_size, 5000);
        assert_eq!(settings.store.flush, FlushMode::Sync);
        assert_eq!(settings.ports.listen.to_string(), "127.0.0.1:1");
        let origin = settings.origin("listen").expect("it was given").to_string();
        assert_eq!(origin, "troupemq.toml:6");
        assert_eq!(settings.origin("brokerName"), None);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_name() {
        let error = taken("broker.conf", "brokerName=a\nbrokrName=b\n").expect_err("unknown");
        assert_eq!(
            error,
            "broker.conf:2: unknown key \"brokrName\", the nearest known one is \"brokerName\""
        );
        let error = taken("troupemq.toml", "[broker]\n\nbrokrName = \"b\"\n").expect_err("unknown");
        assert_eq!(
            error,
            "troupemq.toml:3: unknown key \"brokrName\", the nearest known one is \"brokerName\""
        );
    }

    #[test]
    fn a_key_in_another_table_and_a_table_that_nobody_knows_are_refused() {
        let error = taken("troupemq.toml", "[store]\nbrokerName = \"b\"\n").expect_err("misplaced");
        assert_eq!(error, "troupemq.toml:2: brokerName does not belong into [store] but into [broker]");
        let error = taken("troupemq.toml", "[broke]\nbrokerName = \"b\"\n").expect_err("no table");
        assert!(error.starts_with("troupemq.toml:1: unknown key \"broke\""), "{error}");
        assert!(taken("troupemq.toml", "a = \n").expect_err("no value").starts_with("troupemq.toml:1: "));
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_what_is_wanted() {
        let error = taken("broker.conf", "autoCreateTopicEnable=maybe").expect_err("no boolean");
        assert_eq!(error, "broker.conf:1: autoCreateTopicEnable = \"maybe\" is not true or false");
        let refused = |text: &str| taken("broker.conf", text).expect_err("it does not fit");
        assert!(refused("flushDiskType=LATER").contains("SYNC_FLUSH"));
        assert!(refused("listenPort=70000").contains("port"));
        assert!(refused("listen=here").contains("IP address"));
        assert!(refused("just words").contains("no `=`"));
    }

    #[test]
    fn whatever_a_key_is_set_to_is_taken_or_refused_with_its_line() {
        let values = [
            "",
            "-1",
            "0",
            "1.5",
            "7000000000",
            "-7000000000",
            "9223372036854775807",
            "18446744073709551615",
            "18446744073709551616",
            "1e400",
            "NaN",
            "inf",
            "true",
            "x",
            "PULL",
            "\"",
            "\u{0}",
            "127.0.0.1:1",
        ];
        let mut refusals = 0;
        for key in keys() {
            for value in values {
                if let Err(why) = taken("broker.conf", &format!("\n{}={value}\n", key.name)) {
                    assert!(why.starts_with(&format!("broker.conf:2: {} = ", key.name)), "{value}: {why}");
                    refusals += 1;
                }
            }
        }
        assert!(refusals > 500, "{refusals}");
        let refused = |text: &str| taken("broker.conf", text).expect_err("it does not fit");
        let large = refused("maxMessageSize=7000000000");
        assert!(large.contains("\"7000000000\" cannot be: invalid value: integer"), "{large}");
        let word = refused("defaultMessageRequestMode=PUSH");
        assert!(word.contains("\"PUSH\" cannot be: unknown variant"), "{word}");
    }

    #[test]
    fn the_environment_names_keys_in_capitals() {
        let variables = [
            ("TROUPEMQ_MAX_MESSAGE_SIZE", "5000"),
            ("TROUPEMQ_CONFIG", "x"),
            ("HOME", "/"),
            ("TROUPEMQ_SERVICE_HOST", "10.0.0.1"),
            ("TROUPEMQ_PORT", "tcp://10.0.0.1:10911"),
        ];
        let given =
            of_environment(variables.map(|(name, text)| (name.to_owned(), text.to_owned())).into_iter());
        let mut settings = Settings::default();
        settings.take(&given).expect("good settings");
        assert_eq!(settings.broker.max_message_size, 5000);
        assert_eq!(
            settings.origin("maxMessageSize").map(ToString::to_string).as_deref(),
            Some("TROUPEMQ_MAX_MESSAGE_SIZE")
        );
        let wrong = of_environment([("TROUPEMQ_BROKR_NAME".to_owned(), "b".to_owned())].into_iter());
        let error = settings.take(&wrong).expect_err("unknown").to_string();
        assert!(error.starts_with("TROUPEMQ_BROKR_NAME: unknown key"), "{error}");
        assert!(error.ends_with("\"brokerName\""), "{error}");
    }
}
