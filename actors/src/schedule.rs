//! `Schedule`: delivers what waits in the delay levels. Java: `ScheduleMessageService`.
//!
//! Invariants:
//! - never early, and at most some milliseconds late: it wakes when the next message is due;
//! - each level keeps the order in which its messages were stored;
//! - a message that cannot be stored now is tried again, never passed over; one that can no longer be read, or
//!   whose topic was deleted, is passed over with a warning;
//! - its places are on disk a second after they changed, and at an orderly stop.
//!
//! Contents: `levels` the state.

pub mod levels;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::NewRecord;
use troupemq_codec::message::RecordView;
use troupemq_codec::message::properties::{REAL_QUEUE_ID, REAL_TOPIC, TAGS};
use troupemq_codec::request::DelayOffsetTable;
use troupemq_codec::topic::DataVersion;
use troupemq_store::dispatch::SCHEDULE_TOPIC;
use troupemq_store::tables::TableFile;

use crate::cast::BrokerCast;
use crate::detour::HALF_TOPIC;
use crate::held::{Held, Waiting, hold};
use crate::net::Refusal;
use crate::read_ahead::Records;
use crate::saving::{Saving, in_background};
use crate::send::{Own, store};
use levels::{Due, Places, TAKEN_MAX};

/// Longest time between two looks at the levels: a message that comes meanwhile waits longer than that.
const LOOK_EVERY_MS: i64 = 50;
/// Shortest such time.
const LOOK_SOONEST_MS: i64 = 1;
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
    passed: usize,
}

/// Deliver no more, and save. Sent by the node when it stops; what is answered is done when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "Waiting<Saved>")]
pub struct StopSchedule;

/// The places of the levels. Sent by GET_ALL_DELAY_OFFSET.
#[derive(Debug, Message)]
#[rtype(result = "DelayOffsetTable")]
pub struct AllPlaces;

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
    delivers: bool,
    stops: Option<Held<Saved>>,
    stopped: bool,
}

impl Schedule {
    /// The owner of the levels of `cast`, which went as far as `saved` says.
    pub fn new(
        cast: Arc<BrokerCast>,
        file: TableFile<DelayOffsetTable>,
        saved: DelayOffsetTable,
    ) -> Schedule {
        Schedule {
            places: Places::new(cast.detours.levels().clone(), saved.offset_table),
            version: saved.data_version,
            cast,
            file,
            saving: Saving::default(),
            changed: false,
            delivers: false,
            stops: None,
            stopped: false,
        }
    }

    /// What is due, and in how many milliseconds to look again.
    fn look(&self) -> (Vec<Due>, i64) {
        let now_ms = self.cast.now_ms();
        let mut due = Vec::new();
        let mut again_ms = LOOK_EVERY_MS;
        for level in self.places.levels() {
            let Some(queue) = self.cast.queues.get(SCHEDULE_TOPIC, level - 1) else { continue };
            let from = self.places.place(level, queue.min_offset(), queue.max_offset());
            if from >= queue.max_offset() || due.len() >= BATCH_MAX {
                continue;
            }
            if let Some(next_ms) = self.places.take(level, queue.units(from, TAKEN_MAX), now_ms, &mut due) {
                again_ms = again_ms.min(next_ms - now_ms);
            }
        }
        (due, again_ms.max(LOOK_SOONEST_MS))
    }

    fn look_in(&self, context: &mut Context<Schedule>, ms: i64) {
        context.notify_later(Look, Duration::from_millis(ms.unsigned_abs()));
    }

    fn table(&self) -> DelayOffsetTable {
        let offset_table: BTreeMap<i32, i64> = self.places.table().clone();
        DelayOffsetTable { data_version: self.version, offset_table }
    }

    fn save(&mut self, context: &mut Context<Schedule>) {
        if std::mem::take(&mut self.changed) {
            self.version = self.version.next(self.cast.now_ms());
            self.saving.changed();
        }
        if !self.saving.begins() {
            return;
        }
        let (file, table) = (self.file.clone(), self.table());
        in_background(
            context,
            move || file.save(&table),
            |schedule: &mut Schedule, saved, context| {
                if let Err(refusal) = &saved {
                    tracing::error!(remark = refusal.remark, "the places of the delay levels were not saved");
                }
                for waiter in schedule.saving.ended() {
                    waiter.answer(saved.clone());
                }
                schedule.save(context);
            },
        );
    }

    fn stop(&mut self, context: &mut Context<Schedule>) {
        if let Some(held) = self.stops.take() {
            self.saving.changed_for(held);
            self.save(context);
        }
    }
}

impl Actor for Schedule {
    type Context = Context<Schedule>;

