//! What the log holds, told to the files derived from it (RocketMQ: `CommitLogDispatcher`).
//!
//! Invariants:
//! - one writer: nobody else appends to queues or index;
//! - dispatching is idempotent: a record that is known already changes nothing;
//! - a queue has no gap: a record that would leave one is an error, and recovery reads the log from further back;
//! - half and rolled-back messages get no unit.

pub mod delay_levels;
pub(crate) mod glance;
mod lag;
mod rebuild;

#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod light_test;
#[cfg(test)]
mod rebuild_test;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use troupemq_codec::filter::tags_code_of;
use troupemq_codec::message::properties::{DELAY, INNER_NUM, TAGS};
use troupemq_codec::message::{RecordView, sys_flag};

use self::delay_levels::DelayLevels;
use self::glance::Glance;
use crate::commit_log::Appended;
use crate::commit_log::batch::{AppendBatch, PendingRecord};
use crate::commit_log::numbering::{LightPlace, Numbers};
use crate::config::StoreConfig;
use crate::consume_queue::{ConsumeQueue, ExtensionUnit, Put, QueueKind, QueueTable, Unit};
use crate::error::StoreError;
use crate::index::{Durable, IndexReader, IndexWriter, key_hashes};
use crate::light;
use crate::retention::SpaceGuard;

pub use self::rebuild::Rebuilt;

/// Topic whose units carry the time of delivery instead of tags.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// Queues of a batch that are told one after the other, each of all its records. A batch has no queue twice as long as
/// it has so few.
const QUEUES_APART_MAX: usize = 8;

/// Writes the queues and the index.
#[derive(Debug)]
pub struct DispatchWriter {
    queues: QueueTable,
    index: Option<IndexWriter>,
    delay_levels: DelayLevels,
    flusher: DispatchFlusher,
    extends: bool,
    to_light_queues: bool,
    filter_bits: Option<Box<dyn FilterBits>>,
    /// Log offset from which on records may lack units, since there was no room for them.
    missed_from: Option<u64>,
    /// Whether queues were made anew in the midst of a walk over the log.
    has_turned: bool,
    space: SpaceGuard,
}

/// Knows which filters a message matches (RocketMQ: `CommitLogDispatcherCalcBitMap`). The queue extension
/// keeps the answer, so that a pull need not look at the message.
pub trait FilterBits: fmt::Debug + Send {
    /// Bloom bits of the filters that the encoded record matches; empty if there is none.
    fn bits(&self, record: &[u8]) -> Vec<u8>;
}

/// Forces queues and index to the disk, from a thread that may wait; clones do the same.
#[derive(Debug, Clone)]
pub struct DispatchFlusher {
    queues: QueueTable,
    index: IndexReader,
    dispatched_to: Arc<AtomicU64>,
}

/// What a flush of queues and index has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchFlushed {
    /// Log offset below which all units and index entries are on the disk.
    pub dispatched_to: u64,
    /// Store time (epoch ms) of the last index entry that is; 0 if there is none.
    pub index_time_ms: i64,
}

impl DispatchWriter {
    /// A writer for the queues of a store, as they stand after recovery, and for its index, of which the
    /// `durable` entries stay.
    pub fn open(
        config: &StoreConfig,
        queues: QueueTable,
        durable: Durable,
    ) -> Result<DispatchWriter, StoreError> {
        let delay_levels = DelayLevels::parse(&config.delay_levels)?;
        let index = IndexWriter::open(config, durable)?;
        let flusher = DispatchFlusher {
            queues: queues.clone(),
            index: index.reader().clone(),
            dispatched_to: Arc::new(AtomicU64::new(queues.log_end().unwrap_or(0))),
        };
        Ok(DispatchWriter {
            queues,
            index: config.index_enabled.then_some(index),
            delay_levels,
            flusher,
            extends: config.queue_extension_enabled,
            to_light_queues: config.dispatches_to_light_queues(),
            filter_bits: None,
            missed_from: None,
            has_turned: false,
            space: SpaceGuard::default(),
        })
    }

    /// From now on the extension of the queues keeps these bits, if it is enabled.
    pub fn keep_filter_bits(&mut self, filter_bits: Box<dyn FilterBits>) {
        self.filter_bits = Some(filter_bits);
    }

    /// From now on a lack of space closes this guard of the log too.
    pub(crate) fn guard_by(&mut self, space: SpaceGuard) {
        self.space = space;
    }

    /// Position in the log up to which everything is in queues and index.
    pub fn dispatched_to(&self) -> u64 {
        self.flusher.dispatched_to()
    }

    /// Looks keys up.
    pub fn index(&self) -> &IndexReader {
        &self.flusher.index
    }

    /// What forces queues and index to the disk.
    pub fn flusher(&self) -> &DispatchFlusher {
        &self.flusher
    }

