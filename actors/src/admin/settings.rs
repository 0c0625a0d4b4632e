//! The broker's settings as tools see them: GET_BROKER_CONFIG (26), UPDATE_BROKER_CONFIG (25).
//!
//! Invariants:
//! - every setting is told under Java's name, in one text, sorted by name;
//! - a change is whole or not at all: a key that cannot change at run time, or a value out of its bounds, is named
//!   in the refusal;
//! - keys of Java that this broker does not have are accepted and logged, as Java accepts what it does not know.
//!
//! Deliberately absent: writing the configuration file. A change lasts until the broker stops.

use std::collections::BTreeMap;

use bytes::Bytes;
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::request::GetBrokerConfigReplyHeader;
use troupemq_codec::topic::DataVersion;
use troupemq_codec::{Command, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::config::{BrokerConfig, RELOADABLE};
use crate::net::{Answer, Call, Refusal};
use crate::properties_text::{self, Merged};
use crate::registrar::RegisterAll;

/// Keys that nobody may change from afar. Java's configBlackList and itself.
const BLACK_LIST: [&str; 2] = ["brokerConfigPath", "configBlackList"];

/// GET_BROKER_CONFIG.
pub async fn broker_config(cast: &BrokerCast, _: &Call) -> Answer {
    let config = cast.config.load();
    let mut all = properties_text::parse(&properties_text::write(&cast.store_config));
    all.extend(properties_text::parse(&properties_text::write(&**config)));
    all.extend(derived(cast, &config));
    let version: DataVersion = **cast.settings_version.load();
    let version = String::from_utf8(to_fastjson(&version)).ok().map(Text::from);
    Ok(Command::response(ResponseCode::SUCCESS)
        .with_header(&GetBrokerConfigReplyHeader { version })
        .with_body(Bytes::from(properties_text::write(&all))))
}

/// What Java keeps as settings and this broker knows in another way.
fn derived(cast: &BrokerCast, config: &BrokerConfig) -> [(String, String); 6] {
    let role = if config.broker_id == 0 { "ASYNC_MASTER" } else { "SLAVE" };
    let log = cast.store_dir.join("commitlog");
    [
        ("brokerIP1", cast.advertised.ip().to_string()),
        ("listenPort", cast.advertised.port().to_string()),
        ("brokerRole", role.to_owned()),
        ("storePathCommitLog", log.display().to_string()),
        ("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC".to_owned()),
        ("aclEnable", "false".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// UPDATE_BROKER_CONFIG.
pub async fn update_broker_config(cast: &BrokerCast, call: &Call) -> Answer {
    let text = std::str::from_utf8(&call.command.body)
        .map_err(|_| Refusal::new(ResponseCode::SYSTEM_ERROR, "the settings are no UTF-8"))?;
    let pairs = properties_text::parse(text);
    if BLACK_LIST.iter().any(|key| pairs.contains_key(*key)) {
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, "Can not update config in black list."));
    }
    let before = cast.config.load_full();
    let config = changed(cast, &before, &pairs)?;
    let permission_changes = config.broker_permission != before.broker_permission;
    cast.config.store(std::sync::Arc::new(config));
    let version = cast.settings_version.load().next(cast.now_ms());
    cast.settings_version.store(std::sync::Arc::new(version));
    if permission_changes {
        cast.registrar.send(RegisterAll).await?;
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// The settings after a change.
fn changed(
    cast: &BrokerCast,
    before: &BrokerConfig,
    pairs: &BTreeMap<String, String>,
) -> Result<BrokerConfig, Refusal> {
    let illegal = |remark: String| Refusal::new(ResponseCode::SYSTEM_ERROR, remark);
    let mut known = properties_text::parse(&properties_text::write(&cast.store_config));
    known.extend(properties_text::parse(&properties_text::write(before)));
    for (key, value) in pairs {
        let now = known.get(key);
        if now.is_some_and(|now| now != value) && !RELOADABLE.contains(&key.as_str()) {
            return Err(illegal(format!(
                "{key} cannot change while the broker runs: set it in the configuration file"
            )));
        }
    }
    let Merged { config, unknown } =
        properties_text::merge(before, pairs).map_err(|error| illegal(error.to_string()))?;
    config.check().map_err(|error| illegal(error.to_string()))?;
    for key in unknown.iter().filter(|key| !known.contains_key(*key)) {
        tracing::warn!(key, "a setting that this broker does not have was to be changed");
    }
    Ok(config)
}
