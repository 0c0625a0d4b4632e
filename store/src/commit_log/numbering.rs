//! Offsets that stand as text in the properties of a record, though only the log knows them: `INNER_BASE` of an
//! inner batch, `INNER_MULTI_QUEUE_OFFSET` of a message in light queues (RocketMQ: `BatchConsumeQueue`,
//! `MultiDispatch`).
//!
//! Invariants:
//! - the text is written before the log looks for room, behind all other properties;
//! - a batch that is offered to the log again is numbered anew;
//! - light queues go on behind what was stored, and only behind that.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;
use troupemq_codec::message::properties::{
    INNER_BASE, INNER_MULTI_QUEUE_OFFSET, PAIR_END, PROPERTIES_MAX_BYTES, put_property,
};

use super::batch::{AppendBatch, PendingRecord};
use crate::consume_queue::ConsumeQueue;
use crate::error::StoreError;

/// A record of a batch that tells its offsets.
#[derive(Debug)]
pub struct Numbered {
    /// Its index in the batch.
    pub record: usize,
    /// Which offsets.
    pub numbers: Numbers,
    /// Bytes of its other properties.
    properties_bytes: usize,
    /// Bytes of the text that was written behind them.
    text_bytes: usize,
}

/// Which offsets a record tells.
#[derive(Debug)]
pub enum Numbers {
    /// The one of the first message of an inner batch.
    InnerBase,
    /// The ones in light queues, in the order in which the message names them.
    Light(Vec<LightPlace>),
}

/// The place of a message in one more queue.
#[derive(Debug)]
pub struct LightPlace {
    /// The queue.
    pub queue: Arc<ConsumeQueue>,
    /// Set by the log. Meaningless before.
    pub queue_offset: i64,
}

impl LightPlace {
    /// A place that the log has yet to assign.
    pub fn of(queue: Arc<ConsumeQueue>) -> LightPlace {
        LightPlace { queue, queue_offset: 0 }
    }
}

/// Most bytes that the numbers of one record take among its properties.
pub fn text_max_bytes(places: usize) -> usize {
    const NAME_BYTES: usize = INNER_MULTI_QUEUE_OFFSET.len() + 3;
    const OFFSET_BYTES: usize = 20;
    NAME_BYTES.saturating_add(places.saturating_mul(OFFSET_BYTES))
}

impl Numbered {
    pub(super) fn new(record: usize, numbers: Numbers, properties_bytes: usize) -> Numbered {
        Numbered { record, numbers, properties_bytes, text_bytes: 0 }
    }

    /// The text for the properties.
    fn text(&self, base: i64) -> BytesMut {
        let mut text = BytesMut::new();
        match &self.numbers {
            Numbers::InnerBase => put_property(&mut text, INNER_BASE, &base.to_string()),
            Numbers::Light(places) => {
                let offsets: Vec<String> =
                    places.iter().map(|place| place.queue_offset.to_string()).collect();
                put_property(&mut text, INNER_MULTI_QUEUE_OFFSET, &offsets.join(","));
            }
        }
        text
    }
}

/// Writes the offsets that the records will get into their properties.
pub(super) fn number(batch: &mut AppendBatch) -> Result<(), StoreError> {
    assign_light(batch);
    let mut numbered = batch.numbered.iter_mut().peekable();
    let mut bytes = BytesMut::with_capacity(batch.bytes.len() + 64 * numbered.len());
    let mut bases: BTreeMap<usize, i64> = BTreeMap::new();
    for (index, record) in batch.records.iter_mut().enumerate() {
        let queue = &batch.queues[record.queue as usize];
        let next = bases.entry(Arc::as_ptr(queue).addr()).or_insert_with(|| queue.next_offset());
        let base = *next;
        *next += i64::from(record.advance);
        let encoded = &batch.bytes[record.start as usize..record.end()];
        let start = bytes.len();
        match numbered.next_if(|numbered| numbered.record == index) {
            None => bytes.extend_from_slice(encoded),
            Some(numbered) => write(&mut bytes, encoded, numbered, base)?,
        }
        relocate(record, start, bytes.len());
    }
    batch.bytes = bytes;
    Ok(())
}

/// Lets the light queues go on behind the first `records` of the batch.
pub(super) fn advance(batch: &AppendBatch, records: usize) {
    for numbered in batch.numbered.iter().filter(|numbered| numbered.record < records) {
        let Numbers::Light(places) = &numbered.numbers else { continue };
        for place in places {
            place.queue.assign_next_offset(place.queue_offset + 1);
        }
    }
}

fn assign_light(batch: &mut AppendBatch) {
    let mut nexts: BTreeMap<usize, i64> = BTreeMap::new();
    for numbered in &mut batch.numbered {
        let Numbers::Light(places) = &mut numbered.numbers else { continue };
        let next_of = |queue: &Arc<ConsumeQueue>| Arc::as_ptr(queue).addr();
        for place in places.iter_mut() {
            let next = nexts.entry(next_of(&place.queue)).or_insert_with(|| place.queue.next_offset());
            place.queue_offset = *next;
        }
        // A queue that is named twice has the message once.
        for place in places {
            nexts.insert(next_of(&place.queue), place.queue_offset + 1);
        }
    }
}

