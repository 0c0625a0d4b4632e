//! REGISTER_BROKER (103): a broker tells a name server its address and its topics.
//!
//! Invariants:
//! - a body is recognised by its first byte, because Java brokers compress it and say that they do not;
//! - a topic that is missing in the body is not deleted: registrations may hold only what changed;
//! - what a compressed body grows to is limited.
//!
//! The compressed form is zlib around these parts, each text behind its length in 32 bits: the data
//! version; the number of topics and for each `name readQueues writeQueues perm filterType attributes`; the
//! list of filter servers; from version 5.0 on the number of mappings and the mappings. The flags of a
//! topic are lost in it.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};

use crate::cursor::Cursor;
use crate::error::CodecError;
use crate::frame::FRAME_MAX_BYTES;
use crate::header::header;
use crate::loose_json::{from_loose, to_fastjson};
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::{DataVersion, TopicConfig, TopicConfigTable, TopicFilterType, TopicQueueMapping};

header! {
    /// Who registers.
    pub struct RegisterBrokerHeader {
        broker_name: Text = "brokerName",
        /// `ip:port`.
        broker_address: Text = "brokerAddr",
        cluster_name: Text = "clusterName",
        /// `ip:port`.
        ha_address: Text = "haServerAddr",
        /// 0 is the master.
        broker_id: i64 = "brokerId",
        /// Silence after which it counts as gone.
        heartbeat_timeout_ms: Option<i64> = "heartbeatTimeoutMillis",
        acting_master: Option<bool> = "enableActingMaster",
        compressed: Option<bool> = "compressed",
        /// CRC-32 of the body without its top bit; 0: not checked.
        body_crc: Option<i32> = "bodyCrc32",
        zone_name: Option<Text> = "__ZONE_NAME",
    }
}

header! {
    /// Where a slave finds its master.
    pub struct RegisterBrokerReplyHeader {
        ha_address: Option<Text> = "haServerAddr",
        master_address: Option<Text> = "masterAddr",
    }
}

/// REGISTER_BROKER.
pub struct RegisterBroker;

impl Request for RegisterBroker {
    const CODE: i32 = 103;
    const NAME: &'static str = "REGISTER_BROKER";
    const TO: Direction = Direction::ToNameServer;
    type Header = RegisterBrokerHeader;
    type Reply = RegisterBrokerReplyHeader;
}

/// What a broker registers (`RegisterBrokerBody`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegisterBrokerBody {
    /// Always empty today.
    pub filter_server_list: Vec<Text>,
    /// The topics.
    pub topic_config_serialize_wrapper: TopicConfigTable,
}

/// Most bytes that a compressed body may grow to.
const INFLATED_MAX_BYTES: usize = FRAME_MAX_BYTES.saturating_mul(4);

/// First byte of a zlib stream as Java writes it.
const ZLIB_FIRST_BYTE: u8 = 0x78;

impl RegisterBrokerBody {
    /// Reads a body in either form; an empty one has no topics.
    pub fn decode(body: &[u8]) -> Result<RegisterBrokerBody, CodecError> {
        match body.first() {
            None => Ok(RegisterBrokerBody::default()),
            Some(&ZLIB_FIRST_BYTE) => RegisterBrokerBody::decode_parts(&inflated(body)?),
            Some(_) => from_loose(body),
        }
    }

    fn decode_parts(parts: &[u8]) -> Result<RegisterBrokerBody, CodecError> {
        let mut cursor = Cursor::new(parts);
        let data_version: DataVersion = from_loose(part(&mut cursor, "data version")?)?;
        let mut topics = BTreeMap::new();
        for _ in 0..cursor.i32("number of topics")? {
            let topic = topic_from(part(&mut cursor, "topic")?)?;
            topics.insert(topic.topic_name.clone(), topic);
        }
        let filter_server_list = from_loose(part(&mut cursor, "filter servers")?)?;
        let mut mappings = BTreeMap::new();
        if cursor.left() > 0 {
            for _ in 0..cursor.i32("number of mappings")? {
                let mapping: TopicQueueMapping = from_loose(part(&mut cursor, "mapping")?)?;
                mappings.insert(mapping.topic.clone(), mapping);
            }
        }
        let topic_config_serialize_wrapper = TopicConfigTable {
            data_version,
            topic_config_table: topics,
            topic_queue_mapping_info_map: Some(mappings),
            ..TopicConfigTable::default()
        };
        Ok(RegisterBrokerBody { filter_server_list, topic_config_serialize_wrapper })
    }

    /// Writes the plain form.
    pub fn encode(&self) -> Vec<u8> {
        to_fastjson(self)
    }

