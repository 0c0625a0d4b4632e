//! `Schedule`: delivers what waits in the delay levels. Java: `ScheduleMessageService`.
//!
//! Invariants:
//! - never early, and at most some milliseconds late: it wakes when the next message is due;
//! - each level keeps the order in which its messages were stored;
//! - a message that cannot be stored now is tried again, never passed over; one that the log no longer has, or whose
//!   topic was deleted, is passed over with a warning;
//! - one that the disk cannot read now is left behind by those that follow, and tried again after a pause that grows,
//!   also after a start, for as long as the log has it;
//! - units that are not in memory are read by a thread that may wait, and a level whose units the disk cannot read now
//!   holds up no other, see `feed`;
//! - a unit from before the start is believed only what its record says: it delivers no other message, is not early
//!   and holds nothing up;
//! - its places are on disk a second or two after they changed, once the log is, and at an orderly stop; what was
//!   delivered and is not in them after a kill is found in the log and not delivered again.
//!
//! Contents: `levels` the state, `look_up` what records say of units.

pub mod levels;
mod look_up;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_codec::request::DelayOffsetTable;
use troupemq_codec::topic::DataVersion;
use troupemq_store::dispatch::SCHEDULE_TOPIC;
use troupemq_store::tables::TableFile;

use crate::cast::BrokerCast;
use crate::commit_log::MAILBOX;
use crate::delayed::{self, BATCH_BYTES, Before, Leaving, Outcome};
use crate::deliverer::{Later, Stopping};
use crate::feed::{Fed, Feed};
use crate::held::{Held, Waiting, hold};
use crate::net::Refusal;
use crate::saving::{Saving, in_background};
use crate::topic::counters::Pair;
use levels::{Due, Places, TAKEN_MAX};

/// Group under which is counted what leaves the levels. Java: `SCHEDULE_CONSUMER`.
const CONSUMER: &str = "SCHEDULE_CONSUMER";
/// Longest time between two looks at the levels: a message that comes meanwhile waits longer than that.
const LOOK_EVERY_MS: i64 = 50;
/// Shortest such time.
const LOOK_SOONEST_MS: i64 = 1;
/// How long it waits for more that is due, if all was taken: what is delivered together costs less.
const TOGETHER_MS: i64 = 4;
/// How long it waits after a message could not be stored.
const AGAIN_AFTER_MS: i64 = 100;
/// How often changed places are saved.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Messages of one batch.
const BATCH_MAX: usize = 2 * TAKEN_MAX;

/// What whoever waits for a save is told.
type Saved = Result<(), Refusal>;

// ---- messages

/// Look at the levels. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Look;

/// What was taken was stored, so many from the front. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Delivered {
    due: Vec<Due>,
    outcome: Outcome,
    before: Before,
    /// What was looked up and is not due.
    looked_up: Vec<Due>,
    /// Whether more may be due than was taken.
    has_more: bool,
}

/// What was delivered before the start is known. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct LookedBack(Before);

/// Deliver no more. Sent by the node when it stops; what is answered is done when nothing is being stored any more.
#[derive(Debug, Message)]
#[rtype(result = "Waiting<()>")]
pub struct StopSchedule;

/// Save the places. Sent by the node when the disk has everything that was delivered; what is answered is done when
/// they are saved.
#[derive(Debug, Message)]
#[rtype(result = "Waiting<Saved>")]
pub struct SaveSchedule;

/// The places of the levels. Sent by GET_ALL_DELAY_OFFSET.
#[derive(Debug, Message)]
#[rtype(result = "DelayOffsetTable")]
pub struct AllPlaces;

/// What a look at the levels has found.
#[derive(Debug, Default)]
struct Found {
    /// What is due.
    due: Vec<Due>,
    /// What comes next in its level and is to be looked up, as its unit may be damaged.
    next: Vec<Due>,
    /// Whether more may be due.
    has_more: bool,
}

// ---- actor

/// Owner of the delay levels.
#[derive(Debug)]
pub struct Schedule {
    cast: Arc<BrokerCast>,
    places: Places,
    version: DataVersion,
    file: TableFile<DelayOffsetTable>,
    saving: Saving<Held<Saved>>,
    changed: bool,
    /// Places, and how far the log must be on the disk before they may be saved.
    noted: Option<(DelayOffsetTable, u64)>,
    /// Places that may be saved.
    ready: Option<DelayOffsetTable>,
    delivers: bool,
    /// The units of each level, by the number of its queue.
    feeds: BTreeMap<i32, Feed>,
    /// The next look, if it is later.
    later: Later,
    /// The level that is looked at first, from 0 on; the next time it is the next one.
    turn: i32,
    /// What may have been delivered before the start without being noted; none until that is known.
    before: Option<Before>,
    /// Levels of which that is not known, as the disk could not read what comes next in them.
    unknown: BTreeSet<i32>,
    stopping: Stopping,
}

