//! What a client tells about itself in a heart-beat.
//!
//! Invariants:
//! - enums are read by name or by ordinal, as C++ clients write them;
//! - absent sets are empty, an absent expression type is `TAG`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// Body of HEART_BEAT (`HeartbeatData`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatData {
    /// `ip@instance`.
    #[serde(rename = "clientID")]
    pub client_id: Text,
    /// Groups it consumes in.
    pub consumer_data_set: Vec<ConsumerData>,
    /// Not 0: a heart-beat of the second kind, which may leave out what has not changed.
    pub heartbeat_fingerprint: i32,
    /// Groups it produces in.
    pub producer_data_set: Vec<ProducerData>,
    /// Subscriptions are left out because they have not changed.
    pub without_sub: bool,
}

/// A group that a client produces in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerData {
    /// The group.
    pub group_name: Text,
}

/// A group that a client consumes in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerData {
    /// Where a new group begins.
    pub consume_from_where: ConsumeFromWhere,
    /// Pull, push or pop.
    pub consume_type: ConsumeType,
    /// The group.
    pub group_name: Text,
    /// Whether messages are shared or broadcast.
    pub message_model: MessageModel,
    /// One for each topic.
    pub subscription_data_set: Vec<SubscriptionData>,
    /// Multi-site mode.
    pub unit_mode: bool,
}

/// What a group wants of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionData {
    /// Filter classes are gone.
    pub class_filter_mode: bool,
    /// Java hashes of the tags.
    pub code_set: BTreeSet<i32>,
    /// `TAG` or `SQL92`.
    pub expression_type: Text,
    /// The filter as it was written.
    pub sub_string: Text,
    /// When the client made it, in milliseconds; the greater one counts.
    pub sub_version: i64,
    /// The tags.
    pub tags_set: BTreeSet<Text>,
    /// The topic.
    pub topic: Text,
}

impl Default for SubscriptionData {
    fn default() -> SubscriptionData {
        SubscriptionData {
            class_filter_mode: false,
            code_set: BTreeSet::new(),
            expression_type: Text::from_static("TAG"),
            sub_string: Text::default(),
            sub_version: 0,
            tags_set: BTreeSet::new(),
            topic: Text::default(),
        }
    }
}

/// Pull, push or pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ConsumeType {
    /// A pull consumer.
    #[serde(rename = "CONSUME_ACTIVELY")]
    Actively,
    /// A push consumer.
    #[default]
    #[serde(rename = "CONSUME_PASSIVELY")]
    Passively,
    /// A pop consumer.
    #[serde(rename = "CONSUME_POP")]
    Pop,
}

/// Whether messages are shared or broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MessageModel {
    /// Every member gets every message.
    Broadcasting,
    /// A message goes to one member.
    #[default]
    Clustering,
}

/// Where a new group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ConsumeFromWhere {
    /// With what comes next.
    #[default]
    #[serde(rename = "CONSUME_FROM_LAST_OFFSET")]
    LastOffset,
    /// Old name of [`ConsumeFromWhere::LastOffset`].
    #[serde(rename = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST")]
    LastOffsetAndMinWhenBootFirst,
    /// Old name of [`ConsumeFromWhere::LastOffset`] in Java's clients, whatever it says.
    #[serde(rename = "CONSUME_FROM_MIN_OFFSET")]
    MinOffset,
    /// Old name of [`ConsumeFromWhere::LastOffset`].
    #[serde(rename = "CONSUME_FROM_MAX_OFFSET")]
    MaxOffset,
    /// At the oldest message.
    #[serde(rename = "CONSUME_FROM_FIRST_OFFSET")]
    FirstOffset,
    /// At a time.
    #[serde(rename = "CONSUME_FROM_TIMESTAMP")]
    Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loose_json::{from_loose, to_fastjson};

    #[test]
    fn a_heart_beat_of_a_cpp_client_is_understood() {
        let text = concat!(
            r#"{"clientID":"10.0.0.9@1","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"#,
            r#""groupName":"g","messageModel":1,"subscriptionDataSet":[{"codeSet":["2598919"],"#,
            r#""subString":"TagA","subVersion":"1700000000000","tagsSet":["TagA"],"topic":"T"}]}]}"#
        );
        let data: HeartbeatData = from_loose(text.as_bytes()).unwrap();
        let group = data.consumer_data_set.first().unwrap();
        assert_eq!(group.consume_type, ConsumeType::Passively);
        assert_eq!(group.message_model, MessageModel::Clustering);
        let subscription = group.subscription_data_set.first().unwrap();
        assert_eq!(subscription.sub_version, 1_700_000_000_000);
        assert_eq!(subscription.expression_type, "TAG");
        assert!(subscription.code_set.contains(&2_598_919));
        assert!(data.producer_data_set.is_empty());
    }

    #[test]
    fn a_heart_beat_is_written_as_java_writes_it() {
        let wanted = concat!(
            r#"{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","#,
            r#""consumeType":"CONSUME_POP","groupName":"g","messageModel":"CLUSTERING","#,
            r#""subscriptionDataSet":[{"classFilterMode":false,"codeSet":[1,2],"expressionType":"TAG","#,
            r#""subString":"*","subVersion":5,"tagsSet":["a","b"],"topic":"T"}],"unitMode":false}],"#,
            r#""heartbeatFingerprint":0,"producerDataSet":[{"groupName":"p"}],"withoutSub":false}"#
        );
        let data: HeartbeatData = from_loose(wanted.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(to_fastjson(&data)).unwrap(), wanted);
    }
}
