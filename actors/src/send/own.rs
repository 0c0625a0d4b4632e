//! Messages the broker stores itself: sent back, delayed, transactional, replies.
//!
//! Invariants:
//! - they go the way of a client's send: one append, dispatched and flushed before the answer;
//! - the messages of one call are stored together, in their order, or their tail is refused with its cause;
//! - the buffers of few batches are kept by each thread, and none of them is long;
//! - no limit of clients applies but the format's: what was accepted once is never lost to a smaller limit, nor to what
//!   the broker wants to note in it.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BytesMut;
use troupemq_codec::message::properties::PROPERTIES_MAX_BYTES;
use troupemq_codec::message::{MovedRecord, NewRecord, Properties, sys_flag};
use troupemq_codec::{CodecError, ResponseCode};
use troupemq_store::{AppendBatch, ConsumeQueue, StoreError};

use crate::cast::BrokerCast;
use crate::commit_log::{Append, Done, Outcome, not_taken};
use crate::directory::QueueView;
use crate::held::hold;
use crate::net::Refusal;
use crate::send::light;
use crate::send::slow::Stages;

/// Queues of messages stored together that are remembered.
const FOUND_AGAIN: usize = 8;

/// Batches of one thread whose buffers are kept: who stores much together does so again and again, and memory that is
/// given back and asked for anew each time is slow.
const SPARE_MAX: usize = 2;
/// Bytes of the longest buffer that is kept.
const SPARE_BYTES: usize = 2 << 20;

thread_local! {
    static SPARE: RefCell<Vec<AppendBatch>> = const { RefCell::new(Vec::new()) };
}

/// A message of the broker's own.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a, R = NewRecord<'a>> {
    /// The record. Its topic must exist; its properties are stored as they are.
    pub record: R,
    /// What its consume-queue unit carries: the hash of the tags, or the time of delivery of a delayed one.
    pub tags_code: i64,
    /// The unique key and the keys that its properties say, where they were read anyway; none if they were not.
    pub keys: Option<[Option<&'a [u8]>; 2]>,
}

/// What the broker stores: a record that is new, or one that is stored once more.
pub trait OwnRecord<'a> {
    /// Its topic.
    fn topic(&self) -> &'a str;
    /// The queue within the topic.
    fn queue_id(&self) -> i32;
    /// The bits of [`sys_flag`].
    fn sys_flag(&self) -> i32;
    /// Pieces of property text.
    fn properties(&self) -> &'a [&'a [u8]];
    /// Bytes of the stored property text.
    fn properties_len(&self) -> usize;
    /// Bytes of the encoded record.
    fn encoded_len(&self) -> usize;
    /// Appends it to `out`.
    ///
    /// # Errors
    /// What the format cannot carry.
    fn encode(&self, out: &mut BytesMut) -> Result<(), CodecError>;
}

/// What both kinds of records have by the same names.
macro_rules! own_record {
    ($kind:ident, $sys_flag:expr) => {
        impl<'a> OwnRecord<'a> for $kind<'a> {
            fn topic(&self) -> &'a str {
                self.topic
            }

            fn queue_id(&self) -> i32 {
                self.queue_id
            }

            fn sys_flag(&self) -> i32 {
                $sys_flag(self)
            }

            fn properties(&self) -> &'a [&'a [u8]] {
                self.properties
            }

            fn properties_len(&self) -> usize {
                $kind::properties_len(self)
            }

            fn encoded_len(&self) -> usize {
                $kind::encoded_len(self)
            }

            fn encode(&self, out: &mut BytesMut) -> Result<(), CodecError> {
                $kind::encode(self, out)
            }
        }
    };
}

own_record!(NewRecord, |record: &NewRecord<'_>| record.sys_flag);
own_record!(MovedRecord, MovedRecord::sys_flag);

/// Where a message of the broker's own was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredOwn {
    /// Its place in the log, in bytes.
    pub log_offset: u64,
    /// Its place in its queue.
    pub queue_offset: i64,
    /// Bytes of its record.
    pub size: u32,
    /// SUCCESS, or FLUSH_DISK_TIMEOUT when it is stored and the disk did not confirm in time.
    pub code: ResponseCode,
}

/// Messages of the broker's own that are stored together.
pub struct OwnBatch<'c, 'a> {
    cast: &'c BrokerCast,
    batch: AppendBatch,
    queues: Vec<Arc<QueueView>>,
    found: Found<'a>,
    has_light: bool,
}

