//! What the timers do outside their actor: reading where waiting is allowed, storing what is due.
//!
//! Invariants:
//! - slots are read in their order, the cancellations of each in front: none comes behind the timer it cancels;
//! - what is read at a time is bounded, however full a slot is.

use std::sync::Arc;
use std::vec::IntoIter;

use actix::Addr;
use bytes::{Bytes, BytesMut};
use troupemq_codec::message::properties::{TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS, put_property};
use troupemq_codec::timer_record::TimerUnit;
use troupemq_store::timer::{SlotUnits, TIMER_TOPIC};
use troupemq_store::{ConsumeQueue, LogReader, Unit};

use super::dequeue::Waiting;
use super::enqueue::{Mark, Marker, Said};
use super::near::Marks;
use super::{Delivered, Read, Timer};
use crate::cast::BrokerCast;
use crate::delayed::{self, Before, Leaving, Outcome};

/// Records read at a time.
pub const READ_MAX: usize = 1024;

/// Units of opened slots that are not read yet, with the times of their slots, and with what their records say where
/// that is known.
#[derive(Debug, Default)]
pub struct Unread(IntoIter<(i64, TimerUnit, Option<Mark>)>);

/// What an opened slot holds, and what its record says.
pub type Loaded = (i64, TimerUnit, Said);

/// What is to be read.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Messages of the timer topic that are to be entered, and what they say where that is known.
    pub new: Vec<(Unit, Option<Mark>)>,
    /// Slots that are opened.
    pub slots: Vec<SlotUnits>,
    /// What is known of the timers of each of them.
    pub(super) known: Vec<Marks>,
    /// What was not read of slots opened before.
    pub unread: Unread,
}

/// Slots as they were read.
#[derive(Debug, Default)]
struct Opened {
    units: Vec<(i64, TimerUnit, Option<Mark>)>,
    /// Those that the disk cannot read now.
    unreadable: Vec<SlotUnits>,
}

