//! Encoding a message into the record that the log stores, with holes for what only the log knows.
//!
//! Invariants:
//! - queue offset, log offset and store timestamp are zero until [`fill_holes`] sets them;
//! - all else is final: lengths, body CRC, magic, address family bits;
//! - a record that the format cannot carry is refused before anything is written.
//!
//! RocketMQ's name for it: `MessageExtEncoder`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::{BufMut, BytesMut};

use crate::error::CodecError;
use crate::message::properties::{PAIR_END, PROPERTIES_MAX_BYTES};
use crate::message::record::{MAGIC_V1, MAGIC_V2, RECORD_MIN_BYTES, body_crc};
use crate::message::sys_flag;

/// Longest topic of a record whose topic length takes one byte.
pub const TOPIC_V1_MAX_BYTES: usize = 127;

/// Bytes of a record in front of its hosts.
const HEAD_BYTES: usize = 48;
/// Bytes between its hosts and its body.
const TAIL_BYTES: usize = 16;

/// A message on its way into the log.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// The topic; more than 127 bytes make it a V2 record.
    pub topic: &'a str,
    /// The queue within the topic.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// The bits of [`sys_flag`]; those of the address families are set from the hosts.
    pub sys_flag: i32,
    /// When the producer made the message: epoch ms.
    pub born_timestamp_ms: i64,
    /// The producer's address.
    pub born_host: SocketAddr,
    /// The broker's advertised address.
    pub store_host: SocketAddr,
    /// How many times a consumer has sent the message back.
    pub reconsume_times: i32,
    /// Log offset of the half message that this record commits; else 0.
    pub prepared_log_offset: i64,
    /// The body as received: possibly compressed.
    pub body: &'a [u8],
    /// The CRC that the body had when it was first stored, where it is stored again: what a disk has changed since
    /// stays known. None of a body that is new.
    pub body_crc: Option<u32>,
    /// Pieces of property text. They are stored one after the other; where a piece that another follows
    /// has no closing mark, it gets one. So a broker adds its own properties without a copy of the client's.
    pub properties: &'a [&'a [u8]],
}

impl NewRecord<'_> {
    /// A record of queue 0 with no flags, born at 1 ms, on its way for the first time, between hosts of this machine:
    /// what tests and measurements begin with.
    pub const PLAIN: NewRecord<'static> = NewRecord {
        topic: "",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_911),
        store_host: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_911),
        reconsume_times: 0,
        prepared_log_offset: 0,
        body: b"",
        body_crc: None,
        properties: &[],
    };

    /// Bytes of the encoded record.
    pub fn encoded_len(&self) -> usize {
        self.len_with(self.properties_len())
    }

    fn len_with(&self, properties_len: usize) -> usize {
        RECORD_MIN_BYTES
            .saturating_add(usize::from(self.is_v2()))
            .saturating_add(extra_host_bytes(self.born_host))
            .saturating_add(extra_host_bytes(self.store_host))
            .saturating_add(self.body.len())
            .saturating_add(self.topic.len())
            .saturating_add(properties_len)
    }

    /// Bytes of the stored property text.
    pub fn properties_len(&self) -> usize {
        properties_len(self.properties)
    }

    /// Appends the record to `out`.
    ///
    /// # Errors
    /// `TooLong` for properties above 32,767 bytes, a topic above 32,767, a record above `i32::MAX`.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        let properties_len = self.properties_len();
        let properties_word = word16("properties", properties_len)?;
        let topic_word = word16("topic", self.topic.len())?;
        let total = self.len_with(properties_len);
        let total_word = word32("record", total)?;
        let body_word = word32("body", self.body.len())?;
        let magic = if self.is_v2() { MAGIC_V2 } else { MAGIC_V1 };

        out.reserve(total);
        let mut head = [0_u8; HEAD_BYTES];
        head[0..4].copy_from_slice(&total_word);
        head[4..8].copy_from_slice(&magic.to_be_bytes());
        let body_crc = self.body_crc.unwrap_or_else(|| body_crc(self.body));
        head[8..12].copy_from_slice(&body_crc.to_be_bytes());
        head[12..16].copy_from_slice(&self.queue_id.to_be_bytes());
        head[16..20].copy_from_slice(&self.flag.to_be_bytes());
        head[36..40].copy_from_slice(&self.stored_sys_flag().to_be_bytes());
        head[40..48].copy_from_slice(&self.born_timestamp_ms.to_be_bytes());
        let mut tail = [0_u8; TAIL_BYTES];
        tail[0..4].copy_from_slice(&self.reconsume_times.to_be_bytes());
        tail[4..12].copy_from_slice(&self.prepared_log_offset.to_be_bytes());
        tail[12..16].copy_from_slice(&body_word);
        self.put_fixed(out, &head, &tail);
        out.extend_from_slice(self.body);
        put_behind_body((self.topic, topic_word), (self.properties, properties_word), out);
        Ok(())
    }

    /// Appends all that stands in front of the body.
    #[inline]
    fn put_fixed(&self, out: &mut BytesMut, head: &[u8; HEAD_BYTES], tail: &[u8; TAIL_BYTES]) {
        let (SocketAddr::V4(born), SocketAddr::V4(store)) = (self.born_host, self.store_host) else {
            out.extend_from_slice(head);
            put_host(out, self.born_host);
            out.put_i64(0);
            put_host(out, self.store_host);
            out.extend_from_slice(tail);
            return;
        };
        // Of known length, which most are: one copy.
        let mut fixed = [0_u8; HEAD_BYTES + 24 + TAIL_BYTES];
        fixed[0..48].copy_from_slice(head);
        fixed[48..52].copy_from_slice(&born.ip().octets());
        fixed[52..56].copy_from_slice(&u32::from(born.port()).to_be_bytes());
        fixed[64..68].copy_from_slice(&store.ip().octets());
        fixed[68..72].copy_from_slice(&u32::from(store.port()).to_be_bytes());
        fixed[72..88].copy_from_slice(tail);
        out.extend_from_slice(&fixed);
    }

    fn is_v2(&self) -> bool {
        is_v2(self.topic)
    }

    fn stored_sys_flag(&self) -> i32 {
        let mut flag = self.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6);
        if self.born_host.is_ipv6() {
            flag |= sys_flag::BORN_HOST_V6;
        }
        if self.store_host.is_ipv6() {
            flag |= sys_flag::STORE_HOST_V6;
        }
        flag
    }
}