/// Stores messages of the broker's own and answers where they are, once they are visible and, in sync mode,
/// on the disk. When only the first of them could be stored, the answer is shorter than what was wanted.
pub async fn store<'a, R: OwnRecord<'a>>(
    cast: &BrokerCast,
    messages: &[Own<'a, R>],
) -> Result<Vec<StoredOwn>, Refusal> {
    let bytes = messages.iter().map(|message| message.record.encoded_len()).sum();
    let mut batch = OwnBatch::with_room(cast, messages.len(), bytes);
    for message in messages {
        if !batch.add(message)? {
            break;
        }
    }
    batch.store().await
}

impl<'c, 'a> OwnBatch<'c, 'a> {
    /// An empty one, with room for so many records of so many bytes.
    pub fn with_room(cast: &'c BrokerCast, records: usize, bytes: usize) -> OwnBatch<'c, 'a> {
        let mut batch = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        batch.bytes.reserve(bytes);
        batch.records.reserve(records);
        let has_light = cast.store_config.load().dispatches_to_light_queues();
        OwnBatch { cast, batch, queues: Vec::new(), found: Found::default(), has_light }
    }

    /// Adds a message; false if it cannot be stored: then the batch ends in front of it.
    ///
    /// # Errors
    /// Why the first message cannot be stored.
    pub fn add<R: OwnRecord<'a>>(&mut self, message: &Own<'a, R>) -> Result<bool, Refusal> {
        let record = &message.record;
        let start = self.batch.bytes.len();
        let encoded = self.found.queue_of(self.cast, record).and_then(|queue| {
            record.encode(&mut self.batch.bytes).map(|()| queue).map_err(|error| {
                Refusal::new(ResponseCode::MESSAGE_ILLEGAL, format!("the message is illegal: {error}"))
            })
        });
        let queue = match encoded {
            Ok(queue) => queue,
            Err(refusal) if self.batch.records.is_empty() => return Err(refusal),
            Err(refusal) => {
                let (topic, remark) = (record.topic(), refusal.remark);
                tracing::warn!(topic, remark, "only the messages in front of one are stored");
                self.batch.bytes.truncate(start);
                return Ok(false);
            }
        };
        let advance = u16::from(sys_flag::is_visible(record.sys_flag()));
        self.batch.push(start, &queue.units, advance, message.tags_code);
        if let Some([unique_key, keys]) = message.keys {
            self.batch.tell_keys_of_last(unique_key, keys);
        }
        let light = if self.has_light { light::queues_of(self.cast, record) } else { Vec::new() };
        if !light.is_empty() {
            self.batch.number_last(light::numbers(&light), record.properties_len());
        }
        for view in queue.new_view.take().into_iter().chain(light) {
            if !self.queues.iter().any(|known| Arc::ptr_eq(known, &view)) {
                self.queues.push(view);
            }
        }
        Ok(true)
    }

    /// Stores them, see [`store`].
    ///
    /// # Errors
    /// Why none is stored.
    pub async fn store(self) -> Result<Vec<StoredOwn>, Refusal> {
        let OwnBatch { cast, batch, queues, .. } = self;
        if batch.records.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, waiting) = hold();
        let stages = Stages::default();
        let append = Append { batch, queues, wait_for_disk: true, credit: None, stages, reply };
        if let Err(undelivered) = cast.commit_log.try_send(append) {
            let refusal = not_taken(&undelivered);
            undelivered.into_inner().refuse(refusal);
        }
        let Done { batch, outcome, .. } = waiting.await.map_err(|_lost| Refusal::gone("CommitLog"))?;
        let stored = outcome.stored(batch.records.len());
        let code = match outcome {
            Outcome::Stored => ResponseCode::SUCCESS,
            Outcome::NotFlushedInTime => ResponseCode::FLUSH_DISK_TIMEOUT,
            Outcome::StoredInPart(1.., _) => ResponseCode::SUCCESS,
            Outcome::StoredInPart(0, refusal) | Outcome::Refused(refusal) => return Err(refusal),
        };
        let stored = batch.records[..stored].iter().map(|record| StoredOwn {
            log_offset: record.log_offset,
            queue_offset: record.queue_offset,
            size: record.len,
            code,
        });
        let stored = stored.collect();
        give_back(batch);
        Ok(stored)
    }
}