impl Schedule {
    /// The owner of the levels of `cast`, which went as far as `saved` says.
    pub fn new(
        cast: Arc<BrokerCast>,
        file: TableFile<DelayOffsetTable>,
        saved: DelayOffsetTable,
    ) -> Schedule {
        cast.retention.tell_places(&saved.offset_table);
        let queues = cast.queues.of_topic(SCHEDULE_TOPIC);
        let last = queues.iter().map(|queue| queue.queue_id().saturating_add(1)).max().unwrap_or(0);
        let levels = cast.detours.levels().clone();
        if last > levels.max() {
            let configured = levels.max();
            tracing::warn!(
                last,
                configured,
                "what waits in levels that are configured no more comes at its time"
            );
        }
        Schedule {
            places: Places::new(levels, saved.offset_table, last),
            version: saved.data_version,
            cast,
            file,
            saving: Saving::default(),
            changed: false,
            noted: None,
            ready: None,
            delivers: false,
            feeds: BTreeMap::new(),
            later: Later::default(),
            turn: 0,
            before: None,
            unknown: BTreeSet::new(),
            stopping: Stopping::default(),
        }
    }

    /// What is due, and in how many milliseconds to look again.
    fn look(&mut self) -> (Found, i64) {
        let now_ms = self.cast.now_ms();
        // No level waits for ever behind others that always have something.
        let count = self.places.levels().count().try_into().unwrap_or(1);
        self.turn = (self.turn + 1) % count;
        let turn = self.turn;
        let mut found = Found::default();
        let mut again_ms = LOOK_EVERY_MS;
        for level in (0..count).map(|at| (at + turn) % count + 1) {
            let Some(queue) = self.cast.queues.get(SCHEDULE_TOPIC, level - 1) else { continue };
            let from = self.places.place(level, queue.min_offset(), queue.max_offset());
            if from >= queue.max_offset() || found.due.len() >= BATCH_MAX {
                continue;
            }
            let units = self.feeds.entry(queue.queue_id()).or_default().look(&queue, from, TAKEN_MAX);
            if self.unknown.contains(&level) {
                continue;
            }
            let Some((next, next_ms)) = self.places.take(level, units, now_ms, &mut found.due) else {
                continue;
            };
            again_ms = again_ms.min(next_ms - now_ms);
            if queue.is_doubtful(&next.unit) && self.places.as_looked_up(level, &next.unit).is_none() {
                found.next.push(next);
            }
        }
        if let Some(next_ms) = self.places.again(now_ms, &mut found.due) {
            again_ms = again_ms.min(next_ms - now_ms);
        }
        let sizes = found.due.iter().map(|due| due.unit.size);
        let fitting = delayed::fitting(sizes, BATCH_BYTES);
        found.has_more = found.due.len() > fitting.min(TAKEN_MAX - 1);
        found.due.truncate(fitting);
        (found, again_ms.max(LOOK_SOONEST_MS))
    }

    /// The time from which deliveries may not be noted: when the first message was due that is not passed. Nothing
    /// while a thread reads which that is; a level of which the disk cannot read that is left for later.
    fn unsure_from_ms(&mut self) -> Poll<Option<i64>> {
        let (mut due, mut is_ready) = (Vec::new(), true);
        self.unknown.clear();
        for level in self.places.levels() {
            let Some(queue) = self.cast.queues.get(SCHEDULE_TOPIC, level - 1) else { continue };
            let from = self.places.place(level, queue.min_offset(), queue.max_offset());
            let feed = self.feeds.entry(queue.queue_id()).or_default();
            let first = feed.look(&queue, from, 1).next();
            match first {
                Some(unit) => due.push(unit.tags_code),
                None if feed.has_failed() => _ = self.unknown.insert(level),
                None => is_ready &= !feed.lacks(),
            }
        }
        let now_ms = self.cast.now_ms();
        let first_due = || due.into_iter().filter(|due_ms| *due_ms <= now_ms).min();
        if is_ready { Poll::Ready(first_due()) } else { Poll::Pending }
    }

