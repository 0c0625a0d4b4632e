//! A stored record that is stored once more elsewhere: for another topic and queue, with other properties, or as the
//! message of the half message that it is.
//!
//! Invariants:
//! - everything else stays as it is, byte for byte, but for the holes that only the log fills: [`fill_holes`];
//! - its lengths were looked at when it was taken, so a torn or damaged record is none;
//! - what the format cannot carry is refused before anything is written.
//!
//! [`fill_holes`]: super::fill_holes

use bytes::BytesMut;

use crate::cursor::Cursor;
use crate::error::CodecError;
use crate::message::new_record::{is_v2, properties_len, put_behind_body, word16, word32};
use crate::message::properties::PropertiesView;
use crate::message::record::{MAGIC_V1, MAGIC_V2};
use crate::message::sys_flag;

/// Bytes of a record in front of its hosts.
const HEAD_BYTES: usize = 48;
/// Where in it its magic and its system flag stand.
const MAGIC_AT: usize = 4;
const SYS_FLAG_AT: usize = 36;
/// The same of its place in the log.
const LOG_OFFSET_AT: usize = 28;

/// A stored record, as far as it must be known to be stored once more.
#[derive(Debug, Clone, Copy)]
pub struct StoredRecord<'a> {
    bytes: &'a [u8],
    sys_flag: i32,
    /// Bytes up to the end of the body.
    body_end: usize,
    properties: PropertiesView<'a>,
}

/// The same on its way into the log.
#[derive(Debug, Clone, Copy)]
pub struct MovedRecord<'a> {
    /// As it was stored.
    pub stored: StoredRecord<'a>,
    /// The topic; more than 127 bytes make it a V2 record.
    pub topic: &'a str,
    /// The queue within the topic.
    pub queue_id: i32,
    /// Pieces of property text, which are stored as those of a [`NewRecord`](super::NewRecord) are.
    pub properties: &'a [&'a [u8]],
    /// Whether it is the message of a half message, which was stored, and says so.
    pub is_commit: bool,
}

impl<'a> StoredRecord<'a> {
    /// Takes the record at the front of `bytes`; what follows it is left alone.
    ///
    /// # Errors
    /// If its lengths do not agree with each other, or it is none.
    pub fn take(bytes: &'a [u8]) -> Result<StoredRecord<'a>, CodecError> {
        let bytes = Cursor::new(bytes).sized("record")?;
        let mut input = Cursor::new(bytes);
        let head = input.array::<HEAD_BYTES>("head of a record")?;
        let magic = word_at(&head, MAGIC_AT);
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return Err(CodecError::Invalid { what: "magic of a record", value: format!("{magic:#x}") });
        }
        let sys_flag = word_at(&head, SYS_FLAG_AT);
        input.take(middle_bytes(sys_flag), "hosts of a record")?;
        let body_len = input.len32("body length")?;
        input.take(body_len, "body")?;
        let body_end = input.at();
        let topic_len =
            if magic == MAGIC_V2 { input.len16("topic length")? } else { input.len8("topic length")? };
        input.take(topic_len, "topic")?;
        let properties_len = input.len16("properties length")?;
        let properties = PropertiesView(input.take(properties_len, "properties")?);
        if input.left() != 0 {
            let value = format!("{}, {} more than its fields", bytes.len(), input.left());
            return Err(CodecError::Invalid { what: "total size of a record", value });
        }
        Ok(StoredRecord { bytes, sys_flag, body_end, properties })
    }

    /// The bytes of the record.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bits of [`sys_flag`].
    pub fn sys_flag(&self) -> i32 {
        self.sys_flag
    }

    /// The properties, still in their text.
    pub fn properties(&self) -> PropertiesView<'a> {
        self.properties
    }
}

