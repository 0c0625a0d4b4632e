//! What still waits in the log: messages of delay levels and timers that are not delivered yet.
//!
//! Invariants:
//! - a segment that holds one of them does not expire, whatever `fileReservedTime` says; only a full disk takes it;
//! - who delivers tells how far it is; until it does so for the first time, everything counts as waiting;
//! - what is told may be late, never early: then a segment stays for one more round.
//!
//! Usually nothing is found: levels are shorter than the time the log is kept, and a timer that waits longer is stored
//! anew in time. Both are otherwise where levels are set longer than that, or that time is made shorter.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::consume_queue::QueueTable;
use crate::dispatch::SCHEDULE_TOPIC;
use crate::error::StoreError;
use crate::timer::{TIMER_TOPIC, TimerView};

/// How far those are who deliver later. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Needed {
    places: Arc<ArcSwapOption<BTreeMap<i32, i64>>>,
    timers: Arc<ArcSwapOption<TimerView>>,
    /// What was found last.
    found: Arc<ArcSwapOption<Waiting>>,
}

/// The oldest message that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Where it stands in the log.
    pub log_offset: u64,
    /// When it is to be delivered, epoch ms.
    pub due_ms: i64,
    /// The topic in which it waits.
    pub topic: &'static str,
}

impl Needed {
    /// Notes the next queue offset of each delay level.
    pub fn tell_places(&self, places: &BTreeMap<i32, i64>) {
        self.places.store(Some(Arc::new(places.clone())));
    }

    /// Notes where the timers are.
    pub fn tell_timers(&self, timers: TimerView) {
        self.timers.store(Some(Arc::new(timers)));
    }

    /// The oldest message that waits in front of `log_offset`, if there is one. Waits for the disk.
    ///
    /// # Errors
    /// If the disk cannot read what tells.
    pub(crate) fn oldest(
        &self,
        queues: &QueueTable,
        log_offset: u64,
        now_ms: i64,
    ) -> Result<Option<Waiting>, StoreError> {
        // To go through all timers takes a while: what is not due yet still waits.
        if let Some(known) = self.found.load().as_deref()
            && known.due_ms > now_ms
        {
            return Ok(Some(*known).filter(|known| known.log_offset < log_offset));
        }
        let waiting = self.of_levels(queues)?.into_iter().chain(self.of_timers(queues)?);
        let oldest = waiting.min_by_key(|waiting| waiting.log_offset);
        let oldest = oldest.filter(|waiting| waiting.log_offset < log_offset);
        let before = self.found.swap(oldest.map(Arc::new));
        if let Some(Waiting { log_offset, due_ms, topic }) =
            oldest.filter(|now| before.as_deref() != Some(now))
        {
            tracing::info!(log_offset, due_ms, topic, "expired segments are kept: a message waits in them");
        }
        Ok(oldest)
    }

    fn of_levels(&self, queues: &QueueTable) -> Result<Option<Waiting>, StoreError> {
        let places = self.places.load();
        let next = |level: i32| places.as_deref().and_then(|places| places.get(&level)).copied();
        let of_queue = |queue: &Arc<crate::ConsumeQueue>| {
            let min = queue.min_offset();
            let next = next(queue.queue_id().saturating_add(1)).unwrap_or(min).max(min);
            let unit = queue.read_unit(next)?.filter(|unit| !unit.is_hole());
            // The code of such a unit is the time of its delivery.
            Ok(unit.map(|unit| Waiting {
                log_offset: unit.log_offset,
                due_ms: unit.tags_code,
                topic: SCHEDULE_TOPIC,
            }))
        };
        let waiting = queues.of_topic(SCHEDULE_TOPIC);
        let waiting = waiting.iter().map(of_queue).collect::<Result<Vec<_>, StoreError>>()?;
        Ok(waiting.into_iter().flatten().min_by_key(|waiting| waiting.log_offset))
    }

    fn of_timers(&self, queues: &QueueTable) -> Result<Option<Waiting>, StoreError> {
        let timers = self.timers.load();
        let entered = timers.as_deref().map(TimerView::oldest).transpose()?.flatten();
        let entered = entered.map(|(log_offset, due_ms)| Waiting { log_offset, due_ms, topic: TIMER_TOPIC });
        let Some(queue) = queues.get(TIMER_TOPIC, 0) else { return Ok(None) };
        let min = queue.min_offset();
        let next = timers.as_deref().map_or(min, TimerView::next_queue_offset);
        let late = queue.read_unit(next.max(min))?.filter(|unit| !unit.is_hole()).map(|unit| unit.log_offset);
        let late = late.map(|log_offset| Waiting { log_offset, due_ms: i64::MIN, topic: TIMER_TOPIC });
        Ok(entered.into_iter().chain(late).min_by_key(|waiting| waiting.log_offset))
    }
}

#[cfg(test)]
mod tests {
    use troupemq_codec::message::NewRecord;

    use super::*;
    use crate::faults::{self, Op};
    use crate::testing::small_files;
    use crate::timer::{NewTimer, TimerStore};
    use crate::{AppendBatch, ManualClock, Opened, StoreConfig, open};