impl Unread {
    /// Units that were read before, but for their records.
    pub fn again(units: Vec<(i64, TimerUnit)>) -> Unread {
        let unknown = units.into_iter().map(|(slot_ms, unit)| (slot_ms, unit, None));
        Unread(unknown.collect::<Vec<_>>().into_iter())
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

impl Opened {
    fn of(slots: Vec<SlotUnits>, known: Vec<Marks>) -> Opened {
        let mut opened = Opened::default();
        let known = known.into_iter().chain(std::iter::repeat_with(Marks::default));
        for (slot, mut known) in slots.into_iter().zip(known) {
            let own = match slot.read() {
                Ok(own) => own,
                Err(error) => {
                    tracing::error!(%error, slot_ms = slot.slot_ms, "timers wait until the disk can read them");
                    opened.unreadable.push(slot);
                    continue;
                }
            };
            opened.units.extend(once_each(own).into_iter().map(|unit| {
                let mark = known.find(unit.log_offset.cast_unsigned());
                (slot.slot_ms, unit, mark)
            }));
        }
        opened
    }
}

/// The units of a slot, each once, cancellations in front. Mostly they stand in the order of the log already.
fn once_each(mut units: Vec<TimerUnit>) -> Vec<TimerUnit> {
    units.sort_by_key(|unit| (!unit.is_delete(), unit.log_offset));
    units.dedup_by_key(|unit| unit.log_offset);
    units
}

impl Wanted {
    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.slots.is_empty() && self.unread.is_empty()
    }
}

/// Reads what is wanted and hands it to the actor.
pub(super) async fn read(
    cast: Arc<BrokerCast>,
    wanted: Wanted,
    (now_ms, marker): (i64, Marker),
    timer: Addr<Timer>,
) {
    let Wanted { new, slots, known, mut unread } = wanted;
    let unknown: Vec<Unit> = new.iter().filter(|(_, known)| known.is_none()).map(|(unit, _)| *unit).collect();
    let marks = match cast.queues.get(TIMER_TOPIC, 0) {
        Some(queue) => marker.read_queue(&cast, &queue, &unknown).await,
        None => Vec::new(),
    };
    let (mut all, mut marks) = (Vec::with_capacity(new.len()), marks.into_iter());
    let mut said = |known: Option<Mark>| known.map(Said::Timer).or_else(|| marks.next());
    all.extend(new.into_iter().map_while(|(unit, known)| Some((unit, said(known)?))));
    let (mut opened, mut shut) = (Vec::new(), Vec::new());
    if !slots.is_empty() {
        let read =
            actix_rt::task::spawn_blocking(move || Opened::of(slots, known)).await.unwrap_or_else(|lost| {
                cast.poison.trip(format!("slots of the timer wheel could not be read: {lost}"));
                Opened::default()
            });
        opened.extend(read.units.iter().map(|(slot_ms, ..)| *slot_ms));
        (unread, shut) = (Unread(read.units.into_iter()), read.unreadable);
    }
    let units: Vec<(i64, TimerUnit, Option<Mark>)> = unread.0.by_ref().take(READ_MAX).collect();
    let unknown = units.iter().filter(|(.., known)| known.is_none());
    let records: Vec<Unit> = unknown.map(|(_, unit, _)| record_of(unit)).collect();
    let mut marks = marker.read(&cast, &records).await.into_iter();
    let said = |known: Option<Mark>| known.map(Said::Timer).or_else(|| marks.next());
    let (units, mut said) = (units.into_iter(), said);
    let loaded = units.filter_map(|(slot_ms, unit, known)| Some((slot_ms, unit, said(known)?))).collect();
    // An actor that is gone needs no news.
    let _ = timer.send(Read { now_ms, new: all, opened, shut, loaded, unread }).await;
}

/// Stores what is due and tells how much of it is done.
pub(super) async fn deliver(
    cast: Arc<BrokerCast>,
    due: Vec<Waiting>,
    mut before: Before,
    timer: Addr<Timer>,
) {
    let leaving = leaving(&due, cast.now_ms());
    // What cannot be read waits in its slot, of which so many may be open.
    let outcome = delayed::deliver(&cast, &leaving, &mut before, usize::MAX).await;
    // An actor that is gone needs no news: the next start finds what was delivered in the log.
    let _ = timer.send(Delivered { due, outcome, before }).await;
}

/// What may have been delivered before the start without being noted.
#[derive(Debug)]
pub(super) struct Unsure {
    /// What was due from this time on (epoch ms).
    pub(super) from_ms: i64,
    /// The first message that is not entered, in its queue, and all behind it.
    pub(super) first: Option<(Arc<ConsumeQueue>, i64)>,
    /// The first slot that is not delivered: what was entered behind its time may have come long before, if it was
    /// entered anew because files were lost.
    pub(super) slot: Option<SlotUnits>,
}

impl Unsure {
    /// The time from which deliveries are looked for, epoch ms.
    fn since_ms(&self, log: &LogReader) -> i64 {
        let late = self.slot.as_ref().map(|slot| slot.oldest_late(log.min_offset())).transpose();
        let late = late.unwrap_or_else(|error| {
            tracing::error!(%error, "timers that were late before the start may come twice");
            None
        });
        let first = self.first.as_ref().map(|(queue, at)| queue.read_unit(*at)).transpose();
        let first = first.unwrap_or_else(|error| {
            tracing::error!(%error, "timers that were not entered before the start may come twice");
            None
        });
        let first = first.flatten().map(|unit| unit.log_offset);
        let stored_ms = |log_offset: u64| {
            // Behind one that is no longer kept come those that are.
            let log_offset = log_offset.max(log.min_offset());
            let stored_ms = log.fetch_record(log_offset, |record| record.store_timestamp_ms());
            stored_ms.unwrap_or_else(|error| {
                tracing::error!(%error, "timers that were stored behind this one may come twice");
                None
            })
        };
        first.into_iter().chain(late.flatten()).filter_map(stored_ms).fold(self.from_ms, i64::min)
    }
}

/// Looks back at what was delivered before the start.
pub(super) async fn look_back(cast: Arc<BrokerCast>, unsure: Unsure, timer: Addr<Timer>) {
    let (log, from_ms) = (cast.log.clone(), unsure.from_ms);
    let since_ms = actix_rt::task::spawn_blocking(move || unsure.since_ms(&log)).await;
    let since_ms = since_ms.unwrap_or_else(|lost| {
        tracing::error!(%lost, from_ms, "timers that were late before the start may come twice");
        from_ms
    });
    let before = Before::read(&cast, since_ms).await;
    // An actor that is gone has nothing to deliver.
    let _ = timer.send(Delivered { due: Vec::new(), outcome: Outcome::default(), before }).await;
}

/// Timers as they leave at `now_ms`. Those that were entered together are told the same.
fn leaving(due: &[Waiting], now_ms: i64) -> Vec<Leaving> {
    let mut last = (i64::MIN, Bytes::new());
    let leave = |waiting: &Waiting| {
        let rolls = waiting.rolls.is_some();
        if !rolls && last.0 != waiting.entered_ms {
            let mut more = BytesMut::with_capacity(64);
            put_property(&mut more, TIMER_ENQUEUE_MS, &waiting.entered_ms.to_string());
            put_property(&mut more, TIMER_DEQUEUE_MS, &now_ms.to_string());
            last = (waiting.entered_ms, more.freeze());
        }
        let (log_offset, size) = (waiting.log_offset, waiting.size);
        let unit = Unit { queue_offset: 0, log_offset, size, tags_code: 0, count: 1 };
        Leaving { unit, aim: waiting.aim, more: if rolls { Bytes::new() } else { last.1.clone() }, rolls }
    };
    due.iter().map(leave).collect()
}

fn record_of(unit: &TimerUnit) -> Unit {
    Unit {
        queue_offset: 0,
        log_offset: unit.log_offset.cast_unsigned(),
        size: unit.size.cast_unsigned(),
        tags_code: 0,
        count: 1,
    }
}

#[cfg(test)]
mod tests {
    use troupemq_store::testing::{Sample, small_files};
    use troupemq_store::timer::{NewTimer, TimerStore};
    use troupemq_store::{ManualClock, open};

