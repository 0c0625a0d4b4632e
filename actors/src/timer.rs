//! `Timer`: messages that name the time of their delivery, and their recall. Java: `TimerMessageStore`.
//!
//! Invariants:
//! - never early; a timer is taken when its own moment has come, not when its slot is over;
//! - a recall that was answered before the moment came is seen before the timer is taken;
//! - nothing is dropped because it failed: what cannot be stored now is tried again until it can, and so is what cannot
//!   be read, which holds up no other timer; only what the disk has not read for as long as messages are kept is given
//!   up, counted and named;
//! - what the check point counts as delivered is on the disk; what was delivered and is not in it after a kill is
//!   found in the log and not delivered again;
//! - a message waits on in the log: one that waits longer than the log keeps messages is stored anew in time;
//! - while entering or delivering is switched off, what waits for it stays where it is.
//!
//! Contents: `admit` who waits, `coming` what is not entered yet, `told` what is known of it, `enqueue` what a message
//! says, `enter` into the wheel, `dequeue` the open slots, `near` what need not be read twice, `name_hash` finds who is
//! cancelled, `deliver` out of it, `recall`, `again` what the disk could not read, `given_up` what it never could,
//! `pace` how many come and go, `report` what is told of them, `metrics` the file that tells how many wait.

pub mod admit;
mod again;
pub mod answers;
mod coming;
pub mod deliver;
pub mod dequeue;
pub mod enqueue;
mod enter;
mod given_up;
mod metrics;
pub mod name_hash;
mod near;
mod pace;
pub mod recall;
mod report;
pub mod told;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_codec::timer_record::TimerCheckpoint;
use troupemq_store::timer::{SlotUnits, TimerStore};
use troupemq_store::{StoreError, Unit};

use crate::cast::BrokerCast;
use crate::commit_log::MAILBOX;
use crate::delayed::{BATCH_BYTES, Before, Outcome, pause_ms};
use crate::deliverer::{Later, Stopping};
use crate::feed::{Fed, Feed};
use crate::held::{Held, Waiting as Awaiting, hold};
use crate::net::Refusal;
use crate::saving::{Saving, in_background};
use again::Again;
use coming::TIMER_QUEUE;
use deliver::{Loaded, READ_MAX, Unread, Unsure, Wanted};
use dequeue::{OpenSlots, Waiting};
use enqueue::{Marker, Said};
use given_up::Patience;
use metrics::{Counting, Metrics};
use near::{Near, Whole};
use pace::Pace;
pub use report::{Report, TimerReport};
use told::Told;

/// Longest time between two looks at what came and what is due.
const LOOK_EVERY_MS: i64 = 50;
/// Shortest such time.
const LOOK_SOONEST_MS: i64 = 1;
/// How long it waits for more to enter or to deliver, if all was taken: what comes together costs less.
const TOGETHER_MS: i64 = 4;
/// How long it waits after something could not be stored.
const AGAIN_AFTER_MS: i64 = 100;
/// Units and slots that the disk could not read above which no further slot is opened.
const AGAIN_MAX: usize = 65_536;
/// How long before its time a slot is opened: then its records are read when the first of them is due.
const OPEN_AHEAD_MS: i64 = 250;
/// How often the check point is noted.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How often files that are no longer needed are looked for, and the wheel is looked through.
const EXPIRE_EVERY: Duration = Duration::from_secs(30);

/// What whoever waits for a save is told.
type Saved = Result<(), Refusal>;

// ---- messages

/// Look at what came and what is due. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Look;

/// What was wanted is read. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Read {
    /// When it was asked for.
    now_ms: i64,
    new: Vec<(Unit, Said)>,
    /// The slot of each unit of slots that were opened.
    opened: Vec<i64>,
    /// Slots that the disk cannot read now.
    shut: Vec<SlotUnits>,
    loaded: Vec<Loaded>,
    unread: Unread,
}

/// What was taken was stored, so many from the front. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Delivered {
    due: Vec<Waiting>,
    outcome: Outcome,
    before: Before,
}

/// Deliver no more. Sent by the node when it stops; what is answered is done when nothing is being stored any more.
#[derive(Debug, Message)]
#[rtype(result = "Awaiting<()>")]
pub struct StopTimer;

/// Save the check point. Sent by the node when the disk has everything that was delivered; what is answered is done
/// when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "Awaiting<Saved>")]
pub struct SaveTimer;

