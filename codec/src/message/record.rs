//! A stored message record, read in place, and the walk over a stretch of log.
//!
//! Invariants:
//! - a view exists only of a record whose lengths agree with its total size and whose topic is UTF-8;
//! - reading copies no body and asks for no memory;
//! - the CRC is not checked here unless asked for: recovery asks, the read path does not.
//!
//! `bh` and `sh` are 8 or 20: an address of 4 or 16 bytes and a port of 4.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | total size |
//! | 4 | 4 | magic: V1 (1-byte topic length) or V2 (2-byte topic length) |
//! | 8 | 4 | CRC-32 of the body without its top bit |
//! | 12 | 4 | queue id |
//! | 16 | 4 | the user's flag |
//! | 20 | 8 | queue offset |
//! | 28 | 8 | log offset |
//! | 36 | 4 | system flag |
//! | 40 | 8 | born timestamp |
//! | 48 | bh | born host |
//! | 48+bh | 8 | store timestamp |
//! | 56+bh | sh | store host |
//! | 56+bh+sh | 4 | times consumed again |
//! | 60+bh+sh | 8 | log offset of the half message |
//! | 68+bh+sh | 4 + n | body |
//! | … | 1 or 2 + t | topic |
//! | … | 2 + p | properties |
//!
//! RocketMQ's name for it: `CommitLog#checkMessageAndReturnSize`, `MessageDecoder`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::cursor::Cursor;
use crate::error::CodecError;
use crate::message::properties::PropertiesView;
use crate::message::sys_flag;

/// Magic of a record with a 1-byte topic length.
pub const MAGIC_V1: i32 = -626_843_481;
/// Magic of a record with a 2-byte topic length.
pub const MAGIC_V2: i32 = -626_843_477;
/// Magic of the blank that fills the end of a segment.
pub const MAGIC_BLANK: i32 = -875_286_124;
/// Bytes that a blank needs; so many stay free behind the last record of a segment.
pub const BLANK_HEAD_BYTES: usize = 8;
/// Bytes of a record in front of its hosts.
const HEAD_BYTES: usize = 48;
/// Bytes from the hosts to the length of the body, where both hosts are IPv4.
const MIDDLE_BYTES: usize = 36;
/// Bytes of the shortest record: IPv4 hosts, no topic, body or properties.
pub const RECORD_MIN_BYTES: usize = 91;

/// The CRC-32 that records carry of their body: the top bit is cleared.
pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7FFF_FFFF
}

/// A stored record, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    bytes: &'a [u8],
    total_size: usize,
    magic: i32,
    body_crc: i32,
    queue_id: i32,
    flag: i32,
    queue_offset: i64,
    log_offset: i64,
    sys_flag: i32,
    born_timestamp_ms: i64,
    born_host: SocketAddr,
    store_timestamp_ms: i64,
    store_host: SocketAddr,
    reconsume_times: i32,
    prepared_log_offset: i64,
    body: &'a [u8],
    topic: &'a str,
    properties: PropertiesView<'a>,
}

impl<'a> RecordView<'a> {
    /// Reads the record at the front of `bytes`; what follows it is left alone.
    pub fn parse(bytes: &'a [u8]) -> Result<RecordView<'a>, CodecError> {
        let bytes = Cursor::new(bytes).sized("record")?;
        let total_size = bytes.len();
        let mut input = Cursor::new(bytes);
        // Of known length: then one look at what is left is enough for all of its fields.
        let head = input.array::<HEAD_BYTES>("head of a record")?;
        let mut head = Cursor::new(&head);
        head.i32("total size of a record")?;
        let magic = head.i32("magic of a record")?;
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return Err(CodecError::Invalid { what: "magic of a record", value: format!("{magic:#x}") });
        }
        let body_crc = head.i32("body crc")?;
        let queue_id = head.i32("queue id")?;
        let flag = head.i32("flag")?;
        let queue_offset = head.i64("queue offset")?;
        let log_offset = head.i64("log offset")?;
        let sys_flag = head.i32("system flag")?;
        let born_timestamp_ms = head.i64("born timestamp")?;
        let Middle { born_host, store_timestamp_ms, store_host, reconsume_times, prepared_log_offset } =
            Middle::read(&mut input, sys_flag)?;
        let body_len = input.len32("body length")?;
        let body = input.take(body_len, "body")?;
        let topic_len =
            if magic == MAGIC_V2 { input.len16("topic length")? } else { input.len8("topic length")? };
        let topic = utf8(input.take(topic_len, "topic")?)?;
        let properties_len = input.len16("properties length")?;
        let properties = PropertiesView(input.take(properties_len, "properties")?);
        if input.left() != 0 {
            let value = format!("{total_size}, {} more than its fields", input.left());
            return Err(CodecError::Invalid { what: "total size of a record", value });
        }
        Ok(RecordView {
            bytes,
            total_size,
            magic,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            log_offset,
            sys_flag,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            prepared_log_offset,
            body,
            topic,
            properties,
        })
    }