/// Writes into an encoded record what the log assigns. `record` starts at the record; what follows it is
/// left alone.
///
/// # Panics
/// If `record` is shorter than the head of a record: only encoded records are given to the log.
pub fn fill_holes(record: &mut [u8], queue_offset: i64, log_offset: i64, store_timestamp_ms: i64) {
    let (head, rest) = record.split_first_chunk_mut::<48>().expect("an encoded record has a whole head");
    head[20..28].copy_from_slice(&queue_offset.to_be_bytes());
    head[28..36].copy_from_slice(&log_offset.to_be_bytes());
    let sys_flag = i32::from_be_bytes([head[36], head[37], head[38], head[39]]);
    let host_len = if sys_flag & sys_flag::BORN_HOST_V6 == 0 { 8 } else { 20 };
    let store_time = rest.get_mut(host_len..).and_then(|rest| rest.first_chunk_mut::<8>());
    *store_time.expect("an encoded record has a store time") = store_timestamp_ms.to_be_bytes();
}

/// Appends an address as records and offset ids carry it: 4 or 16 bytes and a port of 4.
pub(crate) fn put_host(out: &mut impl BufMut, host: SocketAddr) {
    match host.ip() {
        IpAddr::V4(ip) => out.put_slice(&ip.octets()),
        IpAddr::V6(ip) => out.put_slice(&ip.octets()),
    }
    out.put_u32(u32::from(host.port()));
}

/// Whether a record of a topic has to be one of the second version, whose topic may be long.
pub(super) fn is_v2(topic: &str) -> bool {
    topic.len() > TOPIC_V1_MAX_BYTES
}

/// Appends what stands behind the body: topic and properties, each behind the word of its length.
#[inline]
pub(super) fn put_behind_body(
    (topic, [topic_high, topic_low]): (&str, [u8; 2]),
    (properties, properties_word): (&[&[u8]], [u8; 2]),
    out: &mut BytesMut,
) {
    if is_v2(topic) {
        out.put_u8(topic_high);
    }
    out.put_u8(topic_low);
    out.extend_from_slice(topic.as_bytes());
    out.extend_from_slice(&properties_word);
    put_properties(properties, out);
}

/// Bytes that pieces of property text have when they are stored.
pub(super) fn properties_len(pieces: &[&[u8]]) -> usize {
    let mut len = 0_usize;
    let mut is_open = false;
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        len = len.saturating_add(usize::from(is_open)).saturating_add(piece.len());
        is_open = piece.last() != Some(&PAIR_END);
    }
    len
}

/// Appends pieces of property text, each closed that another follows.
fn put_properties(pieces: &[&[u8]], out: &mut BytesMut) {
    let mut is_open = false;
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        if is_open {
            out.put_u8(PAIR_END);
        }
        out.extend_from_slice(piece);
        is_open = piece.last() != Some(&PAIR_END);
    }
}

fn extra_host_bytes(host: SocketAddr) -> usize {
    if host.is_ipv6() { 12 } else { 0 }
}