    fn started(&mut self, context: &mut Context<Schedule>) {
        context.notify(Look);
        context.run_interval(SAVE_EVERY, Schedule::save);
    }
}

impl Handler<Look> for Schedule {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Context<Schedule>) {
        if self.stopped || self.delivers {
            return;
        }
        let (due, again_ms) = self.look();
        if due.is_empty() {
            return self.look_in(context, again_ms);
        }
        self.delivers = true;
        actix::spawn(deliver(self.cast.clone(), due, context.address()));
    }
}

impl Handler<Delivered> for Schedule {
    type Result = ();

    fn handle(&mut self, delivered: Delivered, context: &mut Context<Schedule>) {
        self.delivers = false;
        self.changed |= delivered.passed > 0;
        delivered.due.iter().take(delivered.passed).for_each(|due| self.places.passed(due));
        if self.stopped {
            self.stop(context);
        } else if delivered.passed < delivered.due.len() {
            self.look_in(context, AGAIN_AFTER_MS);
        } else {
            context.notify(Look);
        }
    }
}

impl Handler<StopSchedule> for Schedule {
    type Result = MessageResult<StopSchedule>;

    fn handle(&mut self, _: StopSchedule, context: &mut Context<Schedule>) -> Self::Result {
        let (held, waiting) = hold();
        self.stopped = true;
        self.stops = Some(held);
        if !self.delivers {
            self.stop(context);
        }
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
async fn deliver(cast: Arc<BrokerCast>, due: Vec<Due>, schedule: Addr<Schedule>) {
    let passed = passed(&cast, &due).await;
    // An actor that is gone needs no news.
    let _ = schedule.send(Delivered { due, passed }).await;
}

/// How many of `due`, from the front, are stored or can be passed over.
async fn passed(cast: &BrokerCast, due: &[Due]) -> usize {
    let records = Records::read(cast, due.iter().map(|due| due.unit)).await;
    let mut places = Vec::with_capacity(due.len());
    let mut messages = Vec::with_capacity(due.len());
    for (at, record) in records.iter().enumerate() {
        if let Some(message) = record.and_then(|record| delayed(cast, record)) {
            places.push(at);
            messages.push(message);
        }
    }
    let pieces: Vec<[&[u8]; 1]> = messages.iter().map(|message| [message.properties]).collect();
    let own: Vec<Own<'_>> = messages
        .iter()
        .zip(&pieces)
        .map(|(message, pieces)| Own { record: message.record(pieces), tags_code: message.tags_code })
        .collect();
    match store(cast, &own).await {
        Ok(stored) if stored.len() == own.len() => due.len(),
        Ok(stored) => places[stored.len()],
        Err(refusal) => {
            tracing::warn!(remark = refusal.remark, "delayed messages could not be delivered yet");
            places[0]
        }
    }
}

/// A message that leaves its delay.
struct Delayed<'a> {
    view: RecordView<'a>,
    topic: &'a str,
    queue_id: i32,
    properties: &'a [u8],
    tags_code: i64,
}

impl<'a> Delayed<'a> {
    fn record<'p>(&self, properties: &'p [&'p [u8]]) -> NewRecord<'p>
    where
        'a: 'p,
    {
        NewRecord {
            topic: self.topic,
            queue_id: self.queue_id,
            flag: self.view.flag(),
            sys_flag: self.view.sys_flag(),
            born_timestamp_ms: self.view.born_timestamp_ms(),
            born_host: self.view.born_host(),
            store_host: self.view.store_host(),
            reconsume_times: self.view.reconsume_times(),
            prepared_log_offset: self.view.prepared_log_offset(),
            body: self.view.body(),
            properties,
        }
    }
}

/// The message of a record of the delay topic; none if it has no target any more.
fn delayed<'a>(cast: &BrokerCast, bytes: &'a [u8]) -> Option<Delayed<'a>> {
    let view = RecordView::parse(bytes).ok()?;
    let [topic, queue_id, tags] = view.properties().pick([REAL_TOPIC, REAL_QUEUE_ID, TAGS]);
    let queue_id = queue_id.and_then(|id| id.parse().ok()).filter(|id: &i32| *id >= 0);
    let (Some(topic), Some(queue_id)) = (topic, queue_id) else {
        tracing::warn!(log_offset = view.log_offset(), "a delayed message says not where it goes");
        return None;
    };
    if topic == HALF_TOPIC || cast.directory.topic(topic).is_none() {
        tracing::warn!(topic, log_offset = view.log_offset(), "a delayed message has no topic any more");
        return None;
    }
    let properties = view.properties().as_bytes();
    Some(Delayed { view, topic, queue_id, properties, tags_code: tags_code_of(tags) })
}