    /// The bytes of the record.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of the record, its length word included.
    pub fn total_size(&self) -> usize {
        self.total_size
    }

    /// [`MAGIC_V1`] or [`MAGIC_V2`].
    pub fn magic(&self) -> i32 {
        self.magic
    }

    /// The stored CRC of the body.
    pub fn body_crc(&self) -> i32 {
        self.body_crc
    }

    /// Whether the body has the stored CRC. Reads the whole body.
    pub fn body_is_intact(&self) -> bool {
        self.body_crc.to_be_bytes() == body_crc(self.body).to_be_bytes()
    }

    /// The queue within the topic.
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }

    /// The user's flag, which the broker does not read.
    pub fn flag(&self) -> i32 {
        self.flag
    }

    /// Position in the queue, in messages.
    pub fn queue_offset(&self) -> i64 {
        self.queue_offset
    }

    /// Position in the log, in bytes. A record in the log counts only if this is where it stands.
    pub fn log_offset(&self) -> i64 {
        self.log_offset
    }

    /// The bits of [`sys_flag`].
    pub fn sys_flag(&self) -> i32 {
        self.sys_flag
    }

    /// When the producer made the message: epoch ms.
    pub fn born_timestamp_ms(&self) -> i64 {
        self.born_timestamp_ms
    }

    /// The producer's address as the broker saw it.
    pub fn born_host(&self) -> SocketAddr {
        self.born_host
    }

    /// When the log took the record: epoch ms.
    pub fn store_timestamp_ms(&self) -> i64 {
        self.store_timestamp_ms
    }

    /// The broker's advertised address.
    pub fn store_host(&self) -> SocketAddr {
        self.store_host
    }

    /// How many times a consumer has sent the message back.
    pub fn reconsume_times(&self) -> i32 {
        self.reconsume_times
    }

    /// Log offset of the half message that this record commits; else 0.
    pub fn prepared_log_offset(&self) -> i64 {
        self.prepared_log_offset
    }

    /// The body as stored: possibly compressed.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The topic.
    pub fn topic(&self) -> &'a str {
        self.topic
    }

    /// The properties, still in their text.
    pub fn properties(&self) -> PropertiesView<'a> {
        self.properties
    }
}

/// What stands at a position of the log.
#[derive(Debug, Clone, Copy)]
pub enum Scan<'a> {
    /// A whole record.
    Record(RecordView<'a>),
    /// The end of a segment: the next record is at the start of the next one.
    Blank {
        /// Bytes from here to the end of the segment, as written there.
        remaining: u32,
    },
    /// No record: zeros, a torn record, too few bytes.
    Nothing,
}

/// Looks at the front of `bytes`, which are log from some position to the end of its segment.
///
/// Checks lengths, not the CRC, and not that the stored log offset is the position: the caller knows that.
pub fn scan(bytes: &[u8]) -> Scan<'_> {
    let mut input = Cursor::new(bytes);
    let (Ok(size), Ok(magic)) = (input.array("total size"), input.i32("magic")) else {
        return Scan::Nothing;
    };
    match magic {
        MAGIC_BLANK => Scan::Blank { remaining: u32::from_be_bytes(size) },
        MAGIC_V1 | MAGIC_V2 => RecordView::parse(bytes).map_or(Scan::Nothing, Scan::Record),
        _ => Scan::Nothing,
    }
}

