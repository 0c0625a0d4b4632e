//! `CommitLog`: the one writer of the log. Java: `CommitLog.asyncPutMessage`.
//!
//! Invariants:
//! - batches are appended in the order they arrive, each whole or not at all;
//! - what waits in the mailbox when the actor's turn comes is appended together: many small batches cost one write;
//! - it never waits for a segment: batches are held, in order, until it is ready, and refused if that takes too
//!   long;
//! - what was appended is dispatched: a batch that can no longer be handed to the dispatcher poisons the node;
//! - a poisoned node appends nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::SendError;
use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_codec::ResponseCode;
use troupemq_store::{AppendBatch, Appended, CommitLog as LogWriter, StoreError};

use crate::config::NodeClock;
use crate::credits::Credit;
use crate::directory::QueueView;
use crate::dispatcher::{Dispatch, Dispatcher};
use crate::flush::Nudge;
use crate::held::Held;
use crate::net::Refusal;
use crate::poison::{Poison, Vital};
use crate::send::slow::Stages;

/// Messages a core actor takes in before it counts as full. A guard only: credits bound what is in flight.
pub(crate) const MAILBOX: usize = 65_536;
/// Bytes that are appended together; beyond it the log does not wait for the end of the mailbox.
const TOGETHER_BYTES: usize = 256 << 10;

/// Batches held for a segment; one more is refused. Their bytes are bounded by the credits they keep.
const HELD_MAX: usize = 65_536;
/// Time between two looks whether the segment is ready.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long batches are held for it.
const PATIENCE: Duration = Duration::from_secs(5);

// ---- messages

/// Wanted by a session, or by an actor that stores messages of its own: append these records.
/// Answered through `reply` when they are visible and, if asked for, on disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Append {
    /// The records, holes not filled.
    pub batch: AppendBatch,
    /// The queues the batch touches, each once.
    pub queues: Vec<Arc<QueueView>>,
    /// Whether the answer waits for the disk in sync mode.
    pub wait_for_disk: bool,
    /// The bytes this batch took from the node's purse.
    pub credit: Option<Credit>,
    /// When it came how far.
    pub stages: Stages,
    /// Whom to answer.
    pub reply: Held<Done>,
}

/// The answer to `Append`: the batch comes back, with its offsets filled in if it was stored.
#[derive(Debug)]
pub struct Done {
    /// The records with their holes filled.
    pub batch: AppendBatch,
    /// The queues the batch touched.
    pub queues: Vec<Arc<QueueView>>,
    /// When it came how far.
    pub stages: Stages,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Stored, visible and as durable as was asked for.
    Stored,
    /// Stored and visible, but the disk did not confirm in time.
    NotFlushedInTime,
    /// Only the first so many records are stored; why the others are not.
    StoredInPart(usize, Refusal),
    /// Not stored; or stored, and never known to be on the disk because the node ends.
    Refused(Refusal),
}

impl Outcome {
    /// How many of `records` are stored.
    pub fn stored(&self, records: usize) -> usize {
        match self {
            Outcome::Stored | Outcome::NotFlushedInTime => records,
            Outcome::StoredInPart(stored, _) => *stored,
            Outcome::Refused(_) => 0,
        }
    }

    /// The same when the disk did not confirm in time. Of a batch that is stored in part, all is refused then: what
    /// is refused may be there all the same, what is acknowledged must be.
    pub(crate) fn not_in_time(self) -> Outcome {
        match self {
            Outcome::Stored => Outcome::NotFlushedInTime,
            Outcome::StoredInPart(_, refusal) => Outcome::Refused(refusal),
            other => other,
        }
    }
}

/// Asked at the stop, after the last append: gives the writer back, once.
#[derive(Debug, Message)]
#[rtype(result = "Option<LogWriter>")]
pub struct ReleaseLog;

/// Told by the log to itself: the mailbox is empty, append what came.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Together;

impl Append {
    /// Ends the request without storing it.
    pub(crate) fn refuse(self, refusal: Refusal) {
        self.finish(Outcome::Refused(refusal));
    }

    /// Ends the request.
    pub(crate) fn finish(self, outcome: Outcome) {
        drop(self.credit);
        self.reply.answer(Done { batch: self.batch, queues: self.queues, stages: self.stages, outcome });
    }
}

// ---- actor

/// Owner of the log's writer.
#[derive(Debug)]
pub struct CommitLog {
    /// The writer; none once the node stops.
    log: Option<LogWriter>,
    /// When what waits for the next segment is given up, in the clock's nanoseconds; none while nothing does.
    held_until: Option<u64>,
    clock: NodeClock,
    dispatcher: Addr<Dispatcher>,
    nudge: Nudge,
    poison: Poison,
    /// Batches that came since the last append, in their order.
    waiting: VecDeque<Append>,
    waiting_bytes: usize,
    /// Those that are being appended; kept for its memory.
    taken: Vec<Append>,
    _vital: Vital,
}

