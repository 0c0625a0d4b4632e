//! The configuration of a name server, and how tools read and change it: UPDATE_NAMESRV_CONFIG (318),
//! GET_NAMESRV_CONFIG (319).
//!
//! Invariants:
//! - a change is kept in a file if there is one, else it holds until the name server stops;
//! - where the files lie cannot be changed from outside.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use troupemq_codec::{Command, ResponseCode};

use crate::cast::NameServerCast;
use crate::net::{Answer, Call, Refusal};
use crate::properties_text;
use crate::settings::{Behaviour, ChangeSettings};

/// Keys that nobody may change from outside.
const FIXED: [&str; 3] = ["configBlackList", "configStorePath", "kvConfigPath"];

/// Behaviour of a name server. Java: `NamesrvConfig`.
#[cfg_attr(feature = "describe", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NameServerConfig {
    /// How often silent brokers are looked for, in ms. Default: 10 000. Bounds: 10.. .
    pub scan_not_active_broker_interval: u64,
    /// Silence after which a broker is dropped that promised no other, in ms. Default: 120 000. Bounds: 10.. .
    pub broker_silence_ms: i64,
    /// File of the key-value configuration; empty: it is lost at the end. Default: empty.
    pub kv_config_path: String,
    /// File of the settings that were changed at run time; empty: they are lost at the end. Default: empty.
    pub config_store_path: String,
    /// Whether routes tell the queues of ordered topics. Default: false.
    pub order_message_enable: bool,
    /// Whether a registering broker is told the ordered topics. Default: true.
    pub return_order_topic_config_to_broker: bool,
    /// Whether topics that a registration does not name are removed. Default: false.
    pub delete_topic_with_broker_registration: bool,
    /// Whether the list of all topics is given. Default: true.
    pub enable_all_topic_list: bool,
    /// Whether the other lists of topics are given. Default: true.
    pub enable_topic_list: bool,
    /// Whether the smallest slave of a lost master is shown as master. Default: false.
    pub support_acting_master: bool,
    /// Whether routes are refused for a while after the start. Default: false.
    pub need_wait_for_service: bool,
    /// How long routes are refused after the start where `needWaitForService` is on, in s. Default: 45.
    pub wait_seconds_for_service: i64,
}

impl NameServerConfig {
    /// Refuses what is out of bounds.
    pub fn check(&self) -> Result<(), crate::config::ConfigError> {
        crate::config::within(
            "scanNotActiveBrokerInterval",
            self.scan_not_active_broker_interval,
            10,
            u64::MAX,
            "10..",
        )?;
        crate::config::within("brokerSilenceMs", self.broker_silence_ms, 10, i64::MAX, "10..")
    }
}

impl Behaviour for NameServerConfig {
    fn may_change(key: &str) -> bool {
        !FIXED.contains(&key)
    }

    fn check(&self) -> Result<(), String> {
        NameServerConfig::check(self).map_err(|error| error.to_string())
    }
}

impl Default for NameServerConfig {
    fn default() -> NameServerConfig {
        NameServerConfig {
            scan_not_active_broker_interval: 10_000,
            broker_silence_ms: 120_000,
            kv_config_path: String::new(),
            config_store_path: String::new(),
            order_message_enable: false,
            return_order_topic_config_to_broker: true,
            delete_topic_with_broker_registration: false,
            enable_all_topic_list: true,
            enable_topic_list: true,
            support_acting_master: false,
            need_wait_for_service: false,
            wait_seconds_for_service: 45,
        }
    }
}

/// GET_NAMESRV_CONFIG.
pub(super) fn tell(cast: &NameServerCast) -> Answer {
    let text = properties_text::write(&*cast.config());
    Ok(Command::response(ResponseCode::SUCCESS).with_body(Bytes::from(text)))
}

/// UPDATE_NAMESRV_CONFIG: keys that are unknown here are ignored, as in Java.
pub(super) async fn update(cast: &NameServerCast, call: &Call) -> Answer {
    let Ok(text) = std::str::from_utf8(&call.command.body) else {
        let remark = "the configuration is no UTF-8 text";
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    };
    let pairs = properties_text::parse(text);
    if let Some(why) = properties_text::no_key(&pairs) {
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, why));
    }
    if FIXED.iter().any(|key| pairs.contains_key(*key)) {
        return Err(Refusal::new(ResponseCode::NO_PERMISSION, "Can not update config in black list."));
    }
    cast.settings.send(ChangeSettings(pairs)).await??;
    Ok(Command::response(ResponseCode::SUCCESS))
}