impl MovedRecord<'_> {
    /// The bits of [`sys_flag`].
    pub fn sys_flag(&self) -> i32 {
        let stored = self.stored.sys_flag;
        if self.is_commit { sys_flag::with_transaction(stored, sys_flag::TRANSACTION_COMMIT) } else { stored }
    }

    /// Bytes of the encoded record.
    pub fn encoded_len(&self) -> usize {
        self.len_with(self.properties_len())
    }

    fn len_with(&self, properties_len: usize) -> usize {
        let lengths = if self.is_v2() { 4_usize } else { 3 };
        let topic_len = self.topic.len();
        lengths.saturating_add(self.stored.body_end).saturating_add(topic_len).saturating_add(properties_len)
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
        let StoredRecord { bytes, sys_flag, body_end, .. } = self.stored;
        let properties_len = self.properties_len();
        let properties_word = word16("properties", properties_len)?;
        let topic_word = word16("topic", self.topic.len())?;
        let total = self.len_with(properties_len);
        let total_word = word32("record", total)?;
        let magic = if self.is_v2() { MAGIC_V2 } else { MAGIC_V1 };

        out.reserve(total);
        let start = out.len();
        out.extend_from_slice(bytes.get(..body_end).unwrap_or_default());
        if let Some(head) = out.get_mut(start..).and_then(|record| record.first_chunk_mut::<HEAD_BYTES>()) {
            head[0..4].copy_from_slice(&total_word);
            head[4..8].copy_from_slice(&magic.to_be_bytes());
            head[12..16].copy_from_slice(&self.queue_id.to_be_bytes());
            head[20..36].fill(0);
        }
        let stored_at = start.saturating_add(HEAD_BYTES).saturating_add(born_host_bytes(sys_flag));
        if let Some(stored) = out.get_mut(stored_at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
            *stored = [0; 8];
        }
        if self.is_commit {
            self.put_commit(out.get_mut(start..).unwrap_or_default());
        }
        put_behind_body((self.topic, topic_word), (self.properties, properties_word), out);
        Ok(())
    }

    /// Says in a record that it is the message of the half message that was stored, and where that stands.
    fn put_commit(&self, record: &mut [u8]) {
        let half_at: [u8; 8] = piece_at(self.stored.bytes, LOG_OFFSET_AT);
        let offset_at = HEAD_BYTES.saturating_add(middle_bytes(self.stored.sys_flag)).saturating_sub(8);
        let mut put = |at: usize, piece: &[u8]| {
            if let Some(place) = record.get_mut(at..).and_then(|rest| rest.get_mut(..piece.len())) {
                place.copy_from_slice(piece);
            }
        };
        put(SYS_FLAG_AT, &self.sys_flag().to_be_bytes());
        put(offset_at, &half_at);
    }

    fn is_v2(&self) -> bool {
        is_v2(self.topic)
    }
}

fn word_at(head: &[u8; HEAD_BYTES], at: usize) -> i32 {
    i32::from_be_bytes(piece_at(head, at))
}

fn piece_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn born_host_bytes(sys_flag: i32) -> usize {
    if sys_flag & sys_flag::BORN_HOST_V6 == 0 { 8 } else { 20 }
}