    /// Writes the compressed form of a 5.x broker.
    pub fn encode_compressed(&self) -> Vec<u8> {
        let table = &self.topic_config_serialize_wrapper;
        let mut parts = Vec::new();
        put_part(&mut parts, &to_fastjson(&table.data_version));
        put_len(&mut parts, table.topic_config_table.len());
        for topic in table.topic_config_table.values() {
            put_part(&mut parts, topic_text(topic).as_bytes());
        }
        put_part(&mut parts, &to_fastjson(&self.filter_server_list));
        let mappings = table.topic_queue_mapping_info_map.iter().flatten();
        put_len(&mut parts, mappings.clone().count());
        for (_, mapping) in mappings {
            put_part(&mut parts, &to_fastjson(mapping));
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        let written = encoder.write_all(&parts).and_then(|()| encoder.finish());
        written.expect("writing to memory does not fail")
    }
}

fn inflated(body: &[u8]) -> Result<Vec<u8>, CodecError> {
    let limit = u64::try_from(INFLATED_MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut parts = Vec::new();
    let read = ZlibDecoder::new(body).take(limit).read_to_end(&mut parts);
    let len = read.map_err(|cause| CodecError::invalid("compressed registration", cause.to_string()))?;
    if len > INFLATED_MAX_BYTES {
        return Err(CodecError::TooLong { what: "registration", len, max: INFLATED_MAX_BYTES });
    }
    Ok(parts)
}

fn part<'a>(cursor: &mut Cursor<'a>, what: &'static str) -> Result<&'a [u8], CodecError> {
    let len = cursor.len32(what)?;
    cursor.take(len, what)
}

fn put_len(parts: &mut Vec<u8>, len: usize) {
    parts.extend(i32::try_from(len).unwrap_or(i32::MAX).to_be_bytes());
}

fn put_part(parts: &mut Vec<u8>, part: &[u8]) {
    put_len(parts, part.len());
    parts.extend_from_slice(part);
}

/// Reads `name readQueues writeQueues perm filterType attributes`; attributes may be missing or hold blanks.
fn topic_from(text: &[u8]) -> Result<TopicConfig, CodecError> {
    let invalid = || CodecError::invalid("topic in a registration", text);
    let line = std::str::from_utf8(text).map_err(|_| invalid())?;
    let mut words = line.splitn(6, ' ');
    let topic_name = Text::from(words.next().unwrap_or_default());
    let mut number = || words.next().and_then(|word| word.parse::<i32>().ok()).ok_or_else(invalid);
    let (read_queue_nums, write_queue_nums, perm) = (number()?, number()?, number()?);
    let topic_filter_type = match words.next() {
        Some("MULTI_TAG") => TopicFilterType::MultiTag,
        _ => TopicFilterType::SingleTag,
    };
    let attributes = match words.next() {
        Some(json) if !json.is_empty() => from_loose(json.as_bytes())?,
        _ => BTreeMap::new(),
    };
    let rest = TopicConfig::default();
    Ok(TopicConfig {
        attributes,
        perm,
        read_queue_nums,
        topic_filter_type,
        topic_name,
        write_queue_nums,
        ..rest
    })
}

fn topic_text(topic: &TopicConfig) -> String {
    let filter_type = match topic.topic_filter_type {
        TopicFilterType::SingleTag => "SINGLE_TAG",
        TopicFilterType::MultiTag => "MULTI_TAG",
    };
    let attributes = to_fastjson(&topic.attributes);
    let attributes = String::from_utf8_lossy(&attributes);
    let TopicConfig { topic_name, read_queue_nums, write_queue_nums, perm, .. } = topic;
    format!("{topic_name} {read_queue_nums} {write_queue_nums} {perm} {filter_type} {attributes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RegisterBrokerBody {
        let attributes = BTreeMap::from([(Text::from("message.type"), Text::from("F I F O"))]);
        let topic =
            TopicConfig { attributes, topic_name: Text::from("T"), perm: 4, ..TopicConfig::default() };
        let table = TopicConfigTable {
            data_version: DataVersion { counter: 7, state_version: 0, timestamp: 5 },
            topic_config_table: BTreeMap::from([(Text::from("T"), topic)]),
            topic_queue_mapping_info_map: Some(BTreeMap::new()),
            ..TopicConfigTable::default()
        };
        RegisterBrokerBody { filter_server_list: vec![], topic_config_serialize_wrapper: table }
    }

    #[test]
    fn both_forms_read_back() {
        assert_eq!(RegisterBrokerBody::decode(&sample().encode()), Ok(sample()));
        assert_eq!(RegisterBrokerBody::decode(&sample().encode_compressed()), Ok(sample()));
        assert_eq!(RegisterBrokerBody::decode(&[]), Ok(RegisterBrokerBody::default()));
    }

    #[test]
    fn every_truncation_of_the_compressed_form_is_an_error() {
        let body = sample().encode_compressed();
        for len in 1..body.len() {
            assert!(RegisterBrokerBody::decode(body.get(..len).unwrap()).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn a_body_that_grows_without_end_is_refused() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        for _ in 0..65 {
            encoder.write_all(&[0; 1 << 20]).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert!(matches!(RegisterBrokerBody::decode(&bomb), Err(CodecError::TooLong { .. })));
    }
}
