//! `Before`: what was delivered from a delay before the start and may not be noted, as the log tells it.
//!
//! Invariants:
//! - one delivery stands for one message: one that was sent twice is delivered twice;
//! - a delivery lies behind its message in the log;
//! - the log is read on a thread that may wait, from the segment on in which the first such delivery can be.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use troupemq_codec::message::RecordView;
use troupemq_codec::message::properties::{REAL_QUEUE_ID, REAL_TOPIC, TIMER_ROLL_TIMES, UNIQ_KEY};
use troupemq_store::timer::TIMER_TOPIC;
use troupemq_store::{LogReader, StoreError};

use crate::cast::BrokerCast;

/// Deliveries that are remembered; of more the first ones are forgotten, and may come twice.
const DELIVERIES_MAX: usize = 1 << 20;

/// Deliveries by what tells messages apart, with their log offsets.
#[derive(Debug)]
pub struct Before {
    max: usize,
    deliveries: HashMap<u64, Vec<u64>>,
    count: usize,
    hashes: RandomState,
}

/// A delivery that was found.
#[derive(Debug)]
pub struct Delivery {
    hash: u64,
    log_offset: u64,
}

impl Default for Before {
    fn default() -> Before {
        let (deliveries, hashes) = (HashMap::new(), RandomState::new());
        Before { max: DELIVERIES_MAX, deliveries, count: 0, hashes }
    }
}

impl Before {
    /// Reads what was delivered from `from_ms` on.
    pub async fn read(cast: &BrokerCast, from_ms: i64) -> Before {
        let log = cast.log.clone();
        let read = actix_rt::task::spawn_blocking(move || Before::walk(&log, from_ms)).await;
        read.unwrap_or_else(|lost| {
            tracing::warn!(%lost, "the log could not be looked through for delayed messages: some may come twice");
            Before::default()
        })
    }

    fn walk(log: &LogReader, from_ms: i64) -> Before {
        let mut before = Before::default();
        let mut from = start_of(log, from_ms);
        // Each turn is of another segment: what is behind a place that the disk cannot read is left out.
        loop {
            let walked = log.walk(from, log.wrote_to(), |record| {
                if record.store_timestamp_ms() >= from_ms {
                    before.note(record);
                }
                from = from.max(record.log_offset().cast_unsigned());
                Ok::<(), StoreError>(())
            });
            let Err(error) = walked else { break };
            tracing::error!(%error, "delayed messages that were delivered behind this place may come twice");
            let Some(next) = log.segments().at(from).map(|segment| segment.end()) else { break };
            from = next;
        }
        tracing::debug!(deliveries = before.count, "looked back for what was delivered");
        before
    }

    /// Notes a record if it left a delay.
    fn note(&mut self, record: &RecordView<'_>) {
        let [topic, queue_id, rolls] =
            record.properties().pick([REAL_TOPIC, REAL_QUEUE_ID, TIMER_ROLL_TIMES]);
        let (Some(topic), Some(queue_id)) = (topic, queue_id.and_then(|id| id.parse().ok())) else { return };
        let rolls = match record.topic() {
            TIMER_TOPIC => rolls.and_then(|times| times.parse().ok()).unwrap_or(0),
            stored_in if stored_in == topic => 0,
            _ => return,
        };
        if self.count >= self.max {
            self.deliveries.clear();
            self.count = 0;
        }
        self.count += 1;
        let hash = self.hash(record, (topic, queue_id), rolls);
        self.deliveries.entry(hash).or_default().push(record.log_offset().cast_unsigned());
    }

    /// Whether nothing is known, or nothing any more.
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    /// Takes a delivery of the message that waits in `record` for a queue, if one is known; `rolls` is how often it
    /// will have gone round, 0 when it goes to its queue.
    pub fn take(
        &mut self,
        record: &RecordView<'_>,
        (topic, queue_id): (&str, i32),
        rolls: i64,
    ) -> Option<Delivery> {
        if self.is_empty() {
            return None;
        }
        let hash = self.hash(record, (topic, queue_id), rolls);
        let offsets = self.deliveries.get_mut(&hash)?;
        let at = offsets.iter().position(|log_offset| *log_offset > record.log_offset().cast_unsigned())?;
        Some(Delivery { hash, log_offset: offsets.remove(at) })
    }

    /// Forgets everything: what was due before the start is passed.
    pub fn forget(&mut self) {
        self.deliveries = HashMap::new();
    }

    /// Gives back a delivery whose message will be asked for again.
    pub fn put_back(&mut self, delivery: Delivery) {
        self.deliveries.entry(delivery.hash).or_default().push(delivery.log_offset);
    }

    fn hash(&self, record: &RecordView<'_>, target: (&str, i32), rolls: i64) -> u64 {
        let uniq_key = record.properties().get_bytes(UNIQ_KEY);
        let origin = (record.born_timestamp_ms(), record.reconsume_times(), record.body_crc());
        self.hashes.hash_one((target, rolls, uniq_key, origin))
    }
}

/// Start of the last segment that was begun before `from_ms`.
fn start_of(log: &LogReader, from_ms: i64) -> u64 {
    let segments = log.segments().snapshot();
    let is_before = |start: u64| match log.fetch_record(start, |record| record.store_timestamp_ms()) {
        Ok(stored_ms) => stored_ms.is_some_and(|stored_ms| stored_ms < from_ms),
        Err(error) => {
            tracing::error!(%error, "the first message of a segment cannot be read from the disk");
            false
        }
    };
    let mut starts = segments.iter().rev().map(|segment| segment.start());
    starts.clone().find(|start| is_before(*start)).or(starts.next_back()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::message::NewRecord;

    use super::*;

    fn with(record: &NewRecord<'_>, see: impl FnOnce(&RecordView<'_>)) {
        let mut bytes = BytesMut::new();
        record.encode(&mut bytes).expect("a short message");
        see(&RecordView::parse(&bytes).expect("it was just encoded"));
    }

    #[test]
    fn of_too_many_deliveries_the_first_are_forgotten_and_the_last_known() {
        let mut before = Before { max: 2, ..Before::default() };
        let properties: [&[u8]; 3] = [b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02UNIQ_KEY\x01", b"", b"\x02"];
        for key in ["a", "b", "c"] {
            let properties = [properties[0], key.as_bytes(), properties[2]];
            let delivered = NewRecord { topic: "T", body: b"x", properties: &properties, ..NewRecord::PLAIN };
            with(&delivered, |record| before.note(record));
        }
        assert_eq!((before.count, before.deliveries.len()), (1, 1));
        let known = before.deliveries.values().next().expect("the last");
        assert_eq!(known.len(), 1);
    }
}
