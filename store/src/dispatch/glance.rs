//! The few fields of an encoded record that dispatching needs, found without reading the rest.
//!
//! Invariants:
//! - nothing is read beyond the record: lengths that do not fit answer nothing.

use troupemq_codec::message::properties::PAIR_END;
use troupemq_codec::message::record::MAGIC_V2;
use troupemq_codec::message::sys_flag;

/// What dispatching wants to know of a record besides its unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Glance<'a> {
    pub(crate) sys_flag: i32,
    pub(crate) store_timestamp_ms: i64,
    pub(crate) properties: &'a [u8],
}

impl<'a> Glance<'a> {
    /// Looks at a whole encoded record.
    #[inline]
    pub(crate) fn at(record: &'a [u8]) -> Option<Glance<'a>> {
        let magic = int(record, 4)?;
        let (sys_flag, store_timestamp_ms) = stamp(record)?;
        let born_host = if sys_flag & sys_flag::BORN_HOST_V6 != 0 { 20 } else { 8 };
        let store_host = if sys_flag & sys_flag::STORE_HOST_V6 != 0 { 20 } else { 8 };
        let body_at = 72 + born_host + store_host;
        let body = usize::try_from(int(record, body_at - 4)?).ok()?;
        let rest = record.get(body_at.checked_add(body)?..)?;
        let (topic_at, topic) = match magic {
            MAGIC_V2 => (2, usize::from(u16::from_be_bytes(*rest.first_chunk()?))),
            _ => (1, usize::from(*rest.first()?)),
        };
        let properties = rest.get(topic_at + topic + 2..)?;
        Some(Glance { sys_flag, store_timestamp_ms, properties })
    }
}

/// The system flag and the store time (epoch ms) of an encoded record.
#[inline]
pub(crate) fn stamp(record: &[u8]) -> Option<(i32, i64)> {
    let sys_flag = int(record, 36)?;
    let born_host = if sys_flag & sys_flag::BORN_HOST_V6 != 0 { 20 } else { 8 };
    Some((sys_flag, i64::from_be_bytes(*record.get(48 + born_host..)?.first_chunk()?)))
}

/// The unique key and the keys of property text: `UNIQ_KEY` and `KEYS`, of each the last value. One search for
/// the ends of the pairs, and no look at what lies between. They are text, as bytes.
#[inline]
pub(crate) fn keys(properties: &[u8]) -> [Option<&[u8]>; 2] {
    let (mut unique_key, mut keys) = (None, None);
    let mut start = 0;
    let ends = memchr::memchr_iter(PAIR_END, properties).chain([properties.len()]);
    for end in ends {
        let pair = properties.get(start..end).unwrap_or_default();
        start = end + 1;
        let (value, of) = match pair.first() {
            Some(b'U') => (pair.strip_prefix(b"UNIQ_KEY\x01"), &mut unique_key),
            Some(b'K') => (pair.strip_prefix(b"KEYS\x01"), &mut keys),
            _ => continue,
        };
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            *of = Some(value).filter(|value| value.is_ascii() || std::str::from_utf8(value).is_ok());
        }
    }
    [unique_key, keys]
}

#[inline]
fn int(record: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(*record.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::message::{NewRecord, RecordView, fill_holes};

    use super::*;

    #[test]
    fn a_glance_sees_what_a_whole_read_sees_and_never_reads_beyond() {
        for (topic, host) in [("T", "[::1]:4"), (&*"t".repeat(200), "10.0.0.1:4")] {
            let new = NewRecord {
                topic,
                queue_id: 1,
                flag: 0,
                sys_flag: sys_flag::TRANSACTION_COMMIT,
                born_timestamp_ms: 3,
                born_host: host.parse().unwrap(),
                store_host: "10.0.0.1:5".parse().unwrap(),
                reconsume_times: 6,
                prepared_log_offset: 7,
                body: b"body",
                body_crc: None,
                properties: &[b"KEYS\x01A\x02"],
            };
            let mut bytes = BytesMut::new();
            new.encode(&mut bytes).unwrap();
            fill_holes(&mut bytes, 8, 9, 10);
            let whole = RecordView::parse(&bytes).unwrap();
            let glance = Glance::at(&bytes).unwrap();
            assert_eq!((glance.sys_flag, glance.store_timestamp_ms), (whole.sys_flag(), 10));
            assert_eq!(stamp(&bytes), Some((whole.sys_flag(), 10)));
            assert_eq!(glance.properties, whole.properties().as_bytes());
            for len in 0..bytes.len() {
                if let Some(part) = Glance::at(&bytes[..len]) {
                    assert!(part.properties.len() < glance.properties.len());
                }
            }
        }
    }

    #[test]
    fn keys_are_those_of_a_whole_read() {
        for text in [
            "",
            "KEYS\u{1}a b\u{2}UNIQ_KEY\u{1}u\u{2}",
            "UNIQ_KEY\u{1}own\u{2}KEYS\u{1}\u{2}UNIQ_KEY\u{1}of the batch",
            "XKEYS\u{1}a\u{2}KEYSX\u{1}b\u{2}KEYS\u{2}UNIQ_KEY\u{1}",
            "KEYS\u{1}a\u{1}b\u{2}\u{2}KEYS\u{1}\u{2}",
            "WAIT\u{1}true\u{2}KEYS\u{1}订单\u{2}",
        ] {
            let view = troupemq_codec::message::PropertiesView(text.as_bytes());
            let whole = view.pick(["UNIQ_KEY", "KEYS"]).map(|key| key.map(str::as_bytes));
            assert_eq!(keys(text.as_bytes()), whole, "{text:?}");
        }
    }
}
