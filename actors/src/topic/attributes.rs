//! Attributes of topics, and how a client changes them (Java: `AttributeUtil`, `TopicAttributes`).
//!
//! Invariants:
//! - attributes are kept without a sign; only a change has one;
//! - a change is taken whole or not at all;
//! - refusals have Java's texts.

use std::collections::{BTreeMap, BTreeSet};

use troupemq_codec::topic::TopicConfig;
use troupemq_codec::{ResponseCode, Text};

use crate::net::Refusal;

/// What kind of messages a topic takes.
pub const MESSAGE_TYPE: &str = "message.type";
/// Whether a queue counts messages or batches.
pub const QUEUE_TYPE: &str = "queue.type";

/// Whether old messages are deleted, or those whose key came again.
const CLEANUP_POLICY: &str = "cleanup.policy";

/// An attribute there may be.
struct Attribute {
    key: &'static str,
    /// Whether it may change while the topic exists.
    is_changeable: bool,
    values: Values,
}

/// Which values an attribute takes.
enum Values {
    /// These, in the order in which Java lists them.
    OneOf(&'static [&'static str]),
    /// A number from the first to the second.
    Number(i64, i64),
}

const ATTRIBUTES: [Attribute; 4] = [
    Attribute { key: QUEUE_TYPE, is_changeable: false, values: Values::OneOf(&["BatchCQ", "SimpleCQ"]) },
    Attribute { key: CLEANUP_POLICY, is_changeable: false, values: Values::OneOf(&["COMPACTION", "DELETE"]) },
    Attribute {
        key: MESSAGE_TYPE,
        is_changeable: true,
        values: Values::OneOf(&["UNSPECIFIED", "TRANSACTION", "FIFO", "MIXED", "DELAY", "NORMAL"]),
    },
    Attribute { key: "reserve.time", is_changeable: true, values: Values::Number(-1, i64::MAX) },
];

/// The message type of a topic, if it says so.
pub fn message_type(config: &TopicConfig) -> Option<&str> {
    config.attributes.get(MESSAGE_TYPE).map(Text::as_str)
}

/// Whether the queues of a topic count batches.
pub fn is_batch(config: &TopicConfig) -> bool {
    config.attributes.get(QUEUE_TYPE).is_some_and(|kind| kind == "BatchCQ")
}

/// Whether of the messages of a topic with one key only the last counts.
pub fn is_compacted(config: &TopicConfig) -> bool {
    config.attributes.get(CLEANUP_POLICY).is_some_and(|policy| policy == "COMPACTION")
}

/// The attributes after a change such as `+message.type=FIFO,-reserve.time`; `known` is `None` for a new topic.
pub fn altered(known: Option<&BTreeMap<Text, Text>>, change: &str) -> Result<BTreeMap<Text, Text>, Refusal> {
    let mut attributes = known.cloned().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for piece in change.split(',').filter(|piece| !piece.is_empty()) {
        let (key, value) = split(piece)?;
        let Some(attribute) = ATTRIBUTES.iter().find(|attribute| attribute.key == key) else {
            return Err(refusal(format!("unsupported key: {key}")));
        };
        if !seen.insert(key) {
            return Err(refusal(format!("key duplication: {key}")));
        }
        if known.is_some() && !attribute.is_changeable {
            return Err(refusal(format!("attempt to update an unchangeable attribute. key: {key}")));
        }
        match value {
            Some(value) => {
                attribute.check(value)?;
                attributes.insert(Text::from_static(attribute.key), Text::from(value));
            }
            None if known.is_none() => {
                return Err(refusal(format!(
                    "only add attribute is supported while creating topic. key: {key}"
                )));
            }
            None if attributes.remove(key).is_none() => {
                return Err(refusal(format!("attempt to delete a nonexistent key: {key}")));
            }
            None => {}
        }
    }
    Ok(attributes)
}

/// `+key=value` → key and value, `-key` → key.
fn split(piece: &str) -> Result<(&str, Option<&str>), Refusal> {
    let format = || refusal("add/alter attribute format is wrong: ".to_owned() + piece);
    if let Some(pair) = piece.strip_prefix('+') {
        let (key, value) = pair.split_once('=').ok_or_else(format)?;
        if key.is_empty() || value.is_empty() {
            return Err(format());
        }
        return Ok((key, Some(value)));
    }
    match piece.strip_prefix('-') {
        Some(key) if !key.is_empty() && !key.contains('=') => Ok((key, None)),
        _ => Err(format()),
    }
}

impl Attribute {
    fn check(&self, value: &str) -> Result<(), Refusal> {
        match self.values {
            Values::OneOf(values) if values.contains(&value) => Ok(()),
            Values::OneOf(values) => Err(refusal(format!("value is not in set: [{}]", values.join(", ")))),
            Values::Number(low, high) => match value.parse::<i64>() {
                Ok(number) if (low..=high).contains(&number) => Ok(()),
                _ => Err(refusal(format!("value is not in range({low}, {high})"))),
            },
        }
    }
}

fn refusal(remark: String) -> Refusal {
    Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(pairs: &[(&str, &str)]) -> BTreeMap<Text, Text> {
        pairs.iter().map(|(key, value)| (Text::from(*key), Text::from(*value))).collect()
    }

    fn remark(known: Option<&BTreeMap<Text, Text>>, change: &str) -> String {
        altered(known, change).expect_err(change).remark
    }

    #[test]
    fn a_new_topic_takes_what_is_added() {
        let made = altered(None, "+message.type=FIFO,+queue.type=BatchCQ,").unwrap();
        assert_eq!(made, known(&[("message.type", "FIFO"), ("queue.type", "BatchCQ")]));
        assert_eq!(altered(None, "").unwrap(), known(&[]));
    }

    #[test]
    fn a_change_alters_only_what_it_names() {
        let before = known(&[("message.type", "FIFO"), ("queue.type", "BatchCQ")]);
        assert_eq!(altered(Some(&before), "").unwrap(), before);
        assert_eq!(altered(Some(&before), "-message.type").unwrap(), known(&[("queue.type", "BatchCQ")]));
        let altered = altered(Some(&before), "+message.type=DELAY,+reserve.time=-1").unwrap();
        let wanted = [("message.type", "DELAY"), ("queue.type", "BatchCQ"), ("reserve.time", "-1")];
        assert_eq!(altered, known(&wanted));
    }

    #[test]
    fn what_java_refuses_is_refused_with_its_text() {
        let before = known(&[("queue.type", "SimpleCQ")]);
        assert_eq!(remark(None, "+nope=1"), "unsupported key: nope");
        assert_eq!(
            remark(None, "+message.type=WEIRD"),
            "value is not in set: [UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]"
        );
        assert!(remark(None, "+message.type=FIFO,+message.type=FIFO").starts_with("key duplication"));
        assert!(remark(None, "-message.type").starts_with("only add"));
        assert!(remark(Some(&before), "-message.type").starts_with("attempt to delete"));
        assert!(
            remark(Some(&before), "+queue.type=BatchCQ").starts_with("attempt to update an unchangeable")
        );
        assert!(remark(Some(&before), "-queue.type").starts_with("attempt to update an unchangeable"));
        assert!(remark(None, "+reserve.time=-2").starts_with("value is not in range"));
        for piece in ["message.type", "+message.type", "+=FIFO", "+message.type=", "-", "-a=b", "*a=b"] {
            assert!(remark(None, piece).contains("format is wrong"), "{piece}");
        }
    }
}