    /// Whether the disk reads what comes next in a level of which it is not known what was delivered before the start.
    fn knows_more(&self) -> bool {
        let is_read = |level: &i32| self.feeds.get(&(level - 1)).is_some_and(|feed| !feed.has_failed());
        self.unknown.iter().any(is_read)
    }

    /// Begins to find out what was delivered before the start, if there is something to find out.
    fn look_back(&mut self, context: &mut Context<Schedule>) {
        self.before = None;
        match self.unsure_from_ms() {
            Poll::Ready(None) => self.before = Some(Before::default()),
            Poll::Ready(Some(from_ms)) => {
                self.delivers = true;
                actix::spawn(look_back(self.cast.clone(), from_ms, context.address()));
            }
            Poll::Pending => self.look_in(context, LOOK_EVERY_MS),
        }
        self.fetch_all(context);
    }

    /// Has threads read what the levels lack.
    fn fetch_all(&mut self, context: &mut Context<Schedule>) {
        let lacking = self.feeds.iter().filter(|(_, feed)| feed.lacks()).map(|(queue_id, _)| *queue_id);
        for queue_id in lacking.collect::<Vec<_>>() {
            self.fetch(queue_id, context);
        }
    }

    /// Moves the places past what was taken; what cannot be read is left behind.
    fn pass(&mut self, due: &[Due], outcome: &Outcome) {
        let now_ms = self.cast.now_ms();
        let mut gone = Vec::with_capacity(outcome.passed);
        for (at, one) in due.iter().take(outcome.passed).enumerate() {
            if outcome.is_done(at) {
                self.places.passed(one);
                gone.push(*one);
                continue;
            }
            let tries = self.places.leave(one, now_ms);
            let (level, queue_offset, pause_ms) =
                (one.level, one.unit.queue_offset, delayed::pause_ms(tries));
            tracing::error!(
                level,
                queue_offset,
                tries,
                pause_ms,
                "a delayed message waits until it can be read"
            );
        }
        self.count(&gone);
    }

    /// Counts what left its level, as Java does: as taken by a group of its own.
    fn count(&self, passed: &[Due]) {
        for of_level in passed.chunk_by(|one, next| one.level == next.level) {
            let taken = of_level.iter().filter(|due| !due.unit.is_hole());
            let bytes = taken.clone().map(|due| usize::try_from(due.unit.size).unwrap_or(0)).sum();
            let calls = taken.count();
            if calls > 0 {
                let of = (CONSUMER, of_level[0].level - 1);
                self.cast.count_got(SCHEDULE_TOPIC, of, &Pair::of(calls, bytes, calls, 0));
            }
        }
    }

    fn look_in(&mut self, context: &mut Context<Schedule>, ms: i64) {
        self.later.look_in(context, Look, ms);
    }

    fn table(&self) -> DelayOffsetTable {
        DelayOffsetTable { data_version: self.version, offset_table: self.places.table() }
    }

    fn save(&mut self, context: &mut Context<Schedule>) {
        if self.changed && self.noted.is_none() {
            self.changed = false;
            self.version = self.version.next(self.cast.now_ms());
            self.cast.retention.tell_places(self.places.next());
            self.noted = Some((self.table(), self.cast.log.wrote_to()));
        }
        // What counts as delivered must be on the disk: a message that waited for hours must not be lost then.
        let flushed_to = self.cast.log.flushed_to();
        if let Some((table, _)) = self.noted.take_if(|(_, to)| flushed_to >= *to) {
            self.ready = Some(table);
            self.saving.changed();
        }
        if !self.saving.begins() {
            return;
        }
        let (file, table) = (self.file.clone(), self.ready.take().unwrap_or_else(|| self.table()));
        in_background(
            context,
            move || file.save(&table),
            |schedule: &mut Schedule, saved, context| {
                if let Err(refusal) = &saved {
                    tracing::error!(remark = refusal.remark, "the places of the delay levels were not saved");
                }
                for waiter in schedule.saving.ended(&saved) {
                    waiter.answer(saved.clone());
                }
                schedule.save(context);
            },
            Schedule::save_again,
        );
    }

    /// Tries a save again that failed.
    fn save_again(&mut self, context: &mut Context<Schedule>) {
        self.saving.again();
        self.save(context);
    }
}

impl Actor for Schedule {
    type Context = Context<Schedule>;

    fn started(&mut self, context: &mut Context<Schedule>) {
        context.set_mailbox_capacity(MAILBOX);
        context.notify(Look);
        context.run_interval(SAVE_EVERY, Schedule::save);
    }
}

impl Fed for Schedule {
    fn feed(&mut self, queue_id: i32) -> &mut Feed {
        self.feeds.entry(queue_id).or_default()
    }

