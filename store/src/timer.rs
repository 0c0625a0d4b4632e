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
mod messages;
mod peek;
mod placed;
mod recent;
mod recover;
mod slot;
mod wheel;

#[cfg(test)]
mod footprint_test;
#[cfg(test)]
mod timer_test;
#[cfg(test)]
mod unreadable_test;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use troupemq_codec::timer_record::{
    TimerCheckpoint, TimerSlot, TimerUnit, UNIT_DEFAULT, UNIT_DELETE, UNIT_ROLL,
};

pub(crate) use self::checkpoint::read as read_checkpoint;
pub use self::peek::TimerPeek;
pub use self::placed::{Placed, UnitAt};
pub use self::slot::SlotUnits;

use self::log::TimerLog;
use self::recent::Recent;
use self::wheel::{SLOTS, Wheel};
use crate::error::StoreError;
use crate::paths::Paths;
use crate::segments::Segments;

/// Topic that holds the messages that wait, in its queue 0.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";

/// How long before the last check point a message was stored at least of which it is sure that it was entered in time.
/// One that is due when it is stored is entered behind its time: it stands in the slot that is read next, and whether
/// that one was delivered is not known when the timer log is gone.
const SURE_MS: i64 = 60_000;

/// A timer that is to be entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewTimer {
    /// Offset of the message in queue 0 of the timer topic.
    pub queue_offset: i64,
    /// Its log offset.
    pub log_offset: u64,
    /// Bytes of its record.
    pub size: u32,
    /// When it was stored, epoch ms.
    pub stored_ms: i64,
    /// When it is due, a multiple of the precision (property `TIMER_OUT_MS`), epoch ms.
    pub due_ms: i64,
    /// Whether it cancels another timer.
    pub is_delete: bool,
    /// Java's hash of the topic the message goes to.
    pub topic_hash: i32,
}

/// Timers that were entered one after the other into one slot, and whose units are not in the log yet.
#[derive(Debug)]
struct Run {
    /// When all of them are due, as they say, epoch ms.
    due_ms: i64,
    /// Where they go.
    target: Target,
    /// The slot as it was.
    before: Option<TimerSlot>,
    /// The slot as it is now. The wheel learns of it when the run is over.
    now: TimerSlot,
    /// Timers more.
    count: i32,
    /// Whether the slot is `behind` because of it.
    is_behind: bool,
}

/// Where a timer goes.
#[derive(Debug, Clone, Copy)]
struct Target {
    slot_ms: i64,
    write_ms: i64,
    is_roll: bool,
}

/// The timers of a store.
#[derive(Debug)]
pub struct TimerStore {
    log: TimerLog,
    wheel: Wheel,
    recent: Recent,
    precision_ms: i64,
    /// Time ahead of now up to which timers go to their own slot.
    window_ms: i64,
    /// How long a message surely lies in the log.
    kept_ms: i64,
    pending: i64,
    /// How far delivery has come.
    reached: TimerCheckpoint,
    told: Arc<Told>,
    flusher: TimerFlusher,
    /// Slot times further back than the wheel is around, before `behind_to_ms`.
    behind: BTreeSet<i64>,
    behind_to_ms: i64,
    /// Messages before this queue offset had been entered or delivered at the last check point.
    entered_before: i64,
    /// Slot time before which everything entered had been delivered then.
    delivered_before_ms: i64,
    /// The last slot time of each message that was entered after that, by log offset: what went round again from a
    /// slot that is not noted as delivered is among them.
    entered_since: HashMap<u64, i64>,
}

/// Forces the timers to the disk, from a thread that may wait; clones do the same.
#[derive(Debug, Clone)]
pub struct TimerFlusher {
    segments: Arc<Segments>,
    wheel: Wheel,
    paths: Arc<TimerPaths>,
    /// Position up to which the log is on the disk.
    flushed_to: Arc<AtomicU64>,
    precision_ms: i64,
}

/// Shows from any thread what waits; clones show the same.
#[derive(Debug, Clone)]
pub struct TimerView {
    segments: Arc<Segments>,
    wheel: Wheel,
    paths: Arc<TimerPaths>,
    precision_ms: i64,
    told: Arc<Told>,
}