/// Bytes between the head and the length of the body.
fn middle_bytes(sys_flag: i32) -> usize {
    let store_host = if sys_flag & sys_flag::STORE_HOST_V6 == 0 { 8 } else { 20 };
    born_host_bytes(sys_flag).saturating_add(store_host).saturating_add(20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::new_record::TOPIC_V1_MAX_BYTES;
    use crate::message::{NewRecord, RecordView, fill_holes};

    fn stored(topic: &str, hosts: [&str; 2]) -> BytesMut {
        let [born_host, store_host] = hosts.map(|host| host.parse().unwrap());
        let record = NewRecord {
            topic,
            queue_id: 3,
            flag: -2,
            sys_flag: sys_flag::INNER_BATCH | sys_flag::TRANSACTION_PREPARED,
            born_timestamp_ms: 1_700_000_000_123,
            born_host,
            store_host,
            reconsume_times: 5,
            prepared_log_offset: 77,
            body: b"hello",
            properties: &[b"TAGS\x01TagA\x02REAL_TOPIC\x01T"],
            ..NewRecord::PLAIN
        };
        let mut bytes = BytesMut::new();
        record.encode(&mut bytes).unwrap();
        fill_holes(&mut bytes, 7, 4096, 1_700_000_000_456);
        bytes
    }

    /// The record with another target and other properties, read and encoded as a new one.
    fn anew(bytes: &[u8], topic: &str, (properties, is_commit): (&[&[u8]], bool)) -> BytesMut {
        let view = RecordView::parse(bytes).unwrap();
        let (sys_flag, prepared_log_offset) = match is_commit {
            true => {
                (sys_flag::with_transaction(view.sys_flag(), sys_flag::TRANSACTION_COMMIT), view.log_offset())
            }
            false => (view.sys_flag(), view.prepared_log_offset()),
        };
        let record = NewRecord {
            topic,
            queue_id: 9,
            flag: view.flag(),
            sys_flag,
            born_timestamp_ms: view.born_timestamp_ms(),
            born_host: view.born_host(),
            store_host: view.store_host(),
            reconsume_times: view.reconsume_times(),
            prepared_log_offset,
            body: view.body(),
            body_crc: Some(view.body_crc().cast_unsigned()),
            properties,
        };
        let mut out = BytesMut::new();
        record.encode(&mut out).unwrap();
        out
    }

    #[test]
    fn a_moved_record_has_the_bytes_of_one_that_is_read_and_encoded_anew() {
        let long = "t".repeat(TOPIC_V1_MAX_BYTES + 1);
        let addresses = ["127.0.0.1:1", "[2001:db8::7]:10911"];
        for hosts in addresses.map(|born| addresses.map(|store| [born, store])).concat() {
            for (from, to) in [("wait", "Topic"), ("wait", &long), (&long, "Topic"), (&long, &long), ("", "")]
            {
                let mut bytes = stored(from, hosts);
                let whole = bytes.clone();
                bytes.extend_from_slice(b"what follows");
                let taken = StoredRecord::take(&bytes).unwrap();
                assert_eq!((taken.bytes(), taken.sys_flag()), (&whole[..], view_flag(&whole)));
                let own = taken.properties().as_bytes();
                let kinds = [&[own, b"MORE\x011\x02"][..], &[own, b""], &[b"A\x011\x02"], &[]];
                for (properties, is_commit) in kinds.map(|kind| [(kind, false), (kind, true)]).concat() {
                    let moved = MovedRecord { stored: taken, topic: to, queue_id: 9, properties, is_commit };
                    let mut out = BytesMut::from(&b"before"[..]);
                    moved.encode(&mut out).unwrap();
                    assert_eq!(out[6..], anew(&whole, to, (properties, is_commit)));
                    assert_eq!(out.len() - 6, moved.encoded_len());
                    assert_eq!(moved.sys_flag(), view_flag(&out[6..]));
                }
            }
        }
    }

    fn view_flag(bytes: &[u8]) -> i32 {
        RecordView::parse(bytes).unwrap().sys_flag()
    }

    #[test]
    fn what_is_no_whole_record_is_not_taken_and_what_is_too_long_not_written() {
        let bytes = stored("T", ["127.0.0.1:1", "[::1]:2"]);
        for end in 0..bytes.len() {
            assert!(StoredRecord::take(&bytes[..end]).is_err(), "{end}");
        }
        // A view and a taken record agree on what a record is, whatever a disk has made of it.
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let taken = StoredRecord::take(&damaged).map(|taken| taken.properties());
                let is_topic = RecordView::parse(&damaged)
                    .is_err_and(|error| matches!(error, CodecError::Invalid { what: "topic", .. }));
                if !is_topic {
                    assert_eq!(
                        taken,
                        RecordView::parse(&damaged).map(|view| view.properties()),
                        "{at} {bit}"
                    );
                }
            }
        }
        let long = vec![b'x'; 32_768];
        let stored = StoredRecord::take(&bytes).unwrap();
        let moved = MovedRecord { stored, topic: "T", queue_id: 0, properties: &[&long], is_commit: false };
        let mut out = BytesMut::new();
        assert!(matches!(moved.encode(&mut out), Err(CodecError::TooLong { .. })) && out.is_empty());
    }
}
