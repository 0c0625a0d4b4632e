//! Messages: their stored form, properties, ids, batches and compression.
//!
//! Invariants:
//! - what the broker does with a message reads and writes the stored form in place; [`Message`] is for clients;
//! - a decoded message shares the bytes it was read from: no body is copied unless it was compressed.
//!
//! Contents: [`record`] reads, [`new_record`] writes, [`record_mold`] many that are alike, [`moved`] stores once more,
//! [`properties`], [`sys_flag`], [`message_id`], [`batch`], [`compression`], [`receipt_handle`], [`record_crc`].

use std::net::SocketAddr;

use bytes::Bytes;

use crate::error::CodecError;
use crate::message::compression::EXPANDED_MAX_BYTES;
use crate::text::Text;

pub mod batch;
pub mod compression;
pub mod message_id;
pub mod moved;
pub mod new_record;
pub mod properties;
pub mod receipt_handle;
pub mod record;
pub mod record_crc;
pub mod record_mold;
pub mod sys_flag;

pub use compression::Compression;
pub use message_id::{OffsetId, UniqueId};
pub use moved::{MovedRecord, StoredRecord};
pub use new_record::{NewRecord, fill_holes};
pub use properties::{Properties, PropertiesView};
pub use receipt_handle::{RecallHandle, ReceiptHandle, RetryMark};
pub use record::{RecordView, Scan, scan};
pub use record_mold::RecordMold;

/// Most messages of an inner batch: `INNER_NUM` is a 16-bit number in the consume queue.
pub const INNER_BATCH_MAX: usize = 0x7FFF;

/// A message as a client sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The topic.
    pub topic: Text,
    /// The user's flag.
    pub flag: i32,
    /// The bits of [`sys_flag`]; those of compression are gone once the body is expanded.
    pub sys_flag: i32,
    /// The body, expanded. A body that cannot be expanded stays as it is stored, and `sys_flag` says so.
    pub body: Bytes,
    /// The properties.
    pub properties: Properties,
    /// The queue within the topic.
    pub queue_id: i32,
    /// Position in the queue, in messages.
    pub queue_offset: i64,
    /// Position in the broker's log, in bytes.
    pub log_offset: i64,
    /// Log offset of the half message that this one commits; else 0.
    pub prepared_log_offset: i64,
    /// When the producer made the message: epoch ms.
    pub born_timestamp_ms: i64,
    /// The producer's address as the broker saw it.
    pub born_host: SocketAddr,
    /// When the broker stored the message: epoch ms.
    pub store_timestamp_ms: i64,
    /// The broker's advertised address.
    pub store_host: SocketAddr,
    /// How many times a consumer has sent the message back.
    pub reconsume_times: i32,
    /// CRC of the stored body.
    pub body_crc: i32,
    /// Bytes of the stored record.
    pub stored_bytes: usize,
}

impl Message {
    /// Reads all records of a pull, view or query body, in order; inner batches come as their messages.
    ///
    /// # Errors
    /// The first record that cannot be read makes the whole body unreadable: what was cut off would be lost
    /// without a trace.
    pub fn decode_all(bytes: Bytes) -> Result<Vec<Message>, CodecError> {
        let mut messages = Vec::new();
        let mut at = 0_usize;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let record = RecordView::parse(rest)?;
            at = at.saturating_add(record.total_size());
            let message = Message::from_record(&record, &bytes);
            match message.unwrapped() {
                Some(inner) => messages.extend(inner),
                None => messages.push(message),
            }
        }
        Ok(messages)
    }

    /// Where the message is stored.
    pub fn offset_id(&self) -> OffsetId {
        OffsetId { host: self.store_host, log_offset: self.log_offset }
    }

    /// What users call the message id: the producer's unique id, else the offset id.
    pub fn message_id(&self) -> String {
        match self.properties.get(properties::UNIQ_KEY) {
            Some(id) => id.to_owned(),
            None => self.offset_id().to_string(),
        }
    }

    /// The tags.
    pub fn tags(&self) -> Option<&str> {
        self.properties.get(properties::TAGS)
    }

    /// The index keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.properties.get(properties::KEYS).unwrap_or_default();
        keys.split(properties::KEY_SEPARATOR).filter(|key| !key.is_empty())
    }

    /// The message of a record that lies in `bytes`, an inner batch as one message.
    ///
    /// # Panics
    /// If the record was not read from `bytes`.
    pub fn from_record(record: &RecordView<'_>, bytes: &Bytes) -> Message {
        let topic = Text::from_utf8(bytes.slice_ref(record.topic().as_bytes()));
        let mut message = Message {
            topic: topic.expect("a record is parsed only if its topic is UTF-8"),
            flag: record.flag(),
            sys_flag: record.sys_flag(),
            body: bytes.slice_ref(record.body()),
            properties: Properties::parse(bytes.slice_ref(record.properties().as_bytes())),
            queue_id: record.queue_id(),
            queue_offset: record.queue_offset(),
            log_offset: record.log_offset(),
            prepared_log_offset: record.prepared_log_offset(),
            born_timestamp_ms: record.born_timestamp_ms(),
            born_host: record.born_host(),
            store_timestamp_ms: record.store_timestamp_ms(),
            store_host: record.store_host(),
            reconsume_times: record.reconsume_times(),
            body_crc: record.body_crc(),
            stored_bytes: record.total_size(),
        };
        let plain = compression::plain_body(message.sys_flag, message.body.clone(), EXPANDED_MAX_BYTES);
        if let Ok(body) = plain {
            message.body = body;
            message.sys_flag = sys_flag::without_compression(message.sys_flag);
        }
        message
    }

    /// The messages of an inner batch, with consecutive queue offsets; `None` for any other message and for a
    /// batch that cannot be read, which then stays one message.
    fn unwrapped(&self) -> Option<Vec<Message>> {
        let batch_bits = sys_flag::NEED_UNWRAP | sys_flag::INNER_BATCH;
        if self.sys_flag & batch_bits != batch_bits {
            return None;
        }
        let items: Vec<batch::BatchItem<'_>> = batch::items(&self.body).collect::<Result<_, _>>().ok()?;
        if items.len() > INNER_BATCH_MAX {
            return None;
        }
        let message = |(index, item): (i64, &batch::BatchItem<'_>)| Message {
            queue_offset: self.queue_offset.saturating_add(index),
            flag: item.flag,
            sys_flag: self.sys_flag & !batch_bits,
            body: self.body.slice_ref(item.body),
            properties: Properties::parse(self.body.slice_ref(item.properties.as_bytes())),
            ..self.clone()
        };
        Some((0..).zip(&items).map(message).collect())
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "the bytes of these tests are known")]
mod golden_test;