impl CommitLog {
    /// The owner of `log`, which hands what it appends to `dispatcher` and wakes the flusher by `nudge`.
    pub fn new(
        log: LogWriter,
        clock: NodeClock,
        dispatcher: Addr<Dispatcher>,
        nudge: Nudge,
        poison: Poison,
    ) -> CommitLog {
        let vital = poison.guard("CommitLog");
        CommitLog {
            log: Some(log),
            held_until: None,
            clock,
            dispatcher,
            nudge,
            poison,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            taken: Vec::new(),
            _vital: vital,
        }
    }

    /// Appends what came since the last time, as far as the log takes it without waiting for a segment.
    fn append(&mut self, context: &mut Context<CommitLog>) {
        if let Some(cause) = self.poison.cause() {
            let refusal = not_serving(cause);
            return self.refuse_waiting(&refusal);
        }
        let Some(log) = &mut self.log else { return self.refuse_waiting(&not_serving("the broker stops")) };
        let ready = ready(&self.waiting, log.room_for(self.waiting_bytes));
        let mut taken = std::mem::take(&mut self.taken);
        taken.extend(self.waiting.drain(..ready));
        self.waiting_bytes -= taken.iter().map(|append| append.batch.bytes.len()).sum::<usize>();
        let is_waited_for = taken.iter().any(|append| append.wait_for_disk);
        let batches = taken.iter_mut().map(|append| &mut append.batch);
        let nudge = &mut self.nudge;
        let appended = log.append_all(batches, self.clock.0.now_ms(), |to| nudge.wrote(to, is_waited_for));
        let mut stored = Vec::with_capacity(taken.len());
        let now = self.clock.0.nanos();
        for (mut append, appended) in taken.drain(..).zip(appended) {
            match appended {
                Ok(appended) => {
                    append.stages.written = now;
                    stored.push((append, appended));
                }
                Err(error) => append.refuse(refusal_of(&error, &self.poison)),
            }
        }
        self.taken = taken;
        self.hand_on(stored);
        self.hold(ready > 0, context);
    }

    /// What is left waits for the next segment, which is looked for again and again for some time.
    fn hold(&mut self, has_moved: bool, context: &mut Context<CommitLog>) {
        if self.waiting.is_empty() {
            self.held_until = None;
            return;
        }
        let now = self.clock.0.nanos();
        let patience = u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX);
        let until = match self.held_until.filter(|_| !has_moved) {
            Some(until) => until,
            None => now.saturating_add(patience),
        };
        self.held_until = Some(until);
        if now >= until {
            let cause = format!("the next segment of the log is not ready after {PATIENCE:?}");
            return self.refuse_waiting(&not_serving(&cause));
        }
        context.run_later(LOOK_EVERY, CommitLog::append);
    }

    fn refuse_waiting(&mut self, refusal: &Refusal) {
        (self.waiting_bytes, self.held_until) = (0, None);
        self.waiting.drain(..).for_each(|append| append.refuse(refusal.clone()));
    }

    fn hand_on(&self, stored: Vec<(Append, Appended)>) {
        if stored.is_empty() {
            return;
        }
        if let Err(undelivered) = self.dispatcher.try_send(Dispatch { stored }) {
            self.poison.trip("an appended batch could not be dispatched");
            for (append, _) in undelivered.into_inner().stored {
                append.refuse(Refusal::gone("Dispatcher"));
            }
        }
    }
}

impl Actor for CommitLog {
    type Context = Context<CommitLog>;

    fn started(&mut self, context: &mut Context<CommitLog>) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<Append> for CommitLog {
    type Result = ();

    fn handle(&mut self, append: Append, context: &mut Context<CommitLog>) {
        if self.waiting.len() >= HELD_MAX {
            let cause = format!("the next segment of the log is not ready, and {HELD_MAX} batches wait");
            return append.refuse(not_serving(&cause));
        }
        let is_first = self.waiting.is_empty();
        self.waiting_bytes += append.batch.bytes.len();
        self.waiting.push_back(append);
        match self.held_until {
            Some(_) => {}
            None if self.waiting_bytes >= TOGETHER_BYTES => self.append(context),
            None if is_first => context.notify(Together),
            None => {}
        }
    }
}

impl Handler<Together> for CommitLog {
    type Result = ();

    fn handle(&mut self, _: Together, context: &mut Context<CommitLog>) {
        if self.held_until.is_none() {
            self.append(context);
        }
    }
}

impl Handler<ReleaseLog> for CommitLog {
    type Result = MessageResult<ReleaseLog>;

