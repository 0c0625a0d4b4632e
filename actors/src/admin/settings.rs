//! The broker's settings as tools see them: GET_BROKER_CONFIG (26), UPDATE_BROKER_CONFIG (25).
//!
//! Invariants:
//! - settings of the broker and of its store are one set to tools: what may change of either changes at once;
//! - every setting is told under Java's name, in one text, sorted by name;
//! - a change is whole or not at all, and on disk before it is answered;
//! - keys of Java that this broker does not have are accepted and logged, as Java accepts what it does not know.
//!
//! Deliberately absent: writing the configuration file. Changes are kept in the store, see [`crate::settings`].

use std::collections::BTreeMap;

use bytes::Bytes;
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::request::GetBrokerConfigReplyHeader;
use troupemq_codec::topic::DataVersion;
use troupemq_codec::{Command, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::config::BrokerConfig;
use crate::net::{Answer, Call, Refusal};
use crate::properties_text;
use crate::registrar::RegisterAll;
use crate::settings::{ChangeSettings, CheckChange, cannot_change, promises};
use crate::topics::FitTemplate;

/// Keys that nobody may change from afar. Java's configBlackList and itself.
const BLACK_LIST: [&str; 2] = ["brokerConfigPath", "configBlackList"];

/// GET_BROKER_CONFIG.
pub async fn broker_config(cast: &BrokerCast, _: &Call) -> Answer {
    let config = cast.config.load();
    let mut all = properties_text::parse(&properties_text::write(&**cast.store_config.load()));
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
    if let Some(why) = properties_text::no_key(&pairs) {
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, why));
    }
    if BLACK_LIST.iter().any(|key| pairs.contains_key(*key)) {
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, "Can not update config in black list."));
    }
    let fixed = derived(cast, &cast.config.load());
    let other = |(key, now): &&(String, String)| {
        pairs.get(key).is_some_and(|wanted| wanted != now && promises::broken(key, wanted).is_none())
    };
    if let Some((key, _)) = fixed.iter().find(other) {
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, cannot_change(key)));
    }
    change(cast, pairs).await?;
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// Changes settings while the broker runs: all of them, or none.
///
/// # Errors
/// A key cannot change while the broker runs, or a value does not fit or is out of its bounds.
pub async fn change(cast: &BrokerCast, pairs: BTreeMap<String, String>) -> Result<(), Refusal> {
    let before = cast.config.load_full();
    let of_broker = properties_text::parse(&properties_text::write(&**cast.config.load()));
    let of_store = properties_text::parse(&properties_text::write(&**cast.store_config.load()));
    let is_of_store = |key: &String| of_store.contains_key(key) && !of_broker.contains_key(key);
    let (to_store, to_broker): (BTreeMap<_, _>, BTreeMap<_, _>) =
        pairs.into_iter().partition(|(key, _)| is_of_store(key));
    if to_store.is_empty() {
        cast.settings.send(ChangeSettings(to_broker)).await??;
    } else {
        cast.store_settings.send(CheckChange(to_store.clone())).await??;
        if !to_broker.is_empty() {
            cast.settings.send(ChangeSettings(to_broker)).await??;
        }
        cast.store_settings.send(ChangeSettings(to_store)).await??;
    }
    let now = cast.config.load_full();
    if now.default_topic_queue_nums != before.default_topic_queue_nums
        || now.auto_create_topic_enable != before.auto_create_topic_enable
    {
        cast.topics.send(FitTemplate).await??;
    }
    if now.broker_permission != before.broker_permission {
        cast.registrar.send(RegisterAll).await?;
    }
    Ok(())
}