    /// Tells queues and index of the records of a batch that are stored. Afterwards readers see them.
    ///
    /// # Errors
    /// If there is no room ([`StoreError::is_out_of_space`]): the log is closed until [`Self::catch_up`] could
    /// dispatch them. Any other failure is final.
    pub fn dispatch(&mut self, batch: &AppendBatch, appended: &Appended) -> Result<(), StoreError> {
        self.check_order()?;
        self.place(batch, appended).map_err(|error| self.fell_behind(appended.from, error))
    }

    #[inline]
    fn place(&mut self, batch: &AppendBatch, appended: &Appended) -> Result<(), StoreError> {
        let stored = batch.records.get(..appended.records).unwrap_or(&batch.records);
        // All units first: consumers wait for these, nobody waits for the index.
        self.put_units(batch, stored)?;
        for numbered in &batch.numbered {
            if let (Numbers::Light(places), Some(record)) = (&numbered.numbers, stored.get(numbered.record)) {
                self.put_light(record, places, batch.bytes_of(record))?;
            }
        }
        if self.index.is_some() {
            self.gather_all(batch, stored.len())?;
            self.put_gathered()?;
        }
        self.reached(appended.to);
        Ok(())
    }

    /// Tells queues and index of a record that was read from the log: after a start, and on a slave.
    pub fn dispatch_record(&mut self, record: &RecordView<'_>) -> Result<Put, StoreError> {
        let log_offset = record.log_offset().cast_unsigned();
        let queue = self.queues.open_or_create(record.topic(), record.queue_id())?;
        let put = match sys_flag::is_visible(record.sys_flag()) {
            true => self.put(&queue, self.unit(record, log_offset), record.bytes())?,
            false => Put::Known,
        };
        if matches!(put, Put::Gap { .. }) {
            return Ok(put);
        }
        for (name, queue_offset) in self.light_places(record) {
            let light = self.queues.open_or_create(name, light::QUEUE_ID)?;
            let unit = Unit { queue_offset, count: 1, ..self.unit(record, log_offset) };
            if matches!(self.put(&light, unit, record.bytes())?, Put::Gap { .. }) {
                return Err(light.gap());
            }
        }
        self.put_keys_of(record, &queue)?;
        Ok(put)
    }