    const HOUR_MS: i64 = 3_600_000;
    const NOW_MS: i64 = 500_000 * HOUR_MS;

    /// Stores a message; its log offset and that of its queue.
    fn message(store: &mut Opened, topic: &str, queue_id: i32, code: i64) -> (u64, i64) {
        let queue = store.queues.open_or_create(topic, queue_id).unwrap();
        let record = NewRecord { topic, queue_id, body: &[1; 8_000], properties: &[], ..NewRecord::PLAIN };
        let mut batch = AppendBatch::default();
        record.encode(&mut batch.bytes).unwrap();
        batch.push(0, &queue, 1, code);
        let appended = store.log.append(&mut batch, NOW_MS).unwrap();
        store.dispatch.dispatch(&batch, &appended).unwrap();
        (batch.records[0].log_offset, batch.records[0].queue_offset)
    }

    fn fill(store: &mut Opened) {
        (0..20).for_each(|_| _ = message(store, "T", 0, 0));
    }

    /// Deletes what expired long ago, and tells where the log begins then.
    fn clean(store: &Opened, now_ms: i64) -> u64 {
        let clock: Arc<dyn crate::Clock> = Arc::new(ManualClock::at(now_ms));
        store.keeper.clean(&store.config, &clock, true).unwrap();
        store.reader.min_offset()
    }

    #[test]
    fn what_waits_in_a_delay_level_stays_until_it_is_delivered_however_long_that_takes() {
        let dir = tempfile::tempdir().unwrap();
        let later_ms = NOW_MS + 24 * 365 * 100 * HOUR_MS;
        let mut store = open(small_files(dir.path()), Arc::new(ManualClock::at(NOW_MS))).unwrap();
        fill(&mut store);
        let (first, _) = message(&mut store, SCHEDULE_TOPIC, 2, later_ms);
        fill(&mut store);
        let (second, _) = message(&mut store, SCHEDULE_TOPIC, 2, later_ms + 1);
        fill(&mut store);
        let segment_of = |log_offset: u64| log_offset / 65_536 * 65_536;
        assert_eq!(clean(&store, later_ms - 1), segment_of(first), "nobody has told");
        store.keeper.needed().tell_places(&BTreeMap::from([(3, 1)]));
        assert_eq!(clean(&store, later_ms), segment_of(second));
        store.keeper.needed().tell_places(&BTreeMap::from([(3, 2)]));
        assert_eq!(clean(&store, later_ms + 1), segment_of(store.reader.wrote_to()));
    }

    #[test]
    fn what_a_timer_needs_stays_until_it_is_delivered_even_if_the_log_is_kept_shorter_than_it_waits() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(small_files(dir.path()), Arc::new(ManualClock::at(NOW_MS))).unwrap();
        let mut timers = TimerStore::open(&store.config, &store.queues, &store.reader, NOW_MS).unwrap();
        store.keeper.needed().tell_timers(timers.view());
        fill(&mut store);
        let (log_offset, queue_offset) = message(&mut store, TIMER_TOPIC, 0, 0);
        fill(&mut store);
        let due_ms = NOW_MS + 24 * HOUR_MS;
        let config = StoreConfig { reserved_hours: 1, ..store.config.clone() };
        store.config = config;
        // The files are as old as this test: the clock of their age is that of the machine.
        let far_ms = i64::MAX / 2;
        let segment = log_offset / 65_536 * 65_536;
        assert_eq!(clean(&store, far_ms), segment, "it is not entered yet");
        let timer = NewTimer {
            queue_offset,
            log_offset,
            size: 8_100,
            stored_ms: NOW_MS,
            due_ms,
            is_delete: false,
            topic_hash: 0,
        };
        timers.put(&timer, NOW_MS).unwrap();
        timers.entered(queue_offset + 1);
        assert_eq!(clean(&store, far_ms), segment);
        assert_eq!(timers.next_due(due_ms + 1_000).unwrap(), Some(due_ms));
        timers.delivered(due_ms);
        assert_eq!(clean(&store, far_ms), store.reader.wrote_to() / 65_536 * 65_536);
    }

    #[test]
    fn nothing_expires_while_the_disk_cannot_read_what_waits() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(small_files(dir.path()), Arc::new(ManualClock::at(NOW_MS))).unwrap();
        fill(&mut store);
        let due_ms = NOW_MS + HOUR_MS;
        let (waits, _) = message(&mut store, SCHEDULE_TOPIC, 2, due_ms);
        fill(&mut store);
        let far_ms = i64::MAX / 2;
        for topic in [SCHEDULE_TOPIC, TIMER_TOPIC] {
            let (_, _) = message(&mut store, TIMER_TOPIC, 0, 0);
            let broken = faults::arm(&dir.path().join("consumequeue").join(topic), Op::Read, 0, 5);
            assert_eq!(clean(&store, far_ms), 0, "{topic}");
            drop(broken);
        }
        assert_eq!(clean(&store, far_ms), waits / 65_536 * 65_536);
    }
}
