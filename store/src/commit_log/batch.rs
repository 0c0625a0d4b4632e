//! Records on their way into the log, encoded back to back, and where they ended up.
//!
//! Invariants:
//! - `records` are in order, without gaps, and cover `bytes`;
//! - a record's holes (queue offset, log offset, store time) are zero until the log fills them;
//! - a batch keeps the queues of its records alive, each counted once, not once for each record;
//! - what is told of a record's keys is what its properties say: who encodes it has read them already;
//! - the buffers are used again: `clear` keeps their memory.

use std::sync::Arc;

use bytes::BytesMut;

use super::numbering::{Numbered, Numbers};
use crate::consume_queue::ConsumeQueue;
use crate::index::{KeyHasher, key_hashes};

/// Queues that were pushed to last among which the next one is looked for; a batch may have one twice.
const NEAR_QUEUES: usize = 16;
/// Instead of a number of keys: nothing was told of them.
const UNTOLD: u16 = u16::MAX;

/// What one `append` takes.
#[derive(Debug, Default)]
pub struct AppendBatch {
    /// Encoded records.
    pub bytes: BytesMut,
    /// One entry for each.
    pub records: Vec<PendingRecord>,
    /// Set by the log: when they were stored, epoch ms. Meaningless before.
    pub stored_ms: i64,
    /// Those that tell their own offsets, in the order of the records.
    pub numbered: Vec<Numbered>,
    /// The queues of the records.
    pub(crate) queues: Vec<Arc<ConsumeQueue>>,
    /// Hashes of the keys that were told, in the order of the records.
    hashes: Vec<u32>,
    hasher: KeyHasher,
}

/// One record of a batch.
#[derive(Debug)]
pub struct PendingRecord {
    /// First byte in the batch.
    pub start: u32,
    /// Bytes.
    pub len: u32,
    /// Which of the batch's queues counts it.
    pub(crate) queue: u32,
    /// Offsets it takes in its queue: 1, the number of inner messages, or 0 for a record that gets no unit.
    pub advance: u16,
    /// How many hashes of keys it has in the batch.
    keys: u16,
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
    pub fn push(&mut self, start: usize, queue: &Arc<ConsumeQueue>, advance: u16, tags_code: i64) {
        let before = self.records.last().map_or(0, PendingRecord::end);
        assert_eq!(start, before, "records of a batch stand back to back");
        let len = u32::try_from(self.bytes.len() - start).expect("a batch is bounded far below 4 GiB");
        let start = u32::try_from(start).expect("a batch is bounded far below 4 GiB");
        let queue = self.place_of(queue);
        self.records.push(PendingRecord {
            start,
            len,
            queue,
            advance,
            keys: UNTOLD,
            tags_code,
            log_offset: 0,
            queue_offset: 0,
        });
    }

    /// Which of its queues this one is; it takes it in if it has not had it lately.
    fn place_of(&mut self, queue: &Arc<ConsumeQueue>) -> u32 {
        let mut near = self.queues.iter().enumerate().rev().take(NEAR_QUEUES);
        let known = near.find(|(_, known)| Arc::ptr_eq(known, queue)).map(|(place, _)| place);
        let place = known.unwrap_or(self.queues.len());
        if known.is_none() {
            self.queues.push(Arc::clone(queue));
        }
        u32::try_from(place).expect("a batch is bounded far below 4 GiB")
    }

    /// Says that the record that was pushed last tells offsets, behind its `properties_bytes` of other properties.
    /// It will be longer then, and the records behind it will begin later.
    pub fn number_last(&mut self, numbers: Numbers, properties_bytes: usize) {
        if let Some(record) = self.records.len().checked_sub(1) {
            self.numbered.push(Numbered::new(record, numbers, properties_bytes));
        }
    }

    /// Says under which keys the record that was pushed last is to be found: the unique key of its properties, and
    /// their keys, with blanks between, text as bytes. The index reads the properties of a record of which this is not
    /// said.
    pub fn tell_keys_of_last(&mut self, unique_key: Option<&[u8]>, keys: Option<&[u8]>) {
        let Some(record) = self.records.last_mut() else { return };
        let seed = self.queues[record.queue as usize].key_seed();
        let before = self.hashes.len();
        self.hashes.extend(unique_key.map(|key| self.hasher.hash(seed, key)));
        if keys.is_some() {
            self.hashes.extend(key_hashes(seed, None, keys));
        }
        match u16::try_from(self.hashes.len() - before) {
            Ok(count) if count != UNTOLD => record.keys = count,
            _ => self.hashes.truncate(before),
        }
    }

