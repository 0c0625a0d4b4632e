//! Settings from a file: `key=value` lines, as in RocketMQ's `broker.conf`.
//!
//! Invariants:
//! - a key is declared once, as a field of a settings struct; its Java name comes from there;
//! - a value that does not fit its key is an error that names the line;
//! - a key of RocketMQ that has no meaning here is logged, a key that nobody knows is an error with the
//!   nearest name.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use troupemq_actors::{BrokerConfig, NetConfig};
use troupemq_store::StoreConfig;

/// Keys of RocketMQ's `broker.conf` that have no meaning here and do no harm.
const WITHOUT_MEANING: &[&str] = &[
    "brokerIP2",
    "brokerRole",
    "sendMessageThreadPoolNums",
    "pullMessageThreadPoolNums",
    "useReentrantLockWhenPutMessage",
    "transientStorePoolEnable",
    "warmMapedFileEnable",
    "rocketmqHome",
    "storePathCommitLog",
    "storePathConsumeQueue",
    "storePathIndex",
    "storeCheckpoint",
    "abortFile",
    "haListenPort",
    "traceTopicEnable",
];

/// All settings a file can have.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// Behaviour of the broker.
    pub(super) broker: BrokerConfig,
    /// Its store.
    pub(super) store: StoreConfig,
    /// Connections and threads.
    pub(super) net: NetConfig,
    /// `listenPort`.
    pub(super) listen_port: Option<u16>,
    /// `brokerIP1`.
    pub(super) advertise: Option<String>,
}

/// Why a file of settings is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("cannot read {}: {cause}", file.display())]
    Read { file: PathBuf, cause: std::io::Error },
    #[error("{}:{line}: {cause}", file.display())]
    Line { file: PathBuf, line: usize, cause: Box<SettingsError> },
    #[error("no `=` in {text:?}")]
    NoValue { text: String },
    #[error("unknown key {key:?}, the nearest known one is {nearest:?}")]
    Unknown { key: String, nearest: String },
    #[error("{key} = {value:?} is not {wanted}")]
    Value { key: String, value: String, wanted: &'static str },
}

impl Settings {
    /// Takes over what a file says.
    pub(super) fn read(&mut self, file: &Path) -> Result<(), SettingsError> {
        let read = |cause| SettingsError::Read { file: file.to_owned(), cause };
        self.take(file, &std::fs::read_to_string(file).map_err(read)?)
    }

    fn take(&mut self, file: &Path, text: &str) -> Result<(), SettingsError> {
        let mut tables = [object(&self.broker), object(&self.store), object(&self.net)];
        for (at, line) in text.lines().enumerate() {
            let line_error =
                |cause| SettingsError::Line { file: file.to_owned(), line: at + 1, cause: Box::new(cause) };
            self.take_line(&mut tables, line).map_err(line_error)?;
        }
        let [broker, store, net] = tables;
        self.broker = value(broker);
        self.store = value(store);
        self.net = value(net);
        Ok(())
    }

    fn take_line(&mut self, tables: &mut [Map<String, Value>], line: &str) -> Result<(), SettingsError> {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            return Ok(());
        }
        let no_value = || SettingsError::NoValue { text: line.to_owned() };
        let (key, text) = line.split_once('=').ok_or_else(no_value)?;
        let (key, text) = (key.trim(), unquoted(text.trim()));
        match key {
            "listenPort" => self.listen_port = Some(parsed(key, text, "a port number")?),
            "brokerIP1" => self.advertise = Some(text.to_owned()),
            _ => match tables.iter_mut().find_map(|table| table.get_mut(key)) {
                Some(known) => *known = fitting(key, text, known)?,
                None if WITHOUT_MEANING.contains(&key) => {
                    tracing::warn!(key, "a setting of RocketMQ that has no meaning here");
                }
                None => {
                    let nearest = nearest(key, tables.iter().flat_map(Map::keys));
                    return Err(SettingsError::Unknown { key: key.to_owned(), nearest });
                }
            },
        }
        Ok(())
    }
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn object<T: Serialize>(settings: &T) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(table)) => table,
        other => panic!("a settings struct is an object, not {other:?}"),
    }
}

