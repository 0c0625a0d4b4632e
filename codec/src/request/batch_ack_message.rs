//! BATCH_ACK_MESSAGE (200151): several popped messages are done.
//!
//! Invariants:
//! - the header means nothing, the body is all: a [`BatchAckBody`].

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::text::Text;

/// BATCH_ACK_MESSAGE.
pub struct BatchAckMessage;

impl Request for BatchAckMessage {
    const CODE: i32 = 200_151;
    const NAME: &'static str = "BATCH_ACK_MESSAGE";
    const TO: Direction = Direction::ClientToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// What is done, of one client (`BatchAckMessageRequestBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BatchAckBody {
    /// One for each check point.
    pub acks: Vec<BatchAck>,
    /// The broker.
    pub broker_name: Text,
}

/// Messages of one check point (`BatchAck`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchAck {
    /// Which messages: bit i stands for `start_offset + i`.
    #[serde(rename = "b", alias = "bitSet")]
    pub bits: AckBits,
    /// The group.
    #[serde(rename = "c", alias = "consumerGroup")]
    pub consumer_group: Text,
    /// How long they were to stay invisible, in milliseconds.
    #[serde(rename = "it", alias = "invisibleTime")]
    pub invisible_ms: i64,
    /// When they were popped, in milliseconds.
    #[serde(rename = "pt", alias = "popTime")]
    pub pop_time_ms: i64,
    /// The queue.
    #[serde(rename = "q", alias = "queueId")]
    pub queue_id: i32,
    /// The mark of a receipt handle: `0`, `1` or `2`.
    #[serde(rename = "r", alias = "retry")]
    pub retry: Text,
    /// Queue of the revive topic.
    #[serde(rename = "rq", alias = "reviveQueueId")]
    pub revive_queue_id: i32,
    /// First queue offset of the check point.
    #[serde(rename = "so", alias = "startOffset")]
    pub start_offset: i64,
    /// The topic, never a retry topic.
    #[serde(rename = "t", alias = "topic")]
    pub topic: Text,
}

impl BatchAck {
    /// The queue offsets that are done.
    pub fn queue_offsets(&self) -> impl Iterator<Item = i64> {
        self.bits.set_bits().map(|bit| self.start_offset.saturating_add(bit))
    }
}

/// A set of small numbers; in JSON the base64 of its bytes, bit 0 of the first byte first (Java's `BitSet`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AckBits(Vec<u8>);

impl AckBits {
    /// Adds a number.
    pub fn set(&mut self, bit: u16) {
        let place = usize::from(bit >> 3);
        if self.0.len() <= place {
            self.0.resize(place.saturating_add(1), 0);
        }
        if let Some(byte) = self.0.get_mut(place) {
            *byte |= 1 << (bit & 7);
        }
    }

    /// The numbers in ascending order.
    pub fn set_bits(&self) -> impl Iterator<Item = i64> {
        let bytes = (0_i64..).step_by(8).zip(&self.0);
        bytes.flat_map(|(first, byte)| {
            let bits = (0_i64..8).filter(move |bit| byte >> bit & 1 == 1);
            bits.map(move |bit| first.saturating_add(bit))
        })
    }
}

impl Serialize for AckBits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for AckBits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AckBits, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = AckBits;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the base64 of a bit set")
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<AckBits, E> {
                Ok(AckBits(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loose_json::{from_loose, to_fastjson};

    #[test]
    fn the_bits_of_a_java_client_are_queue_offsets() {
        let text = concat!(
            r#"{"acks":[{"b":"Bw==","c":"g","it":60000,"pt":1700000000000,"q":3,"r":"0","rq":5,"so":100,"t":"T"}],"#,
            r#""brokerName":"b"}"#
        );
        let body: BatchAckBody = from_loose(text.as_bytes()).unwrap();
        let ack = body.acks.first().unwrap();
        assert_eq!(ack.queue_offsets().collect::<Vec<_>>(), [100, 101, 102]);
        assert_eq!(String::from_utf8(to_fastjson(&body)).unwrap(), text);
        let long = text.replace(r#""b":"#, r#""bitSet":"#).replace(r#""so":"#, r#""startOffset":"#);
        assert_eq!(from_loose::<BatchAckBody>(long.as_bytes()), Ok(body));
    }

    #[test]
    fn bits_that_are_set_are_told_in_order() {
        let mut bits = AckBits::default();
        for bit in [31, 0, 9, 8, 0] {
            bits.set(bit);
        }
        assert_eq!(bits.set_bits().collect::<Vec<_>>(), [0, 8, 9, 31]);
        assert_eq!(AckBits::default().set_bits().count(), 0);
    }
}