/// Copies an encoded record with the text behind its properties.
fn write(bytes: &mut BytesMut, encoded: &[u8], numbered: &mut Numbered, base: i64) -> Result<(), StoreError> {
    let start = bytes.len();
    let old = encoded.len() - numbered.text_bytes;
    bytes.extend_from_slice(&encoded[..old]);
    if numbered.properties_bytes > 0 && bytes.last() != Some(&PAIR_END) {
        bytes.extend_from_slice(&[PAIR_END]);
    }
    bytes.extend_from_slice(&numbered.text(base));
    numbered.text_bytes = bytes.len() - start - old;
    let properties = numbered.properties_bytes + numbered.text_bytes;
    let Some(word) = u16::try_from(properties).ok().filter(|_| properties <= PROPERTIES_MAX_BYTES) else {
        let (len, max) = (properties as u64, PROPERTIES_MAX_BYTES as u64);
        return Err(StoreError::TooLong { what: "properties", len, max });
    };
    let at = start + old - numbered.properties_bytes - 2;
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    let total = u32::try_from(bytes.len() - start).expect("a record is bounded far below 4 GiB");
    bytes[start..start + 4].copy_from_slice(&total.to_be_bytes());
    Ok(())
}

fn relocate(record: &mut PendingRecord, start: usize, end: usize) {
    let word = |value| u32::try_from(value).expect("a batch is bounded far below 4 GiB");
    (record.start, record.len) = (word(start), word(end - start));
}

#[cfg(test)]
mod tests {
    use troupemq_codec::message::{NewRecord, RecordView, sys_flag};

    use super::*;
    use crate::{QueueTable, StoreConfig};

    fn record(batch: &mut AppendBatch, queue: &Arc<ConsumeQueue>, advance: u16, numbers: Option<Numbers>) {
        let record = NewRecord {
            sys_flag: sys_flag::INNER_BATCH,
            topic: "T",
            body: b"body",
            properties: &[b"a\x01b"],
            ..NewRecord::PLAIN
        };
        let start = batch.bytes.len();
        record.encode(&mut batch.bytes).unwrap();
        batch.push(start, queue, advance, 0);
        if let Some(numbers) = numbers {
            batch.number_last(numbers, record.properties_len());
        }
    }

    fn properties(batch: &AppendBatch) -> Vec<String> {
        let text = |record: &PendingRecord| {
            let bytes = batch.bytes_of(record);
            let view = RecordView::parse(bytes).unwrap();
            assert_eq!(view.body(), b"body");
            String::from_utf8(view.properties().as_bytes().to_vec()).unwrap()
        };
        batch.records.iter().map(text).collect()
    }

    #[test]
    fn an_inner_batch_tells_the_offset_of_its_first_message_each_time_it_is_offered() {
        let dir = tempfile::tempdir().unwrap();
        let table = QueueTable::load(&StoreConfig::in_dir(dir.path())).unwrap();
        let queue = table.open_or_create("T", 0).unwrap();
        queue.assign_next_offset(7);
        let mut batch = AppendBatch::default();
        record(&mut batch, &queue, 3, Some(Numbers::InnerBase));
        record(&mut batch, &queue, 1, None);
        record(&mut batch, &queue, 90, Some(Numbers::InnerBase));
        number(&mut batch).unwrap();
        let wanted = |bases: [&str; 2]| {
            let [first, third] = bases.map(|base| format!("a\u{1}b\u{2}INNER_BASE\u{1}{base}\u{2}"));
            vec![first, "a\u{1}b".to_owned(), third]
        };
        assert_eq!(properties(&batch), wanted(["7", "11"]));
        queue.assign_next_offset(1000);
        number(&mut batch).unwrap();
        assert_eq!(properties(&batch), wanted(["1000", "1004"]));
    }

    #[test]
    fn light_queues_count_for_themselves_and_go_on_behind_what_was_stored() {
        let dir = tempfile::tempdir().unwrap();
        let table = QueueTable::load(&StoreConfig::in_dir(dir.path())).unwrap();
        let queue = table.open_or_create("T", 0).unwrap();
        let [one, two] = ["%LMQ%1", "%LMQ%2"].map(|name| table.open_or_create(name, 0).unwrap());
        two.assign_next_offset(40);
        let place = |queue: &Arc<ConsumeQueue>| LightPlace::of(queue.clone());
        let mut batch = AppendBatch::default();
        let first = vec![place(&one), place(&two), place(&one)];
        record(&mut batch, &queue, 1, Some(Numbers::Light(first)));
        record(&mut batch, &queue, 1, Some(Numbers::Light(vec![place(&two)])));
        number(&mut batch).unwrap();
        assert_eq!(
            properties(&batch),
            [
                "a\u{1}b\u{2}INNER_MULTI_QUEUE_OFFSET\u{1}0,40,0\u{2}",
                "a\u{1}b\u{2}INNER_MULTI_QUEUE_OFFSET\u{1}41\u{2}",
            ]
        );
        advance(&batch, 1);
        assert_eq!((one.next_offset(), two.next_offset()), (1, 41));
    }

    #[test]
    fn properties_that_grow_beyond_their_limit_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let table = QueueTable::load(&StoreConfig::in_dir(dir.path())).unwrap();
        let queue = table.open_or_create("T", 0).unwrap();
        let places = (0..40_000).map(|_| LightPlace::of(queue.clone())).collect();
        let mut batch = AppendBatch::default();
        record(&mut batch, &queue, 1, Some(Numbers::Light(places)));
        assert!(matches!(number(&mut batch), Err(StoreError::TooLong { what: "properties", .. })));
    }
}