fn value<T: DeserializeOwned>(table: Map<String, Value>) -> T {
    serde_json::from_value(Value::Object(table)).expect("each value has the type of the default it replaced")
}

/// The value of a text, of the same type as the one it replaces.
fn fitting(key: &str, text: &str, like: &Value) -> Result<Value, SettingsError> {
    match like {
        Value::Bool(_) => parsed::<bool>(key, text, "true or false").map(Value::Bool),
        Value::Number(number) if number.is_f64() => parsed::<f64>(key, text, "a number").map(Value::from),
        Value::Number(number) if number.is_u64() => parsed::<u32>(key, text, "a whole number")
            .map(Value::from)
            .or_else(|_| parsed::<i64>(key, text, "a whole number").map(Value::from)),
        Value::Number(_) => parsed::<i64>(key, text, "a whole number").map(Value::from),
        _ if key == "flushDiskType" && !matches!(text, "SYNC_FLUSH" | "ASYNC_FLUSH") => {
            let wanted = "SYNC_FLUSH or ASYNC_FLUSH";
            Err(SettingsError::Value { key: key.to_owned(), value: text.to_owned(), wanted })
        }
        _ => Ok(Value::String(text.to_owned())),
    }
}

fn parsed<T: std::str::FromStr>(key: &str, text: &str, wanted: &'static str) -> Result<T, SettingsError> {
    text.parse().map_err(|_| SettingsError::Value { key: key.to_owned(), value: text.to_owned(), wanted })
}

/// The known key that differs least.
fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a String>) -> String {
    known.min_by_key(|name| distance(key, name)).cloned().unwrap_or_default()
}

/// How many letters must be added, removed or changed to make one word of the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, other) in right.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = change.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use troupemq_store::FlushMode;

    fn taken(text: &str) -> Result<Settings, String> {
        let mut settings = Settings::default();
        settings.take(Path::new("broker.conf"), text).map_err(|error| error.to_string())?;
        Ok(settings)
    }

    #[test]
    fn a_broker_conf_of_rocketmq_is_understood() {
        let settings = taken(
            "# broker\nbrokerClusterName = GoldCluster\nbrokerName=broker-a\nbrokerId=0\nlistenPort=29011\n\
             brokerIP1=127.0.0.1\nflushDiskType=SYNC_FLUSH\nautoCreateTopicEnable=false\n\
             mappedFileSizeCommitLog=67108864\nwarmMapedFileEnable=true\nstorePathRootDir=\"/data/mq\"\n",
        )
        .expect("a good file");
        assert_eq!(settings.broker.broker_cluster_name, "GoldCluster");
        assert!(!settings.broker.auto_create_topic_enable);
        assert_eq!(settings.listen_port, Some(29011));
        assert_eq!(settings.advertise.as_deref(), Some("127.0.0.1"));
        assert_eq!(settings.store.flush, FlushMode::Sync);
        assert_eq!(settings.store.log_segment_bytes, 67_108_864);
        assert_eq!(settings.store.dir, Path::new("/data/mq"));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_name() {
        let error = taken("brokerName=a\nbrokrName=b\n").expect_err("unknown");
        assert_eq!(
            error,
            "broker.conf:2: unknown key \"brokrName\", the nearest known one is \"brokerName\""
        );
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_what_is_wanted() {
        let error = taken("autoCreateTopicEnable=maybe").expect_err("no boolean");
        assert_eq!(error, "broker.conf:1: autoCreateTopicEnable = \"maybe\" is not true or false");
        assert!(taken("flushDiskType=LATER").expect_err("no mode").contains("SYNC_FLUSH"));
        assert!(taken("listenPort=70000").expect_err("no port").contains("port"));
        assert!(taken("just words").expect_err("no value").contains("no `=`"));
    }
}
