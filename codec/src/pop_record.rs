//! What pop consumption writes to its revive topic: check points and acknowledgements, as JSON.
//!
//! Invariants:
//! - keys are the short ones of RocketMQ, in the order of the alphabet; the long names are read too;
//! - a check point without offsets means consecutive ones, as old brokers wrote them.
//!
//! | key | check point | acknowledgement |
//! |---|---|---|
//! | `so` | first queue offset | first queue offset of the check point |
//! | `ao` | | acknowledged queue offset, −1 in a batch |
//! | `aol` | | acknowledged queue offsets of a batch |
//! | `pt` · `it` | pop time · invisible ms | pop time |
//! | `bm` · `n` | acknowledged bits, stored 0 · messages | |
//! | `d` | offsets less `so` | |
//! | `q` `t` `c` `bn` | queue, stored topic, group, broker | the same |
//! | `ro` · `rp` | place in the revive queue · times put again | |
//!
//! RocketMQ's names for it: `PopCheckPoint`, `AckMsg`, `BatchAckMsg`.

use serde::{Deserialize, Serialize};

use crate::error::CodecError;
use crate::text::Text;

/// Tag of a check point.
pub const TAG_CHECKPOINT: &str = "ck";
/// Tag of an acknowledgement.
pub const TAG_ACK: &str = "ack";
/// Tag of several acknowledgements of one check point.
pub const TAG_BATCH_ACK: &str = "bAck";

/// Messages of one queue that one pop has hidden.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PopCheckpoint {
    /// Bits of the acknowledged messages; stored as 0.
    #[serde(rename = "bm", alias = "bitMap")]
    pub acked_bits: i32,
    /// The broker.
    #[serde(rename = "bn", alias = "brokerName")]
    pub broker_name: Text,
    /// The consumer group.
    #[serde(rename = "c", alias = "cid")]
    pub consumer_group: Text,
    /// Offset of each message less [`PopCheckpoint::start_offset`].
    #[serde(rename = "d", alias = "queueOffsetDiff", skip_serializing_if = "Option::is_none")]
    pub offset_differences: Option<Vec<i32>>,
    /// How long the messages stay invisible: ms.
    #[serde(rename = "it", alias = "invisibleTime")]
    pub invisible_ms: i64,
    /// Messages, at most 32.
    #[serde(rename = "n", alias = "num")]
    pub count: i8,
    /// When they were popped: epoch ms.
    #[serde(rename = "pt", alias = "popTime")]
    pub pop_time_ms: i64,
    /// The queue.
    #[serde(rename = "q", alias = "queueId")]
    pub queue_id: i32,
    /// Queue offset in the revive queue, set when it is read.
    #[serde(rename = "ro", alias = "reviveOffset")]
    pub revive_offset: i64,
    /// How often the check point was put again; absent the first time.
    #[serde(rename = "rp", alias = "rePutTimes", skip_serializing_if = "Option::is_none")]
    pub put_again_times: Option<Text>,
    /// Queue offset of the first message.
    #[serde(rename = "so", alias = "startOffset")]
    pub start_offset: i64,
    /// The topic that the messages are stored in; may be a retry topic.
    #[serde(rename = "t", alias = "topic")]
    pub topic: Text,
}

impl PopCheckpoint {
    /// Reads the body of a record of the revive topic.
    pub fn from_json(bytes: &[u8]) -> Result<PopCheckpoint, CodecError> {
        read("pop check point", bytes)
    }

    /// The body of a record of the revive topic. Java writes the revive time too, and does not read it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut value = serde_json::to_value(self).expect("a record of texts and numbers is JSON");
        if let Some(keys) = value.as_object_mut() {
            keys.insert("reviveTime".to_owned(), self.revive_time_ms().into());
        }
        write(&value)
    }

    /// When the messages are to be visible again: epoch ms.
    pub fn revive_time_ms(&self) -> i64 {
        self.pop_time_ms.saturating_add(self.invisible_ms)
    }

    /// The queue offset of the message at `index`, if the check point holds so many.
    pub fn queue_offset(&self, index: usize) -> Option<i64> {
        let difference = match &self.offset_differences {
            Some(differences) if !differences.is_empty() => i64::from(*differences.get(index)?),
            _ => i64::try_from(index).ok().filter(|index| *index < i64::from(self.count))?,
        };
        self.start_offset.checked_add(difference)
    }

    /// The place of a queue offset in the check point.
    pub fn index_of(&self, queue_offset: i64) -> Option<usize> {
        let difference = queue_offset.checked_sub(self.start_offset)?;
        match &self.offset_differences {
            Some(differences) if !differences.is_empty() => {
                differences.iter().position(|known| i64::from(*known) == difference)
            }
            _ if difference < i64::from(self.count) => usize::try_from(difference).ok(),
            _ => None,
        }
    }

    /// The record's `UNIQ_KEY`.
    pub fn unique_key(&self) -> String {
        let PopCheckpoint { topic, queue_id, start_offset, consumer_group, pop_time_ms, broker_name, .. } =
            self;
        format!(
            "{topic}@{queue_id}@{start_offset}@{consumer_group}@{pop_time_ms}@{broker_name}@{TAG_CHECKPOINT}"
        )
    }
}

