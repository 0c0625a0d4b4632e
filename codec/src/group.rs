//! Consumer groups as a broker keeps and tells them.
//!
//! Invariants:
//! - a missing key has the default of Java, so a short text is a whole value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::Text;
use crate::topic::DataVersion;

/// A consumer group (`SubscriptionGroupConfig`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupConfig {
    /// Free attributes, without a sign.
    pub attributes: BTreeMap<Text, Text>,
    /// Broker to read from; 0 the master.
    pub broker_id: i64,
    /// Whether it may broadcast.
    pub consume_broadcast_enable: bool,
    /// Whether it may read at all.
    pub consume_enable: bool,
    /// Whether a new group begins at the oldest message.
    pub consume_from_min_enable: bool,
    /// Whether messages are consumed in order, for gRPC clients.
    pub consume_message_orderly: bool,
    /// How long one message may take.
    pub consume_timeout_minute: i32,
    /// The name.
    pub group_name: Text,
    /// How long to wait before a message is delivered again.
    pub group_retry_policy: GroupRetryPolicy,
    /// Bit 0: unit.
    pub group_sys_flag: i32,
    /// Whether members are told at once when one comes or goes.
    pub notify_consumer_ids_changed_enable: bool,
    /// Deliveries again before a message is a dead letter.
    pub retry_max_times: i32,
    /// Queues of the retry topic.
    pub retry_queue_nums: i32,
    /// Subscriptions that are checked, if there are any.
    pub subscription_data_set: Option<Vec<SimpleSubscription>>,
    /// Broker to read from when what is read is cold.
    pub which_broker_when_consume_slowly: i64,
}

impl Default for SubscriptionGroupConfig {
    fn default() -> SubscriptionGroupConfig {
        SubscriptionGroupConfig {
            attributes: BTreeMap::new(),
            broker_id: 0,
            consume_broadcast_enable: true,
            consume_enable: true,
            consume_from_min_enable: true,
            consume_message_orderly: false,
            consume_timeout_minute: 15,
            group_name: Text::default(),
            group_retry_policy: GroupRetryPolicy::default(),
            group_sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: 16,
            retry_queue_nums: 1,
            subscription_data_set: None,
            which_broker_when_consume_slowly: 1,
        }
    }
}

/// How long to wait before a message is delivered again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupRetryPolicy {
    /// For `Customized`; the usual levels if absent.
    pub customized_retry_policy: Option<CustomizedRetryPolicy>,
    /// For `Exponential`.
    pub exponential_retry_policy: Option<ExponentialRetryPolicy>,
    /// Which of the two.
    pub r#type: RetryPolicyType,
}

/// Which policy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RetryPolicyType {
    /// Waits that double.
    Exponential,
    /// A list of waits.
    #[default]
    Customized,
}

/// A list of waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CustomizedRetryPolicy {
    /// In milliseconds; the last one again and again.
    pub next: Vec<i64>,
}

/// Waits that grow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExponentialRetryPolicy {
    /// The first wait in milliseconds.
    pub initial: i64,
    /// The longest wait in milliseconds.
    pub max: i64,
    /// How much longer each wait is.
    pub multiplier: i64,
}

impl Default for ExponentialRetryPolicy {
    fn default() -> ExponentialRetryPolicy {
        ExponentialRetryPolicy { initial: 5_000, max: 7_200_000, multiplier: 2 }
    }
}

/// A subscription that a group is held to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SimpleSubscription {
    /// The filter.
    pub expression: Text,
    /// `TAG` or `SQL92`.
    pub expression_type: Text,
    /// The topic.
    pub topic: Text,
    /// A time in milliseconds.
    pub version: i64,
}

/// All groups of a broker (`SubscriptionGroupWrapper`, `config/subscriptionGroup.json`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupTable {
    /// Of the whole table.
    pub data_version: DataVersion,
    /// By group and topic: bits of what is forbidden.
    pub forbidden_table: BTreeMap<Text, BTreeMap<Text, i32>>,
    /// By name.
    pub subscription_group_table: BTreeMap<Text, SubscriptionGroupConfig>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loose_json::{from_loose, to_fastjson};

    #[test]
    fn a_group_is_written_as_java_writes_it() {
        let group =
            SubscriptionGroupConfig { group_name: Text::from("g"), ..SubscriptionGroupConfig::default() };
        let wanted = concat!(
            r#"{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"#,
            r#""consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"#,
            r#""groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"#,
            r#""notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"#,
            r#""whichBrokerWhenConsumeSlowly":1}"#
        );
        assert_eq!(String::from_utf8(to_fastjson(&group)).unwrap(), wanted);
        assert_eq!(from_loose::<SubscriptionGroupConfig>(wanted.as_bytes()), Ok(group));
    }

    #[test]
    fn retry_policies_of_both_kinds_read_back() {
        let texts = [
            r#"{"exponentialRetryPolicy":{"initial":50,"max":7200000,"multiplier":2},"type":"EXPONENTIAL"}"#,
            r#"{"customizedRetryPolicy":{"next":[1000,5000]},"type":"CUSTOMIZED"}"#,
        ];
        for text in texts {
            let policy: GroupRetryPolicy = from_loose(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(to_fastjson(&policy)).unwrap(), text);
        }
    }
}