/// How far delivery has come, for other threads.
#[derive(Debug)]
struct Told {
    read_to_ms: AtomicI64,
    next_queue_offset: AtomicI64,
}

#[derive(Debug)]
struct TimerPaths {
    log: PathBuf,
    wheel: PathBuf,
    checkpoint: PathBuf,
}

impl Run {
    /// One more timer, whose unit will stand there.
    fn add(&mut self, position: i64, count: i32) {
        self.now.last = position;
        self.now.count = self.now.count.saturating_add(count);
        self.count += count;
    }
}

impl Told {
    fn new(read_to_ms: i64, next_queue_offset: i64) -> Told {
        Told { read_to_ms: AtomicI64::new(read_to_ms), next_queue_offset: AtomicI64::new(next_queue_offset) }
    }
}

impl TimerPaths {
    /// The files of the timers of a store.
    fn below(store: &Path) -> TimerPaths {
        let paths = Paths::below(store);
        TimerPaths {
            log: paths.timer_log(),
            wheel: paths.timer_wheel(),
            checkpoint: paths.timer_checkpoint(),
        }
    }
}

impl TimerStore {
    /// Offset in queue 0 of the timer topic of the next message to enter.
    pub fn next_queue_offset(&self) -> i64 {
        self.reached.queue_offset
    }

    /// Notes that all messages before `next` are entered.
    pub fn entered(&mut self, next: i64) {
        self.reached.queue_offset = next;
        // Java's broker goes by the smaller one.
        self.reached.master_queue_offset = next;
        self.told.next_queue_offset.store(next, Ordering::Relaxed);
    }

    /// First slot time (epoch ms) that is not delivered yet.
    pub fn read_to_ms(&self) -> i64 {
        self.reached.last_read_ms
    }

    /// Width of a slot in milliseconds.
    pub fn precision_ms(&self) -> i64 {
        self.precision_ms
    }

    /// How long a message surely lies in the log: one that waits longer must be stored again before that.
    pub fn kept_ms(&self) -> i64 {
        self.kept_ms
    }

    /// Timers that wait, cancellations taken off.
    pub fn pending(&self) -> i64 {
        self.pending
    }

    /// How far delivery has come: what [`TimerFlusher::flush`] makes last.
    pub fn checkpoint(&self) -> TimerCheckpoint {
        TimerCheckpoint { flushed_to: self.log.end().cast_signed(), ..self.reached }
    }

    /// The slot time to which a timer due at `due_ms` goes when it is entered at `now_ms`, as long as no units of
    /// another time are there.
    pub fn slot_of(&self, due_ms: i64, now_ms: i64) -> i64 {
        let due_ms = self.floor(due_ms).max(self.read_to_ms());
        self.within_window(due_ms, self.floor(now_ms).min(due_ms))
    }

    /// Enters a timer at `now_ms`, see [`Self::put_all`].
    pub fn put(&mut self, timer: &NewTimer, now_ms: i64) -> Result<Placed, StoreError> {
        let (placed, outcome) = self.put_all([*timer], now_ms);
        outcome.map(|()| placed[0])
    }

