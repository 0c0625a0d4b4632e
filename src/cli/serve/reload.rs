//! Settings read again while the daemon runs, on SIGHUP.
//!
//! Invariants:
//! - a file that is wrong changes nothing: what is wrong is logged, and the daemon goes on as it was;
//! - of a right one everything that changed and may change counts at once; what needs a restart is named in the log.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use troupemq_actors::admin::settings;
use troupemq_actors::node::NodeHandle;

use crate::cli::settings::{Settings, SettingsError, keys};

/// What a second reading of the settings means for a running daemon.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    /// New values of keys that may change.
    now: BTreeMap<String, String>,
    /// Keys that changed and cannot.
    after_restart: Vec<String>,
}

/// Reads the settings again and takes over what may change.
pub(super) async fn reload(node: &NodeHandle, file: Option<&Path>, settings: &mut Settings) {
    let read = match checked(file) {
        Ok(read) => read,
        Err(error) => return tracing::error!(%error, "settings not taken over"),
    };
    let changes = changes(settings, &read);
    for key in &changes.after_restart {
        tracing::warn!(key, "a changed setting that needs a restart");
    }
    if let Some(cast) = node.broker()
        && !changes.now.is_empty()
        && let Err(refusal) = settings::change(cast, changes.now.clone()).await
    {
        return tracing::error!(remark = %refusal.remark, "settings not taken over");
    }
    tracing::info!(changed = ?changes.now, "settings read again");
    *settings = read;
}

fn checked(file: Option<&Path>) -> Result<Settings, SettingsError> {
    let read = Settings::load(file)?;
    read.check()?;
    Ok(read)
}

fn changes(before: &Settings, read: &Settings) -> Changes {
    let mut changes = Changes::default();
    for key in keys() {
        let value = read.value(&key);
        if value == before.value(&key) {
            continue;
        }
        if key.is_reloadable {
            changes.now.insert(key.name, text(&value));
        } else if !changes.now.contains_key(&key.name) {
            changes.after_restart.push(key.name);
        }
    }
    changes
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_parted_into_what_may_change_and_what_needs_a_restart() {
        let before = Settings::default();
        let mut read = Settings::default();
        read.broker.max_message_size = 5_000;
        read.broker.broker_name = "other".to_owned();
        read.store.delete_when = "05".to_owned();
        read.store.index_slots_max = 7;
        let changes = changes(&before, &read);
        let now = [("maxMessageSize", "5000"), ("deleteWhen", "05")];
        assert_eq!(changes.now, BTreeMap::from(now.map(|(key, value)| (key.to_owned(), value.to_owned()))));
        assert_eq!(changes.after_restart, ["brokerName", "maxHashSlotNum"]);
    }
}