    /// The light queues that a record belongs in, if it is to be dispatched to them.
    fn light_places<'a>(&self, record: &RecordView<'a>) -> impl Iterator<Item = (&'a str, i64)> + use<'a> {
        let places = self.to_light_queues.then(|| light::places(record));
        places.into_iter().flatten()
    }

    /// Adds a record that was read from the log to the index: with that it is dispatched.
    fn put_keys_of(&mut self, record: &RecordView<'_>, queue: &ConsumeQueue) -> Result<(), StoreError> {
        let log_offset = record.log_offset().cast_unsigned();
        let [unique_key, keys] = glance::keys(record.properties().as_bytes());
        let hashes = key_hashes(queue.key_seed(), unique_key, keys);
        self.gather_keys(hashes, record.sys_flag(), (log_offset, record.store_timestamp_ms()))?;
        self.put_gathered()?;
        let log_end = log_offset + record.total_size() as u64;
        self.reached(log_end.max(self.dispatched_to()));
        Ok(())
    }

    /// Publishes how far all is dispatched, and brings the head of the index up to it.
    fn reached(&self, log_end: u64) {
        if let Some(index) = &self.index {
            index.write_header();
        }
        // Records that were read from the log may be told of once more, in their batch.
        self.flusher.dispatched_to.fetch_max(log_end, Ordering::AcqRel);
    }

    /// Tells the queues of the records of a batch. Each of a few queues is told of its own at once.
    #[inline]
    fn put_units(&self, batch: &AppendBatch, stored: &[PendingRecord]) -> Result<(), StoreError> {
        let mut visible = stored.iter().filter(|record| record.advance > 0);
        let is_plain = |queue: &Arc<ConsumeQueue>| queue.kind() == QueueKind::Plain && !queue.is_schedule();
        if self.extends || batch.queues.len() > QUEUES_APART_MAX || !batch.queues.iter().all(is_plain) {
            return visible.try_for_each(|record| {
                self.put_unit(record, batch.queue_of(record), batch.bytes_of(record))
            });
        }
        for (place, queue) in (0..).zip(&batch.queues) {
            let of_queue = visible.clone().filter(|record| record.queue == place);
            match queue.put_all(of_queue.map(unit_of))? {
                Put::Appended | Put::Known => {}
                Put::Gap { .. } => return Err(queue.gap()),
            }
        }
        Ok(())
    }

    #[inline]
    fn put_unit(&self, record: &PendingRecord, queue: &ConsumeQueue, bytes: &[u8]) -> Result<(), StoreError> {
        let mut unit = unit_of(record);
        if queue.is_schedule() {
            unit.tags_code = self.due_ms(queue, bytes);
        }
        match self.put(queue, unit, bytes)? {
            Put::Appended | Put::Known => Ok(()),
            Put::Gap { .. } => Err(queue.gap()),
        }
    }

    /// Puts a record into the light queues that it names.
    #[cold]
    fn put_light(
        &self,
        record: &PendingRecord,
        places: &[LightPlace],
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        for LightPlace { queue, queue_offset } in places {
            let unit = Unit {
                queue_offset: *queue_offset,
                log_offset: record.log_offset,
                size: record.len,
                tags_code: record.tags_code,
                count: 1,
            };
            if matches!(self.put(queue, unit, bytes)?, Put::Gap { .. }) {
                return Err(queue.gap());
            }
        }
        Ok(())
    }

    /// Appends a unit; what it cannot hold goes to the extension or is read from the record.
    #[inline]
    fn put(&self, queue: &ConsumeQueue, unit: Unit, record: &[u8]) -> Result<Put, StoreError> {
        if queue.kind() == QueueKind::Plain && !self.extends {
            return queue.put(&unit, 0);
        }
        let store_timestamp_ms = Glance::at(record).map_or(0, |seen| seen.store_timestamp_ms);
        if queue.kind() == QueueKind::Batch || unit.queue_offset != queue.max_offset() {
            return queue.put(&unit, store_timestamp_ms);
        }
        let bits = self.filter_bits.as_ref().map(|filters| filters.bits(record)).unwrap_or_default();
        let extension = ExtensionUnit { tags_code: unit.tags_code, store_timestamp_ms, bits };
        let tags_code = queue.extension()?.append(&extension).unwrap_or_else(|error| {
            tracing::warn!(%error, topic = %queue.topic(), "filter bits are not kept");
            unit.tags_code
        });
        queue.put(&Unit { tags_code, ..unit }, store_timestamp_ms)
    }

    /// Has the index take the first `stored` records of a batch in.
    #[inline]
    fn gather_all(&mut self, batch: &AppendBatch, stored: usize) -> Result<(), StoreError> {
        for (record, hashes) in batch.with_keys(stored) {
            let (bytes, log_offset) = (batch.bytes_of(record), record.log_offset);
            if let Some(hashes) = hashes {
                let Some((sys_flag, store_ms)) = glance::stamp(bytes) else { continue };
                self.gather_keys(hashes.iter().copied(), sys_flag, (log_offset, store_ms))?;
                continue;
            }
            let Some(seen) = Glance::at(bytes) else { continue };
            let [unique_key, keys] = glance::keys(seen.properties);
            let hashes = key_hashes(batch.queue_of(record).key_seed(), unique_key, keys);
            self.gather_keys(hashes, seen.sys_flag, (log_offset, seen.store_timestamp_ms))?;
        }
        Ok(())
    }

    /// Has the index take a record in, unless it says that a message is gone.
    #[inline]
    fn gather_keys(
        &mut self,
        hashes: impl Iterator<Item = u32>,
        sys_flag: i32,
        place: (u64, i64),
    ) -> Result<(), StoreError> {
        match &mut self.index {
            Some(index) if sys_flag::transaction(sys_flag) != sys_flag::TRANSACTION_ROLLBACK => {
                index.gather(hashes, place)
            }
            _ => Ok(()),
        }
    }

    /// Adds the records that it took in.
    fn put_gathered(&mut self) -> Result<(), StoreError> {
        self.index.as_mut().map_or(Ok(()), IndexWriter::put_gathered)
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

    /// When a message of a delay level is due, epoch ms: counted from when it was stored, which only the log knows.
    #[cold]
    fn due_ms(&self, queue: &ConsumeQueue, record: &[u8]) -> i64 {
        let stored_ms = Glance::at(record).map_or(0, |seen| seen.store_timestamp_ms);
        stored_ms + self.delay_levels.delay_ms(queue.queue_id() + 1)
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

/// The unit of a record that no queue of delay levels has.
fn unit_of(record: &PendingRecord) -> Unit {
    Unit {
        queue_offset: record.queue_offset,
        log_offset: record.log_offset,
        size: record.len,
        tags_code: record.tags_code,
        count: record.advance,
    }
}

impl DispatchFlusher {
    /// Position in the log up to which everything is in queues and index.
    pub fn dispatched_to(&self) -> u64 {
        self.dispatched_to.load(Ordering::Acquire)
    }

    /// Forces to the disk what has been dispatched so far; waits for the disk.
    pub fn flush(&self) -> Result<DispatchFlushed, StoreError> {
        let dispatched_to = self.dispatched_to();
        self.queues.flush()?;
        let index_time_ms = self.index.flush()?.unwrap_or(0);
        Ok(DispatchFlushed { dispatched_to, index_time_ms })
    }
}