// ---- actor

/// Owner of the wheel.
#[derive(Debug)]
pub struct Timer {
    cast: Arc<BrokerCast>,
    store: TimerStore,
    open: OpenSlots,
    /// What is known of those that were entered a moment ago.
    near: Near,
    /// Opened slots of which nothing need be read.
    whole: Whole,
    /// What is known of those that are not entered.
    told: Told,
    /// The messages of the timer topic.
    feed: Feed,
    /// The next look, if it is later.
    later: Later,
    unread: Unread,
    /// What the disk could not read.
    again: Again,
    patience: Patience,
    /// How often in a row the wheel could not be read.
    failed: u32,
    marker: Marker,
    /// Whether something is being read or stored.
    busy: bool,
    /// Everything that was stored before this time is entered.
    entered_ms: i64,
    /// What was due up to this time is taken, or was too much for one batch.
    taken_to_ms: i64,
    /// What may have been delivered before the start without being noted; none until that is known.
    before: Option<Before>,
    entered: Pace,
    delivered: Pace,
    saving: Saving<Held<Saved>>,
    saved: Option<TimerCheckpoint>,
    /// A check point, and how far the log must be on the disk before it may be noted.
    noted: Option<(TimerCheckpoint, u64)>,
    metrics: Metrics,
    stopping: Stopping,
}

impl Timer {
    /// The owner of the timers of `cast`.
    pub fn new(cast: Arc<BrokerCast>, store: TimerStore) -> Timer {
        let marker = cast.detours.marker().clone();
        let metrics = Metrics::open(&cast.store_dir, cast.now_ms());
        Timer {
            open: OpenSlots::new(store.read_to_ms()),
            near: Near::default(),
            whole: Whole::default(),
            told: Told::default(),
            cast,
            store,
            feed: Feed::default(),
            later: Later::default(),
            unread: Unread::default(),
            again: Again::default(),
            patience: Patience::default(),
            failed: 0,
            marker,
            busy: false,
            entered_ms: i64::MIN,
            taken_to_ms: i64::MIN,
            before: None,
            entered: Pace::default(),
            delivered: Pace::default(),
            saving: Saving::default(),
            saved: None,
            noted: None,
            metrics,
            stopping: Stopping::default(),
        }
    }

    /// What is to be read now.
    fn wanted(&mut self, now_ms: i64) -> Result<Wanted, StoreError> {
        let mut wanted = Wanted { new: self.new_units(), ..Wanted::default() };
        if !self.unread.is_empty() {
            wanted.unread = std::mem::take(&mut self.unread);
            return Ok(wanted);
        }
        if !self.whole.is_empty() {
            return Ok(wanted);
        }
        if let Some((units, slots)) = self.again.take(now_ms) {
            // Slots are read by themselves, as if they were opened now.
            match slots.is_empty() {
                true => wanted.unread = Unread::again(units),
                false => {
                    self.again.keep(units);
                    slots.iter().for_each(|slot| self.open.read(slot.slot_ms));
                    wanted.slots = slots;
                }
            }
            return Ok(wanted);
        }
        let ahead_ms = now_ms + OPEN_AHEAD_MS;
        let step_ms = self.store.precision_ms();
        let to_ms = ahead_ms - ahead_ms.rem_euclid(step_ms) + step_ms;
        if self.again.len() >= AGAIN_MAX {
            return Ok(wanted);
        }
        let opened = self.open.open_ahead(to_ms, step_ms, |from_ms| {
            let Some(slot_ms) = self.store.next_slot(from_ms, to_ms)? else { return Ok(None) };
            let slot = self.store.slot(slot_ms)?;
            let units = usize::try_from(slot.count).unwrap_or(0);
            wanted.slots.push(slot);
            Ok(Some((slot_ms, units)))
        });
        match opened {
            // Those that were opened are read; the failure shows again.
            Err(error) if wanted.is_empty() => Err(error),
            _ => Ok(wanted),
        }
    }

    /// Takes what is due: it is stored in its topic, or in the timer topic anew.
    fn due(&mut self, now_ms: i64) -> Vec<Waiting> {
        if self.cast.config.load().timer_stop_dequeue {
            return Vec::new();
        }
        let mut bytes = 0;
        self.taken_to_ms = now_ms.min(self.entered_ms);
        let mut taken = self.open.take(self.taken_to_ms, |waiting| {
            bytes += u64::from(waiting.size);
            bytes <= BATCH_BYTES || bytes == u64::from(waiting.size)
        });
        taken.retain(|waiting| {
            let has_rolled = self.rolled(waiting, now_ms);
            if has_rolled {
                self.open.done(waiting.slot_ms);
            }
            !has_rolled
        });
        taken
    }