    /// The first `records` of the batch, each with the hashes of its keys if they were told.
    pub(crate) fn with_keys(&self, records: usize) -> impl Iterator<Item = (&PendingRecord, Option<&[u32]>)> {
        let mut rest = &self.hashes[..];
        self.records.iter().take(records).map(move |record| {
            let Some(count) = record.keys_told() else { return (record, None) };
            let (hashes, behind) = rest.split_at(count);
            rest = behind;
            (record, Some(hashes))
        })
    }

    /// Forgets the records from this one on.
    pub fn truncate(&mut self, records: usize) {
        let forgotten = self.records.iter().skip(records).filter_map(PendingRecord::keys_told).sum::<usize>();
        self.hashes.truncate(self.hashes.len() - forgotten);
        let end = self.records.get(records).map_or(self.bytes.len(), |record| record.start as usize);
        self.bytes.truncate(end);
        self.records.truncate(records);
        self.numbered.retain(|numbered| numbered.record < records);
    }

    /// The bytes of `record`, one of this batch.
    pub fn bytes_of(&self, record: &PendingRecord) -> &[u8] {
        &self.bytes[record.start as usize..record.end()]
    }

    /// The queue that counts `record`, one of this batch.
    pub fn queue_of(&self, record: &PendingRecord) -> &Arc<ConsumeQueue> {
        &self.queues[record.queue as usize]
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.numbered.clear();
        self.queues.clear();
        self.hashes.clear();
    }
}

impl PendingRecord {
    /// Byte behind the record in the batch.
    pub fn end(&self) -> usize {
        self.start as usize + self.len as usize
    }

    /// How many keys were told of it, if they were.
    fn keys_told(&self) -> Option<usize> {
        (self.keys != UNTOLD).then_some(usize::from(self.keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QueueTable, StoreConfig};

    #[test]
    fn a_record_knows_its_queue_and_the_batch_counts_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let table = QueueTable::load(&StoreConfig::in_dir(dir.path())).unwrap();
        let queues: Vec<_> = (0..40).map(|id| table.open_or_create("T", id).unwrap()).collect();
        let held = |queue: &Arc<ConsumeQueue>| Arc::strong_count(queue);
        let before = held(&queues[0]);
        let mut batch = AppendBatch::default();
        for queue in queues[..3].iter().cycle().take(300).chain(&queues) {
            let start = batch.bytes.len();
            batch.bytes.extend_from_slice(b"record");
            batch.push(start, queue, 1, 0);
        }
        let told = batch.records.iter().map(|record| batch.queue_of(record).queue_id());
        assert!(told.eq((0..3).cycle().take(300).chain(0..40)));
        assert_eq!((batch.records.len(), batch.queues.len(), held(&queues[0])), (340, 40, before + 1));
        batch.clear();
        assert_eq!(held(&queues[0]), before);
    }

    #[test]
    fn keys_that_are_told_stay_with_their_record() {
        let dir = tempfile::tempdir().unwrap();
        let table = QueueTable::load(&StoreConfig::in_dir(dir.path())).unwrap();
        let queue = table.open_or_create("T", 0).unwrap();
        let hash = |key: &str| crate::index::key_hash(queue.key_seed(), key.as_bytes());
        let mut batch = AppendBatch::default();
        batch.tell_keys_of_last(Some(b"nobody's"), None);
        let many = "k ".repeat(usize::from(UNTOLD));
        let told =
            [Some((Some("u0"), Some(" a  b "))), None, Some((None, None)), Some((Some("u3"), Some(&*many)))];
        for keys in told.into_iter().chain([Some((Some("u4"), Some("a")))]) {
            let start = batch.bytes.len();
            batch.bytes.extend_from_slice(b"record");
            batch.push(start, &queue, 1, 0);
            if let Some((unique_key, keys)) = keys {
                batch.tell_keys_of_last(unique_key.map(str::as_bytes), keys.map(str::as_bytes));
            }
        }
        let seen = |batch: &AppendBatch, records| {
            batch.with_keys(records).map(|(_, keys)| keys.map(<[u32]>::to_vec)).collect::<Vec<_>>()
        };
        let first = Some(vec![hash("u0"), hash("a"), hash("b")]);
        let all = [first.clone(), None, Some(vec![]), None, Some(vec![hash("u4"), hash("a")])];
        assert_eq!(seen(&batch, 5), all);
        assert_eq!(seen(&batch, 2), all[..2]);
        batch.truncate(4);
        assert_eq!((seen(&batch, 9), batch.hashes.len()), (all[..4].to_vec(), 3));
        batch.truncate(0);
        assert!(batch.hashes.is_empty());
    }
}
