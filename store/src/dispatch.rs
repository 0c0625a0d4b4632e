//! What the log holds, told to the files derived from it (RocketMQ: `CommitLogDispatcher`).
//!
//! Invariants:
//! - one writer: nobody else appends to queues or index;
//! - dispatching is idempotent: a record that is known already changes nothing;
//! - a queue has no gap: a record that would leave one is an error, and recovery reads the log from further back;
//! - half and rolled-back messages get no unit.

pub mod delay_levels;

use troupemq_codec::filter::tags::tags_code;
use troupemq_codec::message::RecordView;
use troupemq_codec::message::properties::{DELAY, INNER_NUM, TAGS};
use troupemq_codec::message::sys_flag;

use self::delay_levels::DelayLevels;
use crate::config::StoreConfig;
use crate::consume_queue::{Put, QueueTable, Unit};
use crate::error::StoreError;

/// Topic whose units carry the time of delivery instead of tags.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// Writes the queues and the index.
#[derive(Debug)]
pub struct DispatchWriter {
    queues: QueueTable,
    delay_levels: DelayLevels,
    dispatched_to: u64,
}

impl DispatchWriter {
    /// A writer for the queues of a store, as they stand after recovery.
    pub fn open(config: &StoreConfig, queues: QueueTable) -> Result<DispatchWriter, StoreError> {
        let delay_levels = DelayLevels::parse(&config.delay_levels)?;
        let dispatched_to = queues.log_end().unwrap_or(0);
        Ok(DispatchWriter { queues, delay_levels, dispatched_to })
    }

    /// Position in the log up to which everything is in queues and index.
    pub fn dispatched_to(&self) -> u64 {
        self.dispatched_to
    }

    /// Tells queues and index of a record that was read from the log: after a start, and on a slave.
    pub fn dispatch_record(&mut self, record: &RecordView<'_>) -> Result<Put, StoreError> {
        let log_offset = record.log_offset().cast_unsigned();
        let put = self.put_unit(record, log_offset)?;
        if !matches!(put, Put::Gap { .. }) {
            self.dispatched_to = self.dispatched_to.max(log_offset + record.total_size() as u64);
        }
        Ok(put)
    }

    fn put_unit(&self, record: &RecordView<'_>, log_offset: u64) -> Result<Put, StoreError> {
        if !sys_flag::is_visible(record.sys_flag()) {
            return Ok(Put::Known);
        }
        let queue = self.queues.open_or_create(record.topic(), record.queue_id())?;
        let count = record.properties().get(INNER_NUM).and_then(|count| count.parse().ok());
        let is_inner_batch = record.sys_flag() & sys_flag::INNER_BATCH != 0;
        let unit = Unit {
            queue_offset: record.queue_offset(),
            log_offset,
            size: u32::try_from(record.total_size()).expect("records are shorter than segments"),
            tags_code: self.tags_code(record),
            count: count.filter(|count| is_inner_batch && *count > 0).unwrap_or(1),
        };
        queue.put(&unit, record.store_timestamp_ms())
    }

    fn tags_code(&self, record: &RecordView<'_>) -> i64 {
        let [tags, delay] = record.properties().pick([TAGS, DELAY]);
        match delay.and_then(|level| level.parse::<i32>().ok()).filter(|level| *level > 0) {
            Some(level) if record.topic() == SCHEDULE_TOPIC => {
                record.store_timestamp_ms() + self.delay_levels.delay_ms(level)
            }
            _ => tags.map_or(0, tags_code),
        }
    }
}