    /// Enters a timer again whose slot is not its last. One that the log would lose before its next slot, or that
    /// the timer log does not take, has to be stored again instead.
    fn rolled(&mut self, waiting: &Waiting, now_ms: i64) -> bool {
        let Some(mark) = &waiting.rolls else { return false };
        // By another time it would go to another slot now, and stand in both.
        if self.store.went_round(waiting.log_offset, waiting.slot_ms) {
            return true;
        }
        // Counted from its slot, so that it is the same after a kill: the copy that was stored before is known then.
        let age_ms = self.store.slot_of(mark.slot_ms, waiting.slot_ms) - mark.stored_ms;
        if age_ms > self.store.kept_ms() {
            return false;
        }
        self.enter(mark, (waiting.log_offset, waiting.size), now_ms).is_ok()
    }

    /// Passes over slots that are done.
    fn finish(&mut self, now_ms: i64) -> Result<(), StoreError> {
        while let Some(slot_ms) = self.store.next_due(now_ms)?.filter(|slot_ms| self.open.is_done(*slot_ms)) {
            self.store.delivered(slot_ms);
        }
        self.open.opened_to(self.store.read_to_ms());
        self.open.close_before(self.store.read_to_ms());
        self.patience.close_before(self.store.read_to_ms());
        Ok(())
    }

    /// Forgets what may have been delivered before the start, if whatever was due then is passed.
    fn forget_before(&mut self, now_ms: i64) -> Result<(), StoreError> {
        if self.store.next_slot(self.store.read_to_ms(), now_ms)?.is_none() && self.not_entered().is_none() {
            self.before.get_or_insert_default().forget();
            self.store.forget_rounds();
        }
        Ok(())
    }

    /// Tries again, after a pause that grows, what the wheel could not be read for.
    fn wait_for_disk(&mut self, error: &StoreError, context: &mut Context<Timer>) {
        self.failed = self.failed.saturating_add(1);
        let pause_ms = pause_ms(self.failed);
        tracing::error!(%error, pause_ms, "timers wait until the disk can be read");
        self.look_in(context, pause_ms);
    }

    fn look_in(&mut self, context: &mut Context<Timer>, ms: i64) {
        self.later.look_in(context, Look, ms);
    }

    /// Delivers what is due, or waits until something is.
    fn go_on(&mut self, context: &mut Context<Timer>) {
        if self.stopping.is_asked() {
            return self.stopping.is_idle();
        }
        let now_ms = self.cast.now_ms();
        let due = self.due(now_ms);
        // Also while something is always due: the check point goes on, and so does the wheel, which goes round.
        // Nothing that is not entered yet is for a slot that was over when it was stored.
        let over_ms = now_ms.min(self.entered_ms).max(self.store.read_to_ms());
        let finished = self.finish(over_ms);
        if due.is_empty() {
            let to_enter = if self.feed.waits(now_ms) { 0 } else { self.to_enter() };
            if self.is_opening() || to_enter >= READ_MAX {
                return context.notify(Look);
            }
            if let Err(error) = finished.and_then(|()| self.forget_before(over_ms)) {
                return self.wait_for_disk(&error, context);
            }
            self.failed = 0;
            if to_enter > 0 {
                return self.look_in(context, TOGETHER_MS);
            }
            let is_off = self.cast.config.load().timer_stop_dequeue;
            let next_ms =
                self.open.next_ms().filter(|_| !is_off).map_or(LOOK_EVERY_MS, |next_ms| next_ms - now_ms);
            return self.look_in(context, next_ms.clamp(LOOK_SOONEST_MS, LOOK_EVERY_MS));
        }
        // A wheel that could not be read shows it again when nothing is due.
        self.busy = true;
        let before = self.before.take().unwrap_or_default();
        actix::spawn(deliver::deliver(self.cast.clone(), due, before, context.address()));
    }

    /// Whether not all timers of open slots are taken in.
    fn is_opening(&self) -> bool {
        !self.unread.is_empty() || !self.whole.is_empty()
    }