    fn now_ms(&self) -> i64 {
        self.cast.now_ms()
    }

    fn fed(&mut self, context: &mut Context<Schedule>) {
        if !self.delivers && !self.stopping.is_asked() {
            self.look_in(context, LOOK_SOONEST_MS);
        }
    }
}

impl Handler<Look> for Schedule {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Context<Schedule>) {
        if self.stopping.is_asked() || self.delivers {
            return;
        }
        if self.before.is_none() || self.knows_more() {
            self.look_back(context);
        }
        if self.delivers || self.before.is_none() {
            return;
        }
        let (found, again_ms) = self.look();
        self.fetch_all(context);
        if found.due.is_empty() && found.next.is_empty() {
            // Whatever was due before the start is passed, but for what cannot be read.
            let before = self.before.get_or_insert_default();
            if !self.places.has_left() && self.unknown.is_empty() {
                before.forget();
            }
            return self.look_in(context, again_ms);
        }
        self.delivers = true;
        let before = self.before.take().unwrap_or_default();
        let with = (before, self.places.room());
        actix::spawn(deliver(self.cast.clone(), found, with, context.address()));
    }
}

impl Handler<Delivered> for Schedule {
    type Result = ();

    fn handle(&mut self, delivered: Delivered, context: &mut Context<Schedule>) {
        self.delivers = false;
        self.before = Some(delivered.before);
        let Delivered { due, outcome, looked_up, has_more, .. } = delivered;
        self.changed |= outcome.passed > 0;
        looked_up.into_iter().for_each(|one| self.places.looked_up(one));
        self.pass(&due, &outcome);
        if self.stopping.is_asked() {
            self.stopping.is_idle();
        } else if outcome.passed < due.len() {
            self.look_in(context, AGAIN_AFTER_MS);
        } else if !has_more && !due.is_empty() {
            self.look_in(context, TOGETHER_MS);
        } else {
            context.notify(Look);
        }
    }
}

impl Handler<LookedBack> for Schedule {
    type Result = ();

    fn handle(&mut self, LookedBack(before): LookedBack, context: &mut Context<Schedule>) {
        self.delivers = false;
        self.before = Some(before);
        if self.stopping.is_asked() { self.stopping.is_idle() } else { context.notify(Look) }
    }
}

impl Handler<StopSchedule> for Schedule {
    type Result = MessageResult<StopSchedule>;

    fn handle(&mut self, _: StopSchedule, _: &mut Context<Schedule>) -> Self::Result {
        MessageResult(self.stopping.ask(!self.delivers))
    }
}

impl Handler<SaveSchedule> for Schedule {
    type Result = MessageResult<SaveSchedule>;

    fn handle(&mut self, _: SaveSchedule, context: &mut Context<Schedule>) -> Self::Result {
        let (held, waiting) = hold();
        if self.cast.poison.cause().is_some() {
            // The disk may never have what was delivered: it is looked for at the next start.
            held.answer(Ok(()));
            return MessageResult(waiting);
        }
        (self.noted, self.changed) = (None, false);
        self.version = self.version.next(self.cast.now_ms());
        self.ready = Some(self.table());
        self.saving.changed_for(held);
        self.save(context);
        MessageResult(waiting)
    }
}

impl Handler<AllPlaces> for Schedule {
    type Result = MessageResult<AllPlaces>;

    fn handle(&mut self, _: AllPlaces, _: &mut Context<Schedule>) -> Self::Result {
        MessageResult(self.table())
    }
}

// ---- delivery

/// Stores what is due in its topics and tells how much of it is done.
async fn deliver(
    cast: Arc<BrokerCast>,
    found: Found,
    (mut before, room): (Before, usize),
    schedule: Addr<Schedule>,
) {
    let Found { mut due, next, has_more } = found;
    let looked_up = look_up::compare(&cast, &mut due, next).await;
    let leaving: Vec<Leaving> = due.iter().map(|due| Leaving::level(due.unit)).collect();
    let outcome = delayed::deliver(&cast, &leaving, &mut before, room).await;
    // An actor that is gone needs no news.
    let _ = schedule.send(Delivered { due, outcome, before, looked_up, has_more }).await;
}

/// Looks back at what was delivered since `from_ms` before the start.
async fn look_back(cast: Arc<BrokerCast>, from_ms: i64, schedule: Addr<Schedule>) {
    let before = Before::read(&cast, from_ms).await;
    // An actor that is gone needs no news.
    let _ = schedule.send(LookedBack(before)).await;
}
