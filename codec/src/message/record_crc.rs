//! The CRC of a whole record, kept in its last property (`enabledAppendPropCRC`, off by default).
//!
//! Invariants:
//! - the property is the last 20 bytes of the record and not part of what it covers;
//! - it is sealed last: queue offset, log offset and store timestamp are covered.
//!
//! | offset in the 20 bytes | size | content |
//! |---|---|---|
//! | 0 | 8 | `__CRC32#` |
//! | 8 | 1 | 0x01 |
//! | 9 | 10 | CRC-32 without its top bit, decimal, the lowest digit first, filled with zeros |
//! | 19 | 1 | 0x02 |
//!
//! RocketMQ's name for it: `MessageDecoder#createCrc32`.

use crate::message::record::body_crc;

/// Bytes of the property.
pub const RECORD_CRC_BYTES: usize = 20;

/// The property with a hole for the digits: the last piece of a new record's properties.
pub const RECORD_CRC_HOLE: &[u8; RECORD_CRC_BYTES] = b"__CRC32#\x010000000000\x02";

/// Writes the CRC into an encoded record that ends with [`RECORD_CRC_HOLE`]; tells whether it does.
pub fn seal(record: &mut [u8]) -> bool {
    let Some((covered, property)) = record.split_last_chunk_mut::<RECORD_CRC_BYTES>() else { return false };
    if !is_property(property) {
        return false;
    }
    property[9..19].copy_from_slice(&digits(body_crc(covered)));
    true
}

/// Whether the record is what was sealed; `None` if it carries no CRC of its own.
pub fn is_intact(record: &[u8]) -> Option<bool> {
    let (covered, property) = record.split_last_chunk::<RECORD_CRC_BYTES>()?;
    is_property(property).then(|| property[9..19] == digits(body_crc(covered)))
}

fn is_property(property: &[u8; RECORD_CRC_BYTES]) -> bool {
    property[..9] == RECORD_CRC_HOLE[..9] && property[19] == RECORD_CRC_HOLE[19]
}

fn digits(crc: u32) -> [u8; 10] {
    let mut rest = crc;
    [(); 10].map(|()| {
        let [_, _, _, digit] = (rest % 10).to_be_bytes();
        rest /= 10;
        b'0'.saturating_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::message::{NewRecord, RecordView, fill_holes};

    fn sealed() -> BytesMut {
        let record = NewRecord {
            queue_id: 3,
            born_timestamp_ms: 1_700_000_000_123,
            born_host: "127.0.0.1:40000".parse().unwrap(),
            store_host: "192.168.1.10:10911".parse().unwrap(),
            topic: "TopicTest",
            body: b"hello",
            properties: &[b"TAGS\x01TagA\x02KEYS\x01K1", RECORD_CRC_HOLE],
            ..NewRecord::PLAIN
        };
        let mut bytes = BytesMut::new();
        record.encode(&mut bytes).unwrap();
        fill_holes(&mut bytes, 7, 4096, 1_700_000_000_456);
        assert!(seal(&mut bytes));
        bytes
    }

    #[test]
    fn a_sealed_record_ends_with_the_bytes_that_java_writes() {
        let bytes = sealed();
        assert_eq!(bytes.len(), 143);
        assert!(bytes.ends_with(b"__CRC32#\x017759744312\x02"));
        assert_eq!(is_intact(&bytes), Some(true));
        let record = RecordView::parse(&bytes).unwrap();
        assert_eq!(record.properties().get("KEYS"), Some("K1"));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let whole = sealed();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert_ne!(is_intact(&bytes), Some(true), "{at}");
        }
    }

    #[test]
    fn a_record_without_the_property_has_no_crc_of_its_own() {
        let mut bytes = sealed();
        bytes.truncate(123);
        assert_eq!(is_intact(&bytes), None);
        assert!(!seal(&mut bytes));
        assert_eq!(is_intact(b"short"), None);
    }
}