pub(super) fn word16(what: &'static str, len: usize) -> Result<[u8; 2], CodecError> {
    match i16::try_from(len) {
        Ok(word) => Ok(word.to_be_bytes()),
        Err(_) => Err(CodecError::TooLong { what, len, max: PROPERTIES_MAX_BYTES }),
    }
}

pub(super) fn word32(what: &'static str, len: usize) -> Result<[u8; 4], CodecError> {
    match i32::try_from(len) {
        Ok(word) => Ok(word.to_be_bytes()),
        Err(_) => Err(CodecError::TooLong { what, len, max: 0x7FFF_FFFF }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::record::RecordView;

    const GOLDEN: &str = "\
        0000007bdaa320a73610a6860000000300000000000000000000000700000000\
        00001000000000000000018bcfe5687b7f00000100009c400000018bcfe569c8\
        c0a8010a00002a9f0000000000000000000000000000000568656c6c6f09546f\
        706963546573740012544147530154616741024b455953014b3102";

    fn record() -> NewRecord<'static> {
        NewRecord {
            queue_id: 3,
            born_timestamp_ms: 1_700_000_000_123,
            born_host: "127.0.0.1:40000".parse().unwrap(),
            store_host: "192.168.1.10:10911".parse().unwrap(),
            topic: "TopicTest",
            body: b"hello",
            properties: &[b"TAGS\x01TagA", b"", b"KEYS\x01K1\x02"],
            ..NewRecord::PLAIN
        }
    }

    fn encoded(record: &NewRecord<'_>) -> BytesMut {
        let mut out = BytesMut::new();
        record.encode(&mut out).unwrap();
        assert_eq!(out.len(), record.encoded_len());
        out
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_filled_record_has_the_bytes_that_java_writes() {
        let mut bytes = encoded(&record());
        fill_holes(&mut bytes, 7, 4096, 1_700_000_000_456);
        assert_eq!(hex(&bytes), GOLDEN);
    }

    #[test]
    fn a_piece_that_another_follows_is_closed_and_the_last_stays_as_it_is() {
        let open = NewRecord { properties: &[b"A\x011", b"B\x012"], ..record() };
        let bytes = encoded(&open);
        let view = RecordView::parse(&bytes).unwrap();
        assert_eq!(view.properties().as_bytes(), b"A\x011\x02B\x012");
        assert_eq!(view.properties().get("A"), Some("1"));
        assert_eq!(view.properties().get("B"), Some("2"));
    }

    #[test]
    fn a_topic_above_127_bytes_makes_a_v2_record() {
        let topic = "t".repeat(128);
        let long = NewRecord { topic: &topic, body: b"x", properties: &[], ..record() };
        let bytes = encoded(&long);
        assert_eq!(bytes.len(), 221);
        let view = RecordView::parse(&bytes).unwrap();
        assert_eq!((view.magic(), view.topic()), (MAGIC_V2, topic.as_str()));
        let topic = "t".repeat(127);
        let short = NewRecord { topic: &topic, ..record() };
        assert_eq!(RecordView::parse(&encoded(&short)).unwrap().magic(), MAGIC_V1);
    }

    #[test]
    fn holes_are_filled_behind_hosts_of_either_family() {
        for born in ["127.0.0.1:1", "[::1]:65535"] {
            for store in ["127.0.0.1:1", "[2001:db8::7]:10911"] {
                let (born_host, store_host) = (born.parse().unwrap(), store.parse().unwrap());
                let mut bytes = encoded(&NewRecord { born_host, store_host, ..record() });
                bytes.extend_from_slice(b"what follows");
                fill_holes(&mut bytes, 1, 2, 3);
                let view = RecordView::parse(&bytes).unwrap();
                assert_eq!((view.born_host(), view.store_host()), (born_host, store_host));
                assert_eq!((view.queue_offset(), view.log_offset(), view.store_timestamp_ms()), (1, 2, 3));
                assert!(view.body_is_intact());
                assert!(bytes.ends_with(b"what follows"));
            }
        }
    }

    #[test]
    fn what_the_format_cannot_carry_is_refused_and_nothing_is_written() {
        let long = vec![b'x'; PROPERTIES_MAX_BYTES + 1];
        let topic = "t".repeat(32_768);
        let cases = [
            NewRecord { properties: &[&long], ..record() },
            NewRecord { properties: &[&long[..20_000], &long[..12_767]], ..record() },
            NewRecord { topic: &topic, ..record() },
        ];
        for case in cases {
            let mut out = BytesMut::new();
            assert!(matches!(case.encode(&mut out), Err(CodecError::TooLong { .. })));
            assert!(out.is_empty());
        }
    }
}
