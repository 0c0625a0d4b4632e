//! What the log holds, told to the files derived from it (RocketMQ: `CommitLogDispatcher`).
//!
//! Invariants:
//! - one writer: nobody else appends to queues or index;
//! - dispatching is idempotent: a record that is known already changes nothing;
//! - a queue has no gap: a record that would leave one is an error, and recovery reads the log from further back;
//! - half and rolled-back messages get no unit.

pub mod delay_levels;

use troupemq_codec::filter::tags_code_of;
use troupemq_codec::message::properties::{DELAY, INNER_NUM, KEYS, TAGS, UNIQ_KEY};
use troupemq_codec::message::{RecordView, sys_flag};

use self::delay_levels::DelayLevels;
use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, Put, QueueTable, Trust, Unit};
use crate::error::StoreError;
use crate::index::{IndexReader, IndexWriter, Keys};

/// Topic whose units carry the time of delivery instead of tags.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// Writes the queues and the index.
#[derive(Debug)]
pub struct DispatchWriter {
    queues: QueueTable,
    index: Option<IndexWriter>,
    index_reader: IndexReader,
    delay_levels: DelayLevels,
    dispatched_to: u64,
}

impl DispatchWriter {
    /// A writer for the queues of a store, as they stand after recovery, and for its index. After an unclean
    /// stop the index keeps only what was stored up to `index_durable_ms` (from the check point).
    pub fn open(
        config: &StoreConfig,
        queues: QueueTable,
        trust: Trust,
        index_durable_ms: i64,
    ) -> Result<DispatchWriter, StoreError> {
        let delay_levels = DelayLevels::parse(&config.delay_levels)?;
        let dispatched_to = queues.log_end().unwrap_or(0);
        let index = IndexWriter::open(config, trust, index_durable_ms)?;
        let index_reader = index.reader().clone();
        let index = config.index_enabled.then_some(index);
        Ok(DispatchWriter { queues, index, index_reader, delay_levels, dispatched_to })
    }

    /// Position in the log up to which everything is in queues and index.
    pub fn dispatched_to(&self) -> u64 {
        self.dispatched_to
    }

    /// Looks keys up.
    pub fn index(&self) -> &IndexReader {
        &self.index_reader
    }

    /// Tells queues and index of a record that was read from the log: after a start, and on a slave.
    pub fn dispatch_record(&mut self, record: &RecordView<'_>) -> Result<Put, StoreError> {
        let log_offset = record.log_offset().cast_unsigned();
        let queue = self.queues.open_or_create(record.topic(), record.queue_id())?;
        let put = match sys_flag::is_visible(record.sys_flag()) {
            true => queue.put(&self.unit(record, log_offset), record.store_timestamp_ms())?,
            false => Put::Known,
        };
        if matches!(put, Put::Gap { .. }) {
            return Ok(put);
        }
        let [unique_key, keys] = record.properties().pick([UNIQ_KEY, KEYS]);
        let store_timestamp_ms = record.store_timestamp_ms();
        let keys = Keys { unique_key, keys, log_offset, store_timestamp_ms };
        self.put_keys(&queue, record.sys_flag(), &keys)?;
        self.dispatched_to = self.dispatched_to.max(log_offset + record.total_size() as u64);
        Ok(put)
    }

    /// Adds a record to the index, unless it says that a message is gone.
    #[inline]
    fn put_keys(&mut self, queue: &ConsumeQueue, sys_flag: i32, keys: &Keys<'_>) -> Result<(), StoreError> {
        match &mut self.index {
            Some(index) if sys_flag::transaction(sys_flag) != sys_flag::TRANSACTION_ROLLBACK => {
                index.put(queue.key_seed(), keys)
            }
            _ => Ok(()),
        }
    }

    fn unit(&self, record: &RecordView<'_>, log_offset: u64) -> Unit {
        let is_inner_batch = record.sys_flag() & sys_flag::INNER_BATCH != 0;
        let count = record.properties().get(INNER_NUM).and_then(|count| count.parse().ok());
        Unit {
            queue_offset: record.queue_offset(),
            log_offset,
            size: u32::try_from(record.total_size()).expect("records are shorter than segments"),
            tags_code: self.tags_code(record),
            count: count.filter(|count| is_inner_batch && *count > 0).unwrap_or(1),
        }
    }

    fn tags_code(&self, record: &RecordView<'_>) -> i64 {
        let [tags, delay] = record.properties().pick([TAGS, DELAY]);
        match delay.and_then(|level| level.parse::<i32>().ok()).filter(|level| *level > 0) {
            Some(level) if record.topic() == SCHEDULE_TOPIC => {
                record.store_timestamp_ms() + self.delay_levels.delay_ms(level)
            }
            _ => tags_code_of(tags),
        }
    }
}
