//! Names beside the declared ones: RocketMQ's other words for them, its keys without a meaning here, and misspellings.
//!
//! Invariants:
//! - another word sets the same key, so that a `broker.conf` of RocketMQ works as it is.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Map, Value};
use troupemq_actors::settings::promises::PROMISES;

use super::{SettingsError, parsed};

/// The settings of RocketMQ's broker, name server, controller and connections, of versions 4.9 and 5, one a line.
const JAVA_KEYS: &str = include_str!("java_keys.txt");

/// Settings of RocketMQ that say where the log lies, or parts of it.
pub(super) const LOG_PLACES: [&str; 2] = ["storePathCommitLog", "readOnlyCommitLogStorePaths"];
/// The folder of the log in a store.
pub(super) const LOG_FOLDER: &str = "commitlog";

/// Whether a path leads to the log of the store in `dir`, as it is written or by links.
pub(super) fn is_log_of(dir: &Path, path: &str) -> bool {
    let (own, path) = (dir.join(LOG_FOLDER), Path::new(path));
    let written = |path: &Path| std::path::absolute(path).ok();
    let led_to = |path: &Path| std::fs::canonicalize(path).ok();
    (written(path).is_some() && written(path) == written(&own))
        || (led_to(path).is_some() && led_to(path) == led_to(&own))
}

/// The declared name of a key.
pub(in crate::cli) fn name(key: &str) -> &str {
    match key {
        "listenPort" => "listen",
        "brokerIP1" => "advertise",
        // Before version 4.8.
        "mapedFileSizeCommitLog" => "mappedFileSizeCommitLog",
        "mapedFileSizeConsumeQueue" => "mappedFileSizeConsumeQueue",
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

/// Whether RocketMQ has this key.
pub(super) fn is_of_rocketmq(key: &str) -> bool {
    JAVA_KEYS.lines().any(|known| known == key)
}

/// What becomes here of a key of RocketMQ that is no setting of this program; none of a key that it does not have.
pub(in crate::cli) fn of_rocketmq(key: &str) -> Option<String> {
    if !is_of_rocketmq(key) {
        return None;
    }
    let promises = PROMISES.iter().filter(|(promise, ..)| *promise == key);
    let refused: Vec<_> = promises
        .map(|(_, values, why)| format!("{key} = {} is refused, {why}", values.join(", ")))
        .chain(LOG_PLACES.contains(&key).then(|| {
            format!(
                "it may only say where the log is anyway, in {LOG_FOLDER} of the folder of storePathRootDir"
            )
        }))
        .collect();
    let here = match refused.is_empty() {
        true => "it is accepted, logged, and does nothing here".to_owned(),
        false => refused.join("; "),
    };
    Some(format!("{key} is a setting of RocketMQ and none of this program: {here}"))
}

/// Whether a variable is one that Kubernetes, or links between containers, give to every program beside a service of
/// this name: `…_SERVICE_HOST`, `…_PORT=tcp://…`, `…_PORT_10911_TCP_ADDR` and the like.
pub(super) fn is_of_orchestrator(variable: &str, value: &str) -> bool {
    let is_protocol = |word: &str| ["tcp", "udp", "sctp"].contains(&word.to_lowercase().as_str());
    let words: Vec<&str> = variable.split('_').collect();
    let is_service = words.windows(2).any(|pair| matches!(pair, ["SERVICE", "HOST" | "PORT"]));
    let is_port = words
        .windows(3)
        .any(|three| three[0] == "PORT" && three[1].parse::<u16>().is_ok() && is_protocol(three[2]));
    let is_link = words.last() == Some(&"PORT")
        && value.split_once("://").is_some_and(|(protocol, _)| is_protocol(protocol));
    is_service || is_port || is_link
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
    fn the_list_of_rocketmqs_keys_is_sorted_and_has_each_once() {
        let keys: Vec<String> = JAVA_KEYS.lines().map(str::to_lowercase).collect();
        assert!(keys.len() > 500, "{}", keys.len());
        assert!(keys.windows(2).all(|pair| pair[0] <= pair[1]), "it is not sorted");
        let mut once: Vec<&str> = JAVA_KEYS.lines().collect();
        once.dedup();
        assert_eq!(once.len(), keys.len());
        for (key, ..) in PROMISES {
            assert!(is_of_rocketmq(key), "{key}");
        }
    }

    #[test]
    fn variables_of_a_service_with_this_name_are_told_from_settings() {
        let theirs = [
            ("TROUPEMQ_SERVICE_HOST", "10.0.0.1"),
            ("TROUPEMQ_SERVICE_PORT", "10911"),
            ("TROUPEMQ_SERVICE_PORT_REMOTING", "10911"),
            ("TROUPEMQ_BROKER_SERVICE_HOST", "10.0.0.1"),
            ("TROUPEMQ_PORT", "tcp://10.0.0.1:10911"),
            ("TROUPEMQ_PORT_10911_TCP", "tcp://10.0.0.1:10911"),
            ("TROUPEMQ_NAMESRV_PORT_9876_TCP_PROTO", "tcp"),
        ];
        for (variable, value) in theirs {
            assert!(is_of_orchestrator(variable, value), "{variable}={value}");
        }
        for (variable, value) in
            [("TROUPEMQ_LISTEN_PORT", "10911"), ("TROUPEMQ_PORT_RANGE", "1"), ("TROUPEMQ_LISTEN", "x")]
        {
            assert!(!is_of_orchestrator(variable, value), "{variable}={value}");
        }
    }

    #[test]
    fn the_nearest_name_is_the_one_with_the_fewest_changes() {
        let known = ["brokerName".to_owned(), "brokerId".to_owned(), "regionId".to_owned()];
        assert_eq!(nearest("brokername", known.iter()), "brokerName");
        assert_eq!(nearest("brokrId", known.iter()), "brokerId");
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("", "abc"), 3);
    }
}
