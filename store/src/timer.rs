//! Timers: messages that wait for a moment, on a wheel of slots over a log of units (RocketMQ:
//! `TimerMessageStore`, its files).
//!
//! Invariants:
//! - one owner puts and takes; another thread forces to the disk through the [`TimerFlusher`];
//! - a slot is due when its whole step of time is over, so no timer is early;
//! - no slot loses units: where another time still has its units, the timer goes to a later slot and round again;
//! - what the check point says is on the disk: the log first, then the wheel, then the check point.
//!
//! The topic of the timers is the truth: whatever the files have lost is entered from there again.
//!
//! | file | what |
//! |---|---|
//! | `timerlog/*` | units of 52 bytes, `log.rs` |
//! | `timerwheel` | slots of 32 bytes, `wheel.rs` |
//! | `config/timercheck` | how far delivery has come, `checkpoint.rs` |

mod checkpoint;
mod log;
mod recover;
mod wheel;

#[cfg(test)]
mod timer_test;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use troupemq_codec::timer_record::{TimerCheckpoint, TimerUnit, UNIT_DEFAULT, UNIT_DELETE, UNIT_ROLL};

use self::log::TimerLog;
use self::wheel::{SLOTS, Wheel};
use crate::error::StoreError;
use crate::segments::Segments;

/// Topic that holds the messages that wait, in its queue 0.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";

/// A timer that is to be entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewTimer {
    /// Offset of the message in queue 0 of the timer topic.
    pub queue_offset: i64,
    /// Its log offset.
    pub log_offset: u64,
    /// Bytes of its record.
    pub size: u32,
    /// When it is due, a multiple of the precision (property `TIMER_OUT_MS`), epoch ms.
    pub due_ms: i64,
    /// Whether it cancels another timer.
    pub is_delete: bool,
    /// Java's hash of the topic the message goes to.
    pub topic_hash: i32,
}

/// Where a timer has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// To its slot.
    Wheel,
    /// To an earlier slot, to be entered again when that is due: it is due beyond the window of the wheel.
    Roll,
    /// Nowhere: it is due.
    Now,
    /// Nowhere: it was delivered before the store was opened; the files had lost it.
    Done,
}

/// The timers of a store.
#[derive(Debug)]
pub struct TimerStore {
    log: TimerLog,
    wheel: Wheel,
    precision_ms: i64,
    /// Time ahead of now up to which timers go to their own slot.
    window_ms: i64,
    pending: i64,
    flusher: TimerFlusher,
    /// Messages before this queue offset had been entered or delivered at the last check point.
    entered_before: i64,
    /// Slot time before which everything entered had been delivered then.
    delivered_before_ms: i64,
}

/// Forces the timers to the disk, from a thread that may wait; clones do the same.
#[derive(Debug, Clone)]
pub struct TimerFlusher {
    segments: Arc<Segments>,
    wheel: Wheel,
    paths: Arc<TimerPaths>,
    reached: Arc<Reached>,
}

#[derive(Debug)]
struct TimerPaths {
    log: PathBuf,
    wheel: PathBuf,
    checkpoint: PathBuf,
}

/// How far the owner has come.
#[derive(Debug)]
struct Reached {
    /// First slot time that is not delivered.
    read_to_ms: AtomicI64,
    /// Offset of the next message to enter.
    queue_offset: AtomicI64,
    /// End of the timer log.
    log_end: AtomicU64,
    /// Position up to which the log is on the disk.
    flushed_to: AtomicU64,
    /// The rest of the check point, as it was read.
    master_queue_offset: i64,
    precision_ms: i64,
    version: (i64, i64, i64),
}

impl TimerStore {
    /// Offset in queue 0 of the timer topic of the next message to enter.
    pub fn next_queue_offset(&self) -> i64 {
        self.flusher.reached.queue_offset.load(Ordering::Relaxed)
    }