    /// Enters timers at `now_ms`, by few writes. One whose slot is delivered already goes to the first that is not. One
    /// that the files had lost may have been delivered from there: who takes it looks for it in the log.
    /// Answers where they went, of as many as are entered, from the front; and why the others are not.
    pub fn put_all(
        &mut self,
        timers: impl IntoIterator<Item = NewTimer>,
        now_ms: i64,
    ) -> (Vec<Placed>, Result<(), StoreError>) {
        let timers = timers.into_iter();
        let most = timers.size_hint().1.unwrap_or(0);
        let (mut placed, mut entered) = (Vec::with_capacity(most), 0);
        let mut runs = Vec::new();
        let mut outcome = Ok(());
        for timer in timers {
            if self.log.is_full() {
                if let Err(error) = self.append_staged(&mut runs) {
                    placed.truncate(entered);
                    return (placed, Err(error));
                }
                entered = placed.len();
            }
            match self.stage(&timer, now_ms, &mut runs) {
                Ok(place) => placed.push(place),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        match self.append_staged(&mut runs) {
            Ok(()) => (placed, outcome),
            Err(error) => {
                placed.truncate(entered);
                (placed, outcome.and(Err(error)))
            }
        }
    }

    /// Appends what is staged to the log. If that fails, the wheel is as it was before all these runs.
    fn append_staged(&mut self, runs: &mut Vec<Run>) -> Result<(), StoreError> {
        self.close_last(runs);
        let appended = self.log.append_staged();
        if appended.is_err() {
            runs.iter().rev().for_each(|run| self.undo(run));
        }
        runs.clear();
        appended
    }

    /// Tells the wheel of the last run.
    fn close_last(&mut self, runs: &[Run]) {
        let Some(Run { target, now, .. }) = runs.last() else { return };
        self.wheel.put(target.slot_ms, now.first, now.last, now.count);
        self.recent.note(*now);
    }

    fn undo(&mut self, run: &Run) {
        match run.before {
            Some(slot) => {
                self.wheel.put(run.target.slot_ms, slot.first, slot.last, slot.count);
                self.recent.note(slot);
            }
            None => {
                self.wheel.clear(run.target.slot_ms);
                self.recent.forget(run.now.time);
            }
        }
        self.pending -= i64::from(run.count);
        if run.is_behind {
            self.behind.remove(&run.target.slot_ms);
        }
    }

    /// Enters a timer into the wheel; its unit is not in the log yet.
    fn stage(&mut self, timer: &NewTimer, now_ms: i64, runs: &mut Vec<Run>) -> Result<Placed, StoreError> {
        if timer.queue_offset < self.entered_before && timer.stored_ms < self.delivered_before_ms - SURE_MS {
            let due_ms = self.floor(timer.due_ms);
            if due_ms < self.delivered_before_ms {
                return Ok(Placed::Done);
            }
        }
        // Timers that come together mostly go to one slot.
        let (target, before) = match runs.last() {
            Some(run) if run.due_ms == timer.due_ms => (run.target, Some(run.now)),
            _ => {
                self.close_last(runs);
                self.target(timer.due_ms, now_ms)?
            }
        };
        let Target { slot_ms, write_ms, is_roll } = target;
        let mut kind = UNIT_DEFAULT;
        kind |= if is_roll { UNIT_ROLL } else { 0 };
        kind |= if timer.is_delete { UNIT_DELETE } else { 0 };
        let delay_ms = i32::try_from(slot_ms - write_ms).expect("the window is shorter than 24 days");
        let previous = before.map_or(-1, |slot| slot.last);
        let position = self.log.stage(&TimerUnit {
            previous,
            kind,
            written_ms: write_ms,
            delay_ms,
            log_offset: timer.log_offset.cast_signed(),
            size: timer.size.cast_signed(),
            topic_hash: timer.topic_hash,
        })?;
        let position = position.cast_signed();
        let count = if timer.is_delete { -1 } else { 1 };
        match runs.last_mut().filter(|run| run.due_ms == timer.due_ms) {
            Some(run) => run.add(position, count),
            None => {
                let now = before.unwrap_or_else(|| {
                    let time = slot_ms.div_euclid(self.precision_ms);
                    TimerSlot { time, first: position, last: position, count: 0 }
                });
                let is_behind = slot_ms < self.behind_to_ms && self.behind.insert(slot_ms);
                let mut run = Run { due_ms: timer.due_ms, target, before, now, count: 0, is_behind };
                run.add(position, count);
                runs.push(run);
            }
        }
        self.pending += i64::from(count);
        let unit = UnitAt { position, previous, written_ms: write_ms };
        Ok(Placed::Slot { slot_ms, is_roll, unit })
    }

    /// Where a timer goes that is entered now, and what its slot holds; the slot can be stored to then.
    fn target(&self, due_ms: i64, now_ms: i64) -> Result<(Target, Option<TimerSlot>), StoreError> {
        let due_ms = self.floor(due_ms).max(self.read_to_ms());
        let write_ms = self.floor(now_ms).min(due_ms);
        let (slot_ms, before) = self.free_slot(self.within_window(due_ms, write_ms))?;
        self.wheel.reserve(&self.flusher.paths.wheel, slot_ms)?;
        Ok((Target { slot_ms, write_ms, is_roll: slot_ms != due_ms }, before))
    }

    /// Whether a message of a slot went round again before the store was opened: it stands in a later slot already.
    pub fn went_round(&self, log_offset: u64, slot_ms: i64) -> bool {
        self.entered_since.get(&log_offset).is_some_and(|later_ms| *later_ms > slot_ms)
    }

    /// Forgets what went round before the store was opened: everything that was due then is passed.
    pub fn forget_rounds(&mut self) {
        self.entered_since = HashMap::new();
    }

    /// The first slot time in `from_ms..to_ms` that has units.
    pub fn next_slot(&mut self, from_ms: i64, to_ms: i64) -> Result<Option<i64>, StoreError> {
        let near_ms = self.floor(to_ms - SLOTS.cast_signed() * self.precision_ms);
        if from_ms.max(self.behind_to_ms) < near_ms {
            // After a long stop: once through all slots, instead of through all that time.
            self.behind = self.wheel.times(self.read_to_ms(), near_ms)?;
            self.behind_to_ms = near_ms;
        }
        if let Some(behind_ms) = self.behind.range(from_ms..).next() {
            return Ok(Some(*behind_ms).filter(|behind_ms| *behind_ms < to_ms));
        }
        let mut time_ms = self.floor(from_ms.max(self.behind_to_ms));
        while time_ms < to_ms && self.wheel.get(time_ms)?.is_none() {
            time_ms += self.precision_ms;
        }
        Ok((time_ms < to_ms).then_some(time_ms))
    }

    /// The next slot time (epoch ms) with units whose step is over at `now_ms`. Empty slots in front of it are
    /// passed over and count as delivered.
    pub fn next_due(&mut self, now_ms: i64) -> Result<Option<i64>, StoreError> {
        let now_ms = self.floor(now_ms);
        let due_ms = self.next_slot(self.read_to_ms(), now_ms)?;
        self.reached.last_read_ms = self.read_to_ms().max(due_ms.unwrap_or(now_ms));
        self.told.read_to_ms.store(self.read_to_ms(), Ordering::Relaxed);
        Ok(due_ms)
    }

    /// The units of a slot, to be read where waiting is allowed.
    pub fn slot(&self, slot_ms: i64) -> Result<SlotUnits, StoreError> {
        self.view().slot(slot_ms)
    }

    /// The units of a slot, oldest first: cancellations and such that go round again among them.
    pub fn units(&self, slot_ms: i64) -> Result<Vec<TimerUnit>, StoreError> {
        self.slot(slot_ms)?.read()
    }

    /// Notes that every unit of the slot is delivered or entered again; nothing before it waits either. Its units
    /// stay where they are: the disk may know of the delivery later than of an empty slot.
    pub fn delivered(&mut self, slot_ms: i64) {
        let slot_ms = self.floor(slot_ms);
        if slot_ms < self.read_to_ms() {
            return;
        }
        match self.wheel.get(slot_ms) {
            Ok(slot) => self.pending -= i64::from(slot.map_or(0, |slot| slot.count)),
            Err(error) => tracing::warn!(%error, "the number of timers that wait is not right any more"),
        }
        self.reached.last_read_ms = slot_ms + self.precision_ms;
        self.told.read_to_ms.store(self.read_to_ms(), Ordering::Relaxed);
        self.behind = self.behind.split_off(&self.reached.last_read_ms);
    }

    /// What forces the timers to the disk.
    pub fn flusher(&self) -> &TimerFlusher {
        &self.flusher
    }

    /// What shows them.
    pub fn view(&self) -> TimerView {
        TimerView {
            segments: Arc::clone(self.log.segments()),
            wheel: self.wheel.clone(),
            paths: Arc::clone(&self.flusher.paths),
            precision_ms: self.precision_ms,
            told: Arc::clone(&self.told),
        }
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

    /// The first slot from `slot_ms` on that no undelivered units of another time occupy, and what it holds of its own.
    fn free_slot(&self, slot_ms: i64) -> Result<(i64, Option<TimerSlot>), StoreError> {
        let read_to_ms = self.read_to_ms();
        let mut free_ms = slot_ms;
        loop {
            if let Some(known) = self.recent.find(free_ms.div_euclid(self.precision_ms)) {
                return Ok((free_ms, Some(known)));
            }
            let (own, other_ms) = self.wheel.look(free_ms)?;
            if other_ms.is_none_or(|other_ms| other_ms < read_to_ms) {
                return Ok((free_ms, own));
            }
            free_ms += self.precision_ms;
        }
    }
}

impl TimerView {
    /// Width of a slot in milliseconds.
    pub fn precision_ms(&self) -> i64 {
        self.precision_ms
    }

    /// Offset in queue 0 of the timer topic of the next message to enter.
    pub fn next_queue_offset(&self) -> i64 {
        self.told.next_queue_offset.load(Ordering::Relaxed)
    }

    /// Log offset of the oldest message that a timer needs which is not delivered, and the time of its slot (epoch
    /// ms). Goes through all units; waits for the disk.
    pub fn oldest(&self) -> Result<Option<(u64, i64)>, StoreError> {
        let read_to_ms = self.told.read_to_ms.load(Ordering::Relaxed);
        let mut oldest: Option<(u64, i64)> = None;
        log::each(&self.segments, |_, unit| {
            let log_offset = unit.log_offset.cast_unsigned();
            if unit.due_ms() >= read_to_ms && oldest.is_none_or(|(known, _)| log_offset < known) {
                oldest = Some((log_offset, unit.due_ms()));
            }
        })?;
        Ok(oldest)
    }

    /// Timers that wait in the slot of a time (epoch ms); none where the disk cannot tell.
    pub fn count_at(&self, due_ms: i64) -> i32 {
        self.wheel.get(due_ms).ok().flatten().map_or(0, |slot| slot.count)
    }

    /// The slots from `from_ms` on that have units, with their number of timers, by time. Waits for the disk.
    pub fn counts(&self, from_ms: i64) -> Result<BTreeMap<i64, i32>, StoreError> {
        let mut counts = BTreeMap::new();
        self.wheel.each(&self.paths.wheel, from_ms, |time_ms, slot| {
            counts.insert(time_ms, slot.count);
        })?;
        Ok(counts)
    }

    /// The units of a slot.
    pub fn slot(&self, slot_ms: i64) -> Result<SlotUnits, StoreError> {
        let slot = self.wheel.get(slot_ms)?;
        Ok(SlotUnits::of(&self.segments, (slot_ms, self.precision_ms), slot))
    }
}

impl TimerFlusher {
    /// Forces to the disk what was put, then notes `reached`; waits for the disk. Whatever it counts as delivered
    /// must be on the disk already.
    pub fn flush(&self, reached: &TimerCheckpoint) -> Result<(), StoreError> {
        let log_end = reached.flushed_to.cast_unsigned();
        let flushed_to = self.flushed_to.load(Ordering::Relaxed);
        for segment in self.segments.snapshot().iter() {
            if segment.end() > flushed_to && segment.start() < log_end {
                segment.sync()?;
                segment.unmap(0..log_end);
            }
        }
        self.flushed_to.store(log_end, Ordering::Relaxed);
        self.wheel.flush(&self.paths.wheel)?;
        checkpoint::save(&self.paths.checkpoint, reached, self.precision_ms)
    }

    /// Looks through the wheel, of whose slots an arbiter asks: a page that is looked at every while stays in memory.
    /// Waits for the disk.
    ///
    /// # Errors
    /// If it cannot read the wheel.
    pub fn keep_in_memory(&self) -> Result<(), StoreError> {
        self.wheel.each(&self.paths.wheel, i64::MAX, |_, _| {})
    }

    /// Deletes the files of the timer log, except the last, all of whose timers were delivered before `reached`;
    /// tells how many. Notes first where the log will begin. Waits for the disk.
    pub fn expire(&self, reached: &TimerCheckpoint) -> Result<usize, StoreError> {
        let note = |log_start| checkpoint::note_log_start(&self.paths.checkpoint, log_start);
        log::expire(&self.segments, reached.last_read_ms, note)
    }
}
