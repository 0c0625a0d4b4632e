//! Names beside the declared ones: RocketMQ's other words for them, its keys without a meaning here, and misspellings.
//!
//! Invariants:
//! - another word sets the same key, so that a `broker.conf` of RocketMQ works as it is.

use std::net::SocketAddr;

use serde_json::{Map, Value};

use super::{SettingsError, parsed};

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
    "transactionOpBatchInterval",
    "transactionOpMsgMaxSize",
];

/// The declared name of a key.
pub(super) fn name(key: &str) -> &str {
    match key {
        "listenPort" => "listen",
        "brokerIP1" => "advertise",
        _ => key,
    }
}

/// The value as the declared key takes it.
pub(super) fn text(key: &str, text: &str, ports: &Map<String, Value>) -> Result<String, SettingsError> {
    if key != "listenPort" {
        return Ok(text.to_owned());
    }
    let port = parsed::<u16>(key, text, "a port number")?;
    let now =
        ports.get("listen").and_then(Value::as_str).and_then(|listen| listen.parse::<SocketAddr>().ok());
    let mut listen = now.expect("the table of ports holds an address to listen on");
    listen.set_port(port);
    Ok(listen.to_string())
}

/// Whether RocketMQ has this key, and it does nothing here.
pub(super) fn is_without_meaning(key: &str) -> bool {
    WITHOUT_MEANING.contains(&key)
}

/// The known key that differs least.
pub(in crate::cli) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a String>) -> String {
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

    #[test]
    fn the_nearest_name_is_the_one_with_the_fewest_changes() {
        let known = ["brokerName".to_owned(), "brokerId".to_owned(), "regionId".to_owned()];
        assert_eq!(nearest("brokername", known.iter()), "brokerName");
        assert_eq!(nearest("brokrId", known.iter()), "brokerId");
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("", "abc"), 3);
    }
}