    /// Notes that all messages before `next` are entered, or were due and are delivered.
    pub fn entered(&mut self, next: i64) {
        self.flusher.reached.queue_offset.store(next, Ordering::Release);
    }

    /// First slot time (epoch ms) that is not delivered yet.
    pub fn read_to_ms(&self) -> i64 {
        self.flusher.reached.read_to_ms.load(Ordering::Relaxed)
    }

    /// Width of a slot in milliseconds.
    pub fn precision_ms(&self) -> i64 {
        self.precision_ms
    }

    /// Timers that wait, cancellations taken off.
    pub fn pending(&self) -> i64 {
        self.pending
    }

    /// Timers that wait in the slot of a time (epoch ms).
    pub fn count_at(&self, due_ms: i64) -> i32 {
        self.wheel.get(due_ms).map_or(0, |slot| slot.count)
    }

    /// Enters a timer at `now_ms`.
    pub fn put(&mut self, timer: &NewTimer, now_ms: i64) -> Result<Placed, StoreError> {
        let write_ms = self.floor(now_ms);
        let due_ms = self.floor(timer.due_ms);
        if timer.queue_offset < self.entered_before && due_ms < self.delivered_before_ms {
            return Ok(Placed::Done);
        }
        if due_ms < write_ms || due_ms < self.read_to_ms() {
            return Ok(Placed::Now);
        }
        let wanted_ms = self.within_window(due_ms, write_ms);
        let slot_ms = self.free_slot(wanted_ms);
        let is_roll = slot_ms != due_ms;
        let mut kind = UNIT_DEFAULT;
        kind |= if is_roll { UNIT_ROLL } else { 0 };
        kind |= if timer.is_delete { UNIT_DELETE } else { 0 };
        let slot = self.wheel.get(slot_ms);
        let delay_ms = i32::try_from(slot_ms - write_ms).expect("the window is shorter than 24 days");
        let position = self.log.append(&TimerUnit {
            previous: slot.map_or(-1, |slot| slot.last),
            kind,
            written_ms: write_ms,
            delay_ms,
            log_offset: timer.log_offset.cast_signed(),
            size: timer.size.cast_signed(),
            topic_hash: timer.topic_hash,
        })?;
        let position = position.cast_signed();
        let change = if timer.is_delete { -1 } else { 1 };
        let (first, count) = slot.map_or((position, 0), |slot| (slot.first, slot.count));
        self.wheel.put(slot_ms, first, position, count.saturating_add(change));
        self.pending += i64::from(change);
        self.flusher.reached.log_end.store(self.log.end(), Ordering::Release);
        Ok(if is_roll { Placed::Roll } else { Placed::Wheel })
    }

    /// The next slot time (epoch ms) with units whose step is over at `now_ms`. Empty slots in front of it are
    /// passed over and count as delivered.
    pub fn next_due(&mut self, now_ms: i64) -> Option<i64> {
        let circle_ms = SLOTS.cast_signed() * self.precision_ms;
        let now_ms = self.floor(now_ms);
        // What is further back than the wheel is around has no slot any more.
        let mut time_ms = self.read_to_ms().max(now_ms - circle_ms);
        while time_ms < now_ms && self.wheel.get(time_ms).is_none() {
            time_ms += self.precision_ms;
        }
        self.flusher.reached.read_to_ms.fetch_max(time_ms, Ordering::AcqRel);
        (time_ms < now_ms).then_some(time_ms)
    }

    /// The units of a slot, oldest first: cancellations and such that go round again among them.
    pub fn units(&self, slot_ms: i64) -> Vec<TimerUnit> {
        let mut units: Vec<TimerUnit> = self.chain(slot_ms).collect();
        units.reverse();
        units
    }