    /// Whether the last batch was all that was due.
    fn is_all_taken(&self) -> bool {
        self.open.next_ms().is_none_or(|next_ms| next_ms > self.taken_to_ms)
    }

    /// What may have been delivered without being noted; none if nothing may.
    fn unsure(&mut self) -> Result<Option<Unsure>, StoreError> {
        let (from_ms, now_ms) = (self.store.read_to_ms(), self.cast.now_ms());
        let first = self.not_entered();
        let slot_ms = self.store.next_slot(from_ms, now_ms + 1)?;
        let slot = slot_ms.map(|slot_ms| self.store.slot(slot_ms)).transpose()?;
        Ok((slot.is_some() || first.is_some()).then_some(Unsure { from_ms, first, slot }))
    }

    // ---- check point

    fn save(&mut self, context: &mut Context<Timer>) {
        if self.noted.is_none() && self.saved != Some(self.store.checkpoint()) {
            self.noted = Some((self.store.checkpoint(), self.cast.log.wrote_to()));
        }
        match self.noted {
            Some((checkpoint, to)) if self.cast.log.flushed_to() >= to => {
                self.noted = None;
                self.saved = Some(checkpoint);
                self.saving.changed();
            }
            _ => {}
        }
        let Some(checkpoint) = self.saved.filter(|_| self.saving.begins()) else { return };
        let flusher = self.store.flusher().clone();
        let counting = if self.stopping.is_asked() { self.counting() } else { None };
        in_background(
            context,
            move || {
                counting.into_iter().for_each(Counting::save);
                flusher.flush(&checkpoint)
            },
            |timer: &mut Timer, saved, context| {
                if let Err(refusal) = &saved {
                    timer.cast.poison.trip(format!("the timers could not be saved: {}", refusal.remark));
                }
                for waiter in timer.saving.ended(&saved) {
                    waiter.answer(saved.clone());
                }
                if timer.stopping.is_asked() {
                    timer.save(context);
                }
            },
            // A failure has ended the node: what could not be flushed is not tried again.
            |_, _| {},
        );
    }

    /// What is to be counted for `config/timermetrics`.
    fn counting(&mut self) -> Option<Counting> {
        let (report, now_ms) = (self.report(), self.cast.now_ms());
        self.metrics.count(report, &self.cast.directory, now_ms)
    }

    fn save_metrics(&mut self, _: &mut Context<Timer>) {
        if self.stopping.is_asked() || !self.metrics.is_due(self.cast.now_ms()) {
            return;
        }
        if let Some(counting) = self.counting() {
            actix_rt::task::spawn_blocking(move || counting.save());
        }
    }

    fn expire(&mut self, _: &mut Context<Timer>) {
        let (flusher, saved) = (self.store.flusher().clone(), self.saved);
        let Some(checkpoint) = saved else { return };
        actix_rt::task::spawn_blocking(move || {
            if let Err(error) = flusher.expire(&checkpoint) {
                tracing::warn!(%error, "old files of the timer log could not be deleted");
            }
            if let Err(error) = flusher.keep_in_memory() {
                tracing::warn!(%error, "slots of the timer wheel may have to be waited for");
            }
        });
    }
}

impl Actor for Timer {
    type Context = Context<Timer>;

    fn started(&mut self, context: &mut Context<Timer>) {
        context.set_mailbox_capacity(MAILBOX);
        self.save(context);
        context.notify(Look);
        context.run_interval(SAVE_EVERY, Timer::save);
        context.run_interval(EXPIRE_EVERY, Timer::expire);
        context.run_interval(metrics::LOOK_EVERY, Timer::save_metrics);
    }
}

impl Handler<Look> for Timer {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Context<Timer>) {
        if self.stopping.is_asked() || self.busy {
            return;
        }
        if self.before.is_none() {
            let unsure = match self.unsure() {
                Ok(Some(unsure)) => unsure,
                Ok(None) => {
                    self.before = Some(Before::default());
                    return context.notify(Look);
                }
                Err(error) => return self.wait_for_disk(&error, context),
            };
            self.busy = true;
            actix::spawn(deliver::look_back(self.cast.clone(), unsure, context.address()));
            return;
        }
        let now_ms = self.cast.now_ms();
        self.take_in_known();
        let mut wanted = match self.wanted(now_ms) {
            Ok(wanted) => wanted,
            Err(error) => return self.wait_for_disk(&error, context),
        };
        wanted.known = self.known_of(&mut wanted.slots);
        self.fetch(TIMER_QUEUE, context);
        if wanted.is_empty() {
            if !self.is_reading_new() {
                self.entered_ms = self.entered_ms.max(now_ms);
            }
            return self.go_on(context);
        }
        self.busy = true;
        let with = (now_ms, self.marker.clone());
        actix::spawn(deliver::read(self.cast.clone(), wanted, with, context.address()));
    }
}