    fn handle(&mut self, _: ReleaseLog, context: &mut Context<CommitLog>) -> Self::Result {
        self.append(context);
        self.refuse_waiting(&not_serving("the broker stops"));
        MessageResult(self.log.take())
    }
}

/// How many of the batches go into the log now. One that is longer than the room goes if a segment is there for it.
fn ready(waiting: &VecDeque<Append>, (room, has_next): (usize, bool)) -> usize {
    let mut bytes = 0;
    let fits = |append: &&Append| {
        bytes += append.batch.bytes.len();
        bytes <= room
    };
    waiting.iter().take_while(fits).count().max(usize::from(has_next && !waiting.is_empty()))
}

/// What a client hears of a failed append. What cannot be trusted any more poisons the node.
fn refusal_of(error: &StoreError, poison: &Poison) -> Refusal {
    if matches!(error, StoreError::Poisoned { .. } | StoreError::Corrupt { .. }) {
        poison.trip(format!("append failed: {error}"));
    }
    not_stored(error)
}

/// The answer where the store takes nothing. A lack of room ends by itself: that is said too.
pub(crate) fn not_stored(error: &StoreError) -> Refusal {
    let when = if error.is_out_of_space() { "; whether there is room is looked at every second" } else { "" };
    not_serving(&format!("{error}{when}"))
}

/// The answer to a batch that could not be handed to the log.
pub(crate) fn not_taken(undelivered: &SendError<Append>) -> Refusal {
    match undelivered {
        SendError::Full(_) => Refusal::busy(format_args!("{MAILBOX} batches wait for the log")),
        SendError::Closed(_) => Refusal::gone("CommitLog"),
    }
}

/// The answer of a broker that stores nothing, and why.
pub(crate) fn not_serving(cause: &str) -> Refusal {
    Refusal::new(
        ResponseCode::SERVICE_NOT_AVAILABLE,
        format!("service not available now. It may be caused by one of the following reasons: {cause}"),
    )
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use troupemq_codec::message::NewRecord;
    use troupemq_store::{Opened, StoreConfig, SystemClock, open};

    use super::*;
    use crate::dispatcher::Settle;
    use crate::flush::FlushThread;
    use crate::held::hold;

    #[test]
    fn a_batch_that_was_stored_in_part_and_not_flushed_in_time_is_refused() {
        let refusal = not_serving("there is no next segment");
        assert_eq!(Outcome::Stored.not_in_time(), Outcome::NotFlushedInTime);
        let in_part = Outcome::StoredInPart(3, refusal.clone());
        assert_eq!(in_part.not_in_time(), Outcome::Refused(refusal));
    }

    #[test]
    fn a_batch_that_finds_no_room_at_the_dispatcher_is_refused_and_poisons_the_node() {
        let dir = tempfile::tempdir().unwrap();
        actix::System::new().block_on(async {
            let clock = NodeClock(Arc::new(SystemClock::new()));
            let opened = open(StoreConfig::in_dir(dir.path()), clock.0.clone()).unwrap();
            let Opened { mut log, reader, flusher, dispatch, queues, config, .. } = opened;
            let mut batch = AppendBatch::default();
            NewRecord { topic: "T", body: b"x", ..NewRecord::PLAIN }.encode(&mut batch.bytes).unwrap();
            batch.push(0, &queues.open_or_create("T", 0).unwrap(), 1, 0);
            let appended = log.append(&mut batch, 1).unwrap();
            let poison = Poison::new();
            let parts = (poison.clone(), clock.clone());
            let dispatcher = Dispatcher::new(dispatch, reader, None, parts).start();
            dispatcher.send(Settle).await.expect("it has started");
            let filled = (0..2 * MAILBOX).take_while(|_| dispatcher.try_send(Settle).is_ok()).count();
            assert!((MAILBOX..=MAILBOX + 1).contains(&filled), "{filled}");
            let config = Arc::new(ArcSwap::from_pointee(config));
            let (thread, _) = FlushThread::start(flusher, config.clone(), poison.clone()).unwrap();
            let actor = CommitLog::new(log, clock, dispatcher, Nudge::new(thread, config, 0), poison.clone());
            let (reply, waiting) = hold();
            let (queues, stages) = (Vec::new(), Stages::default());
            let append = Append { batch, queues, wait_for_disk: false, credit: None, stages, reply };
            actor.hand_on(vec![(append, appended)]);
            assert_eq!(poison.cause(), Some("an appended batch could not be dispatched"));
            let done = waiting.await.expect("it is answered");
            assert_eq!(done.outcome, Outcome::Refused(Refusal::gone("Dispatcher")));
        });
    }
}