/// Keeps the buffers of a batch for those that come.
fn give_back(mut batch: AppendBatch) {
    if batch.bytes.capacity() <= SPARE_BYTES {
        batch.clear();
        SPARE.with_borrow_mut(|spare| {
            spare.truncate(SPARE_MAX - 1);
            spare.push(batch);
        });
    }
}

/// Sets a property if there is room for it in a record; tells whether it is set.
pub fn set_if_room(properties: &mut Properties, name: &str, value: &str) -> bool {
    set_within(properties, name, value, PROPERTIES_MAX_BYTES)
}

/// The same where a record's properties may have so many bytes.
pub fn set_within(properties: &mut Properties, name: &str, value: &str, max_bytes: usize) -> bool {
    let mut longer = properties.clone();
    longer.set(name, value);
    let fits = longer.encoded().len() <= max_bytes;
    if fits {
        *properties = longer;
    }
    fits
}

/// A queue that messages go to.
struct FoundQueue {
    units: Arc<ConsumeQueue>,
    /// Its view, if its topic has (still) so many queues, until a message for it was taken in.
    new_view: Option<Arc<QueueView>>,
}

/// The queues that messages stored together go to: mostly few, again and again.
#[derive(Default)]
struct Found<'a>(Vec<(&'a str, i32, FoundQueue)>);

impl<'a> Found<'a> {
    fn queue_of(
        &mut self,
        cast: &BrokerCast,
        record: &impl OwnRecord<'a>,
    ) -> Result<&mut FoundQueue, Refusal> {
        let (topic, queue_id) = (record.topic(), record.queue_id());
        let is_it = |known: &(&str, i32, FoundQueue)| known.1 == queue_id && known.0 == topic;
        let near = self.0.len().saturating_sub(FOUND_AGAIN);
        let at = match self.0[near..].iter().rposition(is_it) {
            Some(at) => near + at,
            None => {
                self.0.push((topic, queue_id, queue_of(cast, topic, queue_id)?));
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[at].2)
    }
}

/// A queue of a topic.
fn queue_of(cast: &BrokerCast, name: &str, queue_id: i32) -> Result<FoundQueue, Refusal> {
    let failed = |error: StoreError| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string());
    let topic = cast.topic(name)?;
    match cast.directory.queue(&topic, queue_id, &cast.queues).map_err(failed)? {
        Some(view) => Ok(FoundQueue { units: view.units.clone(), new_view: Some(view) }),
        None if queue_id >= 0 => {
            let units = cast.queues.open_or_create(name, queue_id).map_err(failed)?;
            Ok(FoundQueue { units, new_view: None })
        }
        None => {
            let remark = format!("queue {queue_id} of topic[{name}] is illegal");
            Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_few_buffers_and_none_that_is_long() {
        let batch = |bytes| {
            let mut batch = AppendBatch::default();
            batch.bytes.reserve(bytes);
            batch.bytes.extend_from_slice(b"of the last one");
            batch
        };
        let kept =
            || SPARE.with_borrow(|spare| spare.iter().map(|batch| batch.bytes.capacity()).sum::<usize>());
        give_back(batch(SPARE_BYTES + 1));
        assert_eq!(kept(), 0);
        (0..SPARE_MAX + 3).for_each(|_| give_back(batch(1000)));
        assert_eq!(kept(), SPARE_MAX * 1000);
        let spare = SPARE.with_borrow_mut(Vec::pop).expect("one is kept");
        assert!(spare.bytes.is_empty() && spare.records.is_empty());
    }

    #[test]
    fn a_property_is_set_where_there_is_room_for_it_to_the_byte() {
        // A name, two marks and a value that leave 26 bytes.
        let value = "v".repeat(PROPERTIES_MAX_BYTES - 26 - 3);
        let mut properties = Properties::default();
        assert!(set_if_room(&mut properties, "n", &value));
        assert!(!set_if_room(&mut properties, "TRANSACTION_CHECK_TIMES", "10"), "27 bytes");
        assert_eq!(properties.encoded().len(), PROPERTIES_MAX_BYTES - 26);
        assert!(set_if_room(&mut properties, "TRANSACTION_CHECK_TIMES", "1"), "26 bytes");
        assert!(set_if_room(&mut properties, "TRANSACTION_CHECK_TIMES", "2"), "in place of the former");
        assert_eq!(properties.get("TRANSACTION_CHECK_TIMES"), Some("2"));
    }
}