    use super::*;

    /// Found by a kill: the timer log was made anew, and what was entered first was deleted before the next start.
    #[test]
    fn what_was_delivered_is_looked_for_from_the_first_message_on_that_is_kept() {
        const NOW_MS: i64 = 1_795_968_000_000;
        let dir = tempfile::tempdir().unwrap();
        let config = small_files(dir.path());
        let mut store = open(config.clone(), Arc::new(ManualClock::at(NOW_MS))).unwrap();
        let mut timers = TimerStore::open(&config, &store.queues, &store.reader, NOW_MS).unwrap();
        // Three to a segment.
        let stored_ms = |number: i64| NOW_MS - 90 + number;
        for number in 0..9 {
            Sample { queue_id: 0, fill: 1, body_bytes: 20_000 }.store(
                &mut store,
                TIMER_TOPIC,
                stored_ms(number),
            );
        }
        let queue = store.queues.get(TIMER_TOPIC, 0).unwrap();
        let mut enter = |queue_offset| {
            let unit = queue.read_unit(queue_offset).unwrap().unwrap();
            let (log_offset, size, stored_ms) = (unit.log_offset, unit.size, stored_ms(queue_offset));
            let (due_ms, is_delete, topic_hash) = (NOW_MS - 50, false, 7);
            let timer = NewTimer { queue_offset, log_offset, size, stored_ms, due_ms, is_delete, topic_hash };
            timers.put(&timer, NOW_MS).unwrap();
            log_offset
        };
        (0..6).for_each(|number| _ = enter(number));
        let slot = timers.slot(NOW_MS).unwrap();
        let since_ms = |first: Option<i64>| {
            let first = first.map(|at| (queue.clone(), at));
            Unsure { from_ms: NOW_MS, first, slot: Some(slot.clone()) }.since_ms(&store.reader)
        };
        assert_eq!((since_ms(None), since_ms(Some(6))), (stored_ms(0), stored_ms(0)));
        assert_eq!(store.reader.segments().take_before(65_536).len(), 1);
        assert_eq!((since_ms(None), since_ms(Some(6))), (stored_ms(3), stored_ms(3)));
        assert_eq!(store.reader.segments().take_before(131_072).len(), 1);
        assert_eq!((since_ms(None), since_ms(Some(6))), (NOW_MS, stored_ms(6)), "no timer that came is kept");
        assert_eq!(since_ms(Some(2)), stored_ms(6), "behind one that is gone");
    }
}