/// The acknowledgement of one message, or of several of one check point.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PopAck {
    /// Acknowledged queue offset; −1 if [`PopAck::batch_offsets`] tells them.
    #[serde(rename = "ao", alias = "ackOffset")]
    pub ack_offset: i64,
    /// Acknowledged queue offsets of a batch.
    #[serde(rename = "aol", alias = "ackOffsetList", skip_serializing_if = "Option::is_none")]
    pub batch_offsets: Option<Vec<i64>>,
    /// The broker.
    #[serde(rename = "bn", alias = "brokerName")]
    pub broker_name: Text,
    /// The consumer group.
    #[serde(rename = "c", alias = "consumerGroup")]
    pub consumer_group: Text,
    /// When the messages were popped: epoch ms.
    #[serde(rename = "pt", alias = "popTime")]
    pub pop_time_ms: i64,
    /// The queue.
    #[serde(rename = "q", alias = "queueId")]
    pub queue_id: i32,
    /// First queue offset of the check point.
    #[serde(rename = "so", alias = "startOffset")]
    pub start_offset: i64,
    /// The topic that the messages are stored in; may be a retry topic.
    #[serde(rename = "t", alias = "topic")]
    pub topic: Text,
}

impl PopAck {
    /// Reads the body of a record of the revive topic.
    pub fn from_json(bytes: &[u8]) -> Result<PopAck, CodecError> {
        read("pop acknowledgement", bytes)
    }

    /// The body of a record of the revive topic.
    pub fn to_json(&self) -> Vec<u8> {
        write(self)
    }

    /// The record's tag.
    pub fn tag(&self) -> &'static str {
        if self.batch_offsets.is_some() { TAG_BATCH_ACK } else { TAG_ACK }
    }

    /// The acknowledged queue offsets.
    pub fn queue_offsets(&self) -> &[i64] {
        match &self.batch_offsets {
            Some(offsets) => offsets,
            None => std::slice::from_ref(&self.ack_offset),
        }
    }

    /// The record's `UNIQ_KEY`: that of a single acknowledgement, for a batch too.
    pub fn unique_key(&self) -> String {
        let PopAck { topic, queue_id, ack_offset, consumer_group, pop_time_ms, broker_name, .. } = self;
        format!("{topic}@{queue_id}@{ack_offset}@{consumer_group}@{pop_time_ms}@{broker_name}@{TAG_ACK}")
    }
}

fn read<'a, T: Deserialize<'a>>(what: &'static str, bytes: &'a [u8]) -> Result<T, CodecError> {
    serde_json::from_slice(bytes).map_err(|cause| CodecError::invalid(what, cause.to_string()))
}

fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a record of texts and numbers is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKPOINT: &str = concat!(
        r#"{"bm":0,"bn":"broker-a","c":"group_a","d":[0,1,3],"it":60000,"n":3,"pt":1700000000000,"q":2,"#,
        r#""reviveTime":1700000060000,"ro":0,"so":1001,"t":"OrderTopic"}"#
    );
    const ACK: &str =
        r#"{"ao":1002,"bn":"broker-a","c":"group_a","pt":1700000000000,"q":2,"so":1001,"t":"OrderTopic"}"#;
    const BATCH_ACK: &str = concat!(
        r#"{"ao":-1,"aol":[1001,1002],"bn":"broker-a","c":"group_a","pt":1700000000000,"q":2,"#,
        r#""so":1001,"t":"OrderTopic"}"#
    );

    #[test]
    fn a_check_point_reads_and_writes_the_json_of_java() {
        let checkpoint = PopCheckpoint::from_json(CHECKPOINT.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(checkpoint.to_json()).unwrap(), CHECKPOINT);
        assert_eq!(checkpoint.unique_key(), "OrderTopic@2@1001@group_a@1700000000000@broker-a@ck");
        assert_eq!((checkpoint.queue_offset(2), checkpoint.queue_offset(3)), (Some(1004), None));
        assert_eq!((checkpoint.index_of(1004), checkpoint.index_of(1003)), (Some(2), None));
    }

    #[test]
    fn a_check_point_without_offsets_means_consecutive_ones() {
        let text = CHECKPOINT.replace(r#""d":[0,1,3],"#, "");
        let checkpoint = PopCheckpoint::from_json(text.as_bytes()).unwrap();
        assert_eq!((checkpoint.queue_offset(2), checkpoint.queue_offset(3)), (Some(1003), None));
        assert_eq!((checkpoint.index_of(1003), checkpoint.index_of(1004)), (Some(2), None));
        assert_eq!(checkpoint.index_of(1000), None);
        assert_eq!(String::from_utf8(checkpoint.to_json()).unwrap(), text);
    }

    #[test]
    fn acknowledgements_read_and_write_the_json_of_java() {
        let ack = PopAck::from_json(ACK.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(ack.to_json()).unwrap(), ACK);
        assert_eq!((ack.tag(), ack.queue_offsets()), (TAG_ACK, &[1002][..]));
        assert_eq!(ack.unique_key(), "OrderTopic@2@1002@group_a@1700000000000@broker-a@ack");
        let batch = PopAck::from_json(BATCH_ACK.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(batch.to_json()).unwrap(), BATCH_ACK);
        assert_eq!((batch.tag(), batch.queue_offsets()), (TAG_BATCH_ACK, &[1001, 1002][..]));
    }

    #[test]
    fn the_long_names_are_read_too() {
        let long = r#"{"ackOffset":1002,"brokerName":"broker-a","consumerGroup":"group_a","popTime":1700000000000,
            "queueId":2,"startOffset":1001,"topic":"OrderTopic"}"#;
        assert_eq!(PopAck::from_json(long.as_bytes()), PopAck::from_json(ACK.as_bytes()));
    }

    #[test]
    fn every_truncation_is_an_error() {
        for len in 0..CHECKPOINT.len() {
            assert!(PopCheckpoint::from_json(&CHECKPOINT.as_bytes()[..len]).is_err(), "{len}");
        }
    }
}
