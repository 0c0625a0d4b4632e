//! Whether the wheel of the timers is what a rebuild from their topic makes.
//!
//! Invariants:
//! - both are made on copies: a wheel that was found enters what it does not have yet, one that was lost everything;
//! - a timer that was entered when its slot was delivered already stands in a later one, at the moment it was entered;
//!   a rebuild has it too, and may have it though it came.

use std::collections::{BTreeMap, BTreeSet};

use troupemq_codec::filter::java_hash;
use troupemq_codec::message::properties::{REAL_TOPIC, TIMER_DELETE_UNIQUE_KEY, TIMER_OUT_MS};
use troupemq_store::timer::{NewTimer, TIMER_TOPIC, TimerStore};
use troupemq_store::{Clock, Opened, SystemClock};

use crate::Fault;

/// Slot (epoch ms) of each timer that waits, by its log offset, and whether it was entered behind its time.
pub(crate) type Slots = BTreeMap<u64, (i64, bool)>;

/// The timers of an open store, with all entered that its topic has.
pub(crate) fn slots(opened: &Opened) -> Result<Slots, Fault> {
    let now_ms = SystemClock::new().now_ms();
    let timers = TimerStore::open(&opened.config, &opened.queues, &opened.reader, now_ms);
    let mut timers = timers.map_err(Fault::of("the timers do not open"))?;
    enter_all(opened, &mut timers, now_ms)?;
    let times = timers.view().counts(timers.read_to_ms()).map_err(Fault::of("cannot read the wheel"))?;
    let mut slots = Slots::new();
    for slot_ms in times.into_keys() {
        for unit in timers.units(slot_ms).map_err(Fault::of("cannot read a slot"))? {
            let at = unit.log_offset.cast_unsigned();
            if let Some((other_ms, _)) = slots.insert(at, (slot_ms, unit.delay_ms == 0)) {
                return Err(Fault(format!("the timer at {at} stands in the slots {other_ms} and {slot_ms}")));
            }
        }
    }
    Ok(slots)
}

fn enter_all(opened: &Opened, timers: &mut TimerStore, now_ms: i64) -> Result<(), Fault> {
    let Some(queue) = opened.queues.get(TIMER_TOPIC, 0) else { return Ok(()) };
    let from = timers.next_queue_offset().max(queue.min_offset());
    for unit in queue.units(from, usize::MAX).filter(|unit| !unit.is_hole()) {
        let timer = opened.reader.record_at(unit.log_offset, |record| {
            let names = [TIMER_OUT_MS, REAL_TOPIC, TIMER_DELETE_UNIQUE_KEY];
            let [out, topic, cancels] = record.properties().pick(names);
            Some(NewTimer {
                queue_offset: unit.queue_offset,
                log_offset: unit.log_offset,
                size: unit.size,
                stored_ms: record.store_timestamp_ms(),
                due_ms: out?.parse().ok()?,
                is_delete: cancels.is_some(),
                topic_hash: java_hash(topic?),
            })
        });
        let timer = timer.flatten().ok_or_else(|| Fault(format!("{unit:?} of the timers is no timer")))?;
        timers.put(&timer, now_ms).map_err(Fault::of("a timer cannot be entered"))?;
    }
    Ok(())
}

/// Compares the timers of a store, as they were found, with those that a rebuild makes: those files go as a rebuild
/// has them go, how far delivery came stays.
pub(crate) fn judge(opened: &Opened, ours: &Slots) -> Result<(), Fault> {
    let dir = &opened.config.dir;
    // What is not there needs no removing.
    let _ = std::fs::remove_file(dir.join("timerwheel"));
    let _ = std::fs::remove_dir_all(dir.join("timerlog"));
    let rebuilt = slots(opened)?;
    let has_unit: BTreeSet<u64> = match opened.queues.get(TIMER_TOPIC, 0) {
        Some(queue) => queue.units(queue.min_offset(), usize::MAX).map(|unit| unit.log_offset).collect(),
        None => BTreeSet::new(),
    };
    for log_offset in ours.keys().chain(rebuilt.keys()).filter(|log_offset| has_unit.contains(log_offset)) {
        let fits = match (ours.get(log_offset), rebuilt.get(log_offset)) {
            (Some((one_ms, _)), Some((other_ms, _))) if one_ms == other_ms => true,
            (Some((_, one_is_late)), Some((_, other_is_late))) => *one_is_late || *other_is_late,
            // Without a check point nobody knows that it came; with one, nobody knows it of one that came late.
            (None, Some((_, is_late))) => *is_late,
            _ => false,
        };
        if !fits {
            let slots = (ours.get(log_offset), rebuilt.get(log_offset));
            return Err(Fault(format!(
                "the timer at {log_offset} waits, and does in a rebuild, in {slots:?}"
            )));
        }
    }
    Ok(())
}
