//! What a batch of sends adds to the counters of topics and their queues.
//!
//! Invariants:
//! - counters are raised once for each queue of a batch, however many messages it got;
//! - a send is one call, however many messages it has.

use std::sync::Arc;

use troupemq_store::{AppendBatch, ConsumeQueue, PendingRecord};

use super::bench::Slot;
use crate::cast::BrokerCast;
use crate::topic::counters::Pair;
use crate::topic::names;

/// Queues that are told apart at a time; those of most batches are fewer.
const TOGETHER_MAX: usize = 16;

/// What a queue got.
struct Got<'a> {
    queue: &'a Arc<ConsumeQueue>,
    messages: usize,
    bytes: usize,
    calls: usize,
}

/// Messages in these records: an inner batch has as many as it takes offsets.
pub(super) fn messages_in(records: &[PendingRecord]) -> usize {
    records.iter().map(|record| usize::from(record.advance.max(1))).sum()
}

/// Counts the sends whose records were stored, the first ones of the batch; each took so long.
pub(super) fn count(cast: &BrokerCast, slots: &[Slot], (batch, stored): (&AppendBatch, usize), took_ms: u64) {
    let stored = &batch.records[..stored];
    let mut got: Vec<Got<'_>> = Vec::with_capacity(slots.len().min(TOGETHER_MAX));
    for slot in slots {
        let Some(records) = stored.get(slot.place.records.clone()) else { break };
        let Some(first) = records.first() else { continue };
        let bytes = records.iter().map(|record| record.end().saturating_sub(record.start as usize)).sum();
        let messages = messages_in(records);
        let queue = batch.queue_of(first);
        match got.iter_mut().find(|got| Arc::ptr_eq(got.queue, queue)) {
            Some(got) => {
                got.messages += messages;
                got.bytes += bytes;
                got.calls += 1;
            }
            None => {
                if got.len() == TOGETHER_MAX {
                    raise(cast, &mut got, took_ms);
                }
                got.push(Got { queue, messages, bytes, calls: 1 });
            }
        }
    }
    raise(cast, &mut got, took_ms);
}

/// Raises the counters, topic by topic.
fn raise(cast: &BrokerCast, got: &mut Vec<Got<'_>>, took_ms: u64) {
    while let Some(first) = got.first() {
        let topic = first.queue.topic();
        let is_alike = |got: &&Got<'_>| got.queue.topic() == topic;
        let took = |calls: usize| took_ms.saturating_mul(u64::try_from(calls).unwrap_or(u64::MAX));
        let queues = got
            .iter()
            .filter(is_alike)
            .map(|got| (got.queue.queue_id(), Pair::of(got.messages, got.bytes, got.calls, took(got.calls))));
        cast.count_put(topic, queues);
        if names::is_system(topic) {
            cast.stats.system_put(got.iter().filter(is_alike).map(|got| got.messages).sum());
        }
        got.retain(|got| got.queue.topic() != topic);
    }
}
