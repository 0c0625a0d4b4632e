//! Records on their way into the log, encoded back to back, and where they ended up.
//!
//! Invariants:
//! - `records` are in order, without gaps, and cover `bytes`;
//! - a record's holes (queue offset, log offset, store time) are zero until the log fills them;
//! - the buffers are used again: `clear` keeps their memory.

use std::sync::Arc;

use bytes::BytesMut;

use super::numbering::{Numbered, Numbers};
use crate::consume_queue::ConsumeQueue;

/// What one `append` takes.
#[derive(Debug, Default)]
pub struct AppendBatch {
    /// Encoded records.
    pub bytes: BytesMut,
    /// One entry for each.
    pub records: Vec<PendingRecord>,
    /// Those that tell their own offsets, in the order of the records.
    pub numbered: Vec<Numbered>,
}

/// One record of a batch.
#[derive(Debug)]
pub struct PendingRecord {
    /// First byte in the batch.
    pub start: u32,
    /// Bytes.
    pub len: u32,
    /// Queue that counts it.
    pub queue: Arc<ConsumeQueue>,
    /// Offsets it takes in its queue: 1, the number of inner messages, or 0 for a record that gets no unit.
    pub advance: u16,
    /// What the unit carries for filters, or the time of delivery for a delayed message.
    pub tags_code: i64,
    /// Set by the log: where the record is. Meaningless before.
    pub log_offset: u64,
    /// Set by the log: its offset in the queue. Meaningless before.
    pub queue_offset: i64,
}

impl AppendBatch {
    /// Adds the record that was encoded at the end of `bytes`, from `start` on.
    ///
    /// # Panics
    /// If it does not begin where the record before ends, or the batch is longer than 4 GiB.
    pub fn push(&mut self, start: usize, queue: Arc<ConsumeQueue>, advance: u16, tags_code: i64) {
        let before = self.records.last().map_or(0, PendingRecord::end);
        assert_eq!(start, before, "records of a batch stand back to back");
        let len = u32::try_from(self.bytes.len() - start).expect("a batch is bounded far below 4 GiB");
        let start = u32::try_from(start).expect("a batch is bounded far below 4 GiB");
        self.records.push(PendingRecord {
            start,
            len,
            queue,
            advance,
            tags_code,
            log_offset: 0,
            queue_offset: 0,
        });
    }

    /// Says that the record that was pushed last tells offsets, behind its `properties_bytes` of other properties.
    /// It will be longer then, and the records behind it will begin later.
    pub fn number_last(&mut self, numbers: Numbers, properties_bytes: usize) {
        if let Some(record) = self.records.len().checked_sub(1) {
            self.numbered.push(Numbered::new(record, numbers, properties_bytes));
        }
    }

    /// Forgets the records from this one on.
    pub fn truncate(&mut self, records: usize) {
        let end = self.records.get(records).map_or(self.bytes.len(), |record| record.start as usize);
        self.bytes.truncate(end);
        self.records.truncate(records);
        self.numbered.retain(|numbered| numbered.record < records);
    }

    /// The bytes of `record`, one of this batch.
    pub fn bytes_of(&self, record: &PendingRecord) -> &[u8] {
        &self.bytes[record.start as usize..record.end()]
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.numbered.clear();
    }
}

impl PendingRecord {
    /// Byte behind the record in the batch.
    pub fn end(&self) -> usize {
        self.start as usize + self.len as usize
    }
}