impl Handler<Read> for Timer {
    type Result = ();

    fn handle(&mut self, read: Read, context: &mut Context<Timer>) {
        self.busy = false;
        self.unread = read.unread;
        read.opened.iter().for_each(|slot_ms| self.open.will_read(*slot_ms, 1));
        read.shut.iter().for_each(|slot| self.open.will_read(slot.slot_ms, 1));
        let mut unreadable = Vec::new();
        for (slot_ms, unit, said) in read.loaded {
            let at = (unit.log_offset.cast_unsigned(), unit.size.cast_unsigned());
            match said {
                Said::Timer(mark) => self.take_in(&mark, at, (slot_ms, unit.written_ms)),
                Said::Nothing => {
                    tracing::warn!(log_offset = at.0, "the message of a timer is no longer kept");
                }
                Said::Unreadable => {
                    unreadable.push((slot_ms, unit));
                    continue;
                }
            }
            self.open.read(slot_ms);
        }
        let now_ms = self.cast.now_ms();
        let (units, slots) = self.still_tried((unreadable, read.shut), now_ms);
        self.again.note(units, slots, now_ms);
        if let Err(error) = self.enter_new(read.new, read.now_ms) {
            tracing::warn!(%error, "timers could not be entered yet");
            return self.look_in(context, AGAIN_AFTER_MS);
        }
        self.go_on(context);
    }
}

impl Handler<Delivered> for Timer {
    type Result = ();

    fn handle(&mut self, delivered: Delivered, context: &mut Context<Timer>) {
        self.busy = false;
        self.before = Some(delivered.before);
        let (outcome, now_ms) = (delivered.outcome, self.cast.now_ms());
        self.delivered.add((outcome.passed - outcome.unreadable.len()) as u64, now_ms);
        let is_stuck = outcome.passed < delivered.due.len();
        let was_due = !delivered.due.is_empty();
        for (at, waiting) in delivered.due.into_iter().enumerate() {
            let log_offset = waiting.log_offset;
            match at < outcome.passed {
                true if outcome.is_done(at) => self.open.done(waiting.slot_ms),
                true if self.gives_up(waiting.slot_ms, (log_offset, waiting.size), now_ms) => {
                    self.open.done(waiting.slot_ms);
                }
                true => {
                    let pause_ms = self.open.put_off(waiting, now_ms);
                    tracing::error!(log_offset, pause_ms, "a timer waits until it can be read");
                }
                false => self.open.put_back(waiting),
            }
        }
        if self.stopping.is_asked() {
            self.stopping.is_idle();
        } else if is_stuck {
            self.look_in(context, AGAIN_AFTER_MS);
        } else if was_due && !self.is_opening() && self.is_all_taken() {
            self.look_in(context, TOGETHER_MS);
        } else {
            context.notify(Look);
        }
    }
}

impl Handler<StopTimer> for Timer {
    type Result = MessageResult<StopTimer>;

    fn handle(&mut self, _: StopTimer, _: &mut Context<Timer>) -> Self::Result {
        MessageResult(self.stopping.ask(!self.busy))
    }
}

impl Handler<SaveTimer> for Timer {
    type Result = MessageResult<SaveTimer>;

    fn handle(&mut self, _: SaveTimer, context: &mut Context<Timer>) -> Self::Result {
        let (held, waiting) = hold();
        if self.cast.poison.cause().is_some() {
            // The disk may never have what was delivered: it is looked for at the next start.
            held.answer(Ok(()));
            return MessageResult(waiting);
        }
        // The newest check point, even if one was taken that waits for the disk.
        (self.noted, self.saved) = (None, Some(self.store.checkpoint()));
        self.saving.changed_for(held);
        self.save(context);
        MessageResult(waiting)
    }
}

impl Handler<Report> for Timer {
    type Result = MessageResult<Report>;

    fn handle(&mut self, _: Report, _: &mut Context<Timer>) -> Self::Result {
        MessageResult(self.report())
    }
}