    /// Notes that every unit of the slot is delivered or entered again; nothing before it waits either.
    pub fn delivered(&mut self, slot_ms: i64) {
        if let Some(slot) = self.wheel.get(slot_ms) {
            self.pending -= i64::from(slot.count);
            self.wheel.clear(slot_ms);
        }
        let next_ms = self.floor(slot_ms) + self.precision_ms;
        self.flusher.reached.read_to_ms.fetch_max(next_ms, Ordering::AcqRel);
    }

    /// What forces the timers to the disk.
    pub fn flusher(&self) -> &TimerFlusher {
        &self.flusher
    }

    /// Deletes files of the timer log whose messages are all before `log_min`; tells how many.
    pub fn expire(&mut self, log_min: u64) -> Result<usize, StoreError> {
        self.log.expire(log_min)
    }

    fn floor(&self, time_ms: i64) -> i64 {
        time_ms - time_ms.rem_euclid(self.precision_ms)
    }

    /// The slot time for a due time: its own, or one within the window, whole half windows before it. So the
    /// timers that go round again are as spread as their due times are.
    fn within_window(&self, due_ms: i64, write_ms: i64) -> i64 {
        let ahead_ms = due_ms - write_ms;
        if ahead_ms < self.window_ms {
            return due_ms;
        }
        let half_ms = self.floor(self.window_ms / 2).max(self.precision_ms);
        let halves = (ahead_ms - self.window_ms) / half_ms + 1;
        due_ms - halves * half_ms
    }

    /// The first slot from `slot_ms` on that no undelivered units of another time occupy.
    fn free_slot(&self, slot_ms: i64) -> i64 {
        let read_to_ms = self.read_to_ms();
        let mut free_ms = slot_ms;
        while self.wheel.other_at(free_ms).is_some_and(|other_ms| other_ms >= read_to_ms) {
            free_ms += self.precision_ms;
        }
        free_ms
    }

    /// The units of a slot, newest first.
    fn chain(&self, slot_ms: i64) -> impl Iterator<Item = TimerUnit> {
        let mut position = self.wheel.get(slot_ms).map_or(-1, |slot| slot.last);
        std::iter::from_fn(move || {
            let unit = self.log.unit(position)?;
            // Chains only lead back; a unit of another slot ends them.
            let is_of_slot = self.floor(unit.due_ms()) == self.floor(slot_ms);
            position = if unit.previous < position { unit.previous } else { -1 };
            is_of_slot.then_some(unit)
        })
    }
}

impl TimerFlusher {
    /// Forces to the disk what was put and delivered so far; waits for the disk.
    pub fn flush(&self) -> Result<(), StoreError> {
        // Taken first: what comes meanwhile may be on the disk or not.
        let queue_offset = self.reached.queue_offset.load(Ordering::Acquire);
        let read_to_ms = self.reached.read_to_ms.load(Ordering::Acquire);
        let log_end = self.reached.log_end.load(Ordering::Acquire);
        let flushed_to = self.reached.flushed_to.load(Ordering::Relaxed);
        for segment in self.segments.snapshot().iter() {
            if segment.end() > flushed_to && segment.start() < log_end {
                segment.sync()?;
                let written = log_end.min(segment.end()) - segment.start();
                let written = usize::try_from(written).expect("a segment fits the address space");
                if let Err(error) = segment.mapping().drop_pages(0..written) {
                    tracing::debug!(%error, file = %segment.path().display(), "pages stay in memory");
                }
            }
        }
        self.reached.flushed_to.store(log_end, Ordering::Relaxed);
        self.wheel.flush(&self.paths.wheel)?;
        let (state_version, version_timestamp_ms, version_counter) = self.reached.version;
        checkpoint::save(
            &self.paths.checkpoint,
            &TimerCheckpoint {
                last_read_ms: read_to_ms,
                flushed_to: log_end.cast_signed(),
                queue_offset,
                master_queue_offset: self.reached.master_queue_offset,
                state_version,
                version_timestamp_ms,
                version_counter,
            },
            self.reached.precision_ms,
        )
    }
}