/// The first bytes of a blank; the rest of the segment stays as it is.
pub fn blank_head(remaining: u32) -> [u8; BLANK_HEAD_BYTES] {
    let [a, b, c, d] = remaining.to_be_bytes();
    let [e, f, g, h] = MAGIC_BLANK.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// The fields between the first of two hosts and the length of the body.
struct Middle {
    born_host: SocketAddr,
    store_timestamp_ms: i64,
    store_host: SocketAddr,
    reconsume_times: i32,
    prepared_log_offset: i64,
}

impl Middle {
    #[inline]
    fn read(input: &mut Cursor<'_>, sys_flag: i32) -> Result<Middle, CodecError> {
        let is_v6 = [sys_flag::BORN_HOST_V6, sys_flag::STORE_HOST_V6].map(|host| sys_flag & host != 0);
        if is_v6 != [false, false] {
            return Middle::read_by(input, is_v6);
        }
        let fixed = input.array::<MIDDLE_BYTES>("hosts of a record")?;
        Middle::read_by(&mut Cursor::new(&fixed), is_v6)
    }

    #[inline]
    fn read_by(input: &mut Cursor<'_>, [is_born_v6, is_store_v6]: [bool; 2]) -> Result<Middle, CodecError> {
        Ok(Middle {
            born_host: host(input, is_born_v6)?,
            store_timestamp_ms: input.i64("store timestamp")?,
            store_host: host(input, is_store_v6)?,
            reconsume_times: input.i32("reconsume times")?,
            prepared_log_offset: input.i64("prepared log offset")?,
        })
    }
}

#[inline]
fn host(input: &mut Cursor<'_>, is_v6: bool) -> Result<SocketAddr, CodecError> {
    let ip = if is_v6 {
        IpAddr::V6(Ipv6Addr::from(input.array::<16>("host")?))
    } else {
        IpAddr::V4(Ipv4Addr::from(input.array::<4>("host")?))
    };
    let [_, _, high, low] = input.array("port of a host")?;
    Ok(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
}

fn utf8(bytes: &[u8]) -> Result<&str, CodecError> {
    std::str::from_utf8(bytes)
        .map_err(|cause| CodecError::Invalid { what: "topic", value: format!("no utf-8: {cause}") })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::message::{NewRecord, fill_holes};

    fn record(topic: &str) -> BytesMut {
        let new = NewRecord {
            topic,
            queue_id: 1,
            flag: -2,
            sys_flag: sys_flag::TRANSACTION_COMMIT,
            born_timestamp_ms: 3,
            born_host: "[::1]:4".parse().unwrap(),
            store_host: "10.0.0.1:5".parse().unwrap(),
            reconsume_times: 6,
            prepared_log_offset: 7,
            body: b"body",
            body_crc: None,
            properties: &[b"TAGS\x01A\x02"],
        };
        let mut bytes = BytesMut::new();
        new.encode(&mut bytes).unwrap();
        fill_holes(&mut bytes, 8, 9, 10);
        bytes
    }

    #[test]
    fn every_truncation_is_an_error_and_no_record_to_a_scan() {
        for topic in ["topic".to_owned(), "t".repeat(200)] {
            let bytes = record(&topic);
            for len in 0..bytes.len() {
                assert!(RecordView::parse(&bytes[..len]).is_err(), "{len}");
                assert!(matches!(scan(&bytes[..len]), Scan::Nothing), "{len}");
            }
            assert!(matches!(scan(&bytes), Scan::Record(_)));
        }
    }

    #[test]
    fn bytes_behind_the_record_are_left_alone() {
        let mut bytes = record("topic");
        let size = bytes.len();
        bytes.extend_from_slice(&[0; 100]);
        let view = RecordView::parse(&bytes).unwrap();
        assert_eq!((view.total_size(), view.bytes().len()), (size, size));
        assert_eq!((view.flag(), view.reconsume_times(), view.prepared_log_offset()), (-2, 6, 7));
        assert_eq!(view.sys_flag(), sys_flag::TRANSACTION_COMMIT | sys_flag::BORN_HOST_V6);
    }

    #[test]
    fn a_total_size_that_disagrees_with_the_fields_is_an_error() {
        let whole = record("topic");
        for size in [0, 1, 8, whole.len() - 1, whole.len() + 1, 0x7FFF_FFFF, 0xFFFF_FFFF] {
            let mut bytes = whole.clone();
            bytes.extend_from_slice(&[0; 10]);
            bytes[..4].copy_from_slice(&u32::try_from(size).unwrap().to_be_bytes());
            assert!(RecordView::parse(&bytes).is_err(), "{size}");
        }
    }

    #[test]
    fn a_changed_body_is_not_intact() {
        let mut bytes = record("topic");
        assert!(RecordView::parse(&bytes).unwrap().body_is_intact());
        let at = bytes.windows(4).position(|window| window == b"body").unwrap();
        bytes[at] ^= 1;
        assert!(!RecordView::parse(&bytes).unwrap().body_is_intact());
        assert_eq!(body_crc(b"hello"), 907_060_870);
        assert_eq!(body_crc(b"a"), 0x68B7_BE43);
    }

    #[test]
    fn a_scan_sees_blanks_and_stops_at_zeros() {
        assert!(matches!(scan(&blank_head(4242)), Scan::Blank { remaining: 4242 }));
        assert!(matches!(scan(&[0; 4096]), Scan::Nothing));
        assert!(matches!(scan(&[]), Scan::Nothing));
        assert!(matches!(scan(&blank_head(8)[..7]), Scan::Nothing));
    }
}
