//! `CommitLog`: the one writer of the log. Java: `CommitLog.asyncPutMessage`.
//!
//! Invariants:
//! - batches are appended in the order they arrive, each whole or not at all;
//! - what waits in the mailbox when the actor's turn comes is appended together: many small batches cost one write;
//! - what was appended is dispatched: a batch that can no longer be handed to the dispatcher poisons the node;
//! - a poisoned node appends nothing.

use std::sync::Arc;

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

/// Messages a core actor takes in before it counts as full. A guard only: credits bound what is in flight.
pub(crate) const MAILBOX: usize = 65_536;
/// Bytes that are appended together; beyond it the log does not wait for the end of the mailbox.
const TOGETHER_BYTES: usize = 256 << 10;

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
    /// Not stored.
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
        self.reply.answer(Done { batch: self.batch, queues: self.queues, outcome });
    }
}

// ---- actor

/// Owner of the log's writer.
#[derive(Debug)]
pub struct CommitLog {
    /// The writer; none once the node stops.
    log: Option<LogWriter>,
    clock: NodeClock,
    dispatcher: Addr<Dispatcher>,
    nudge: Nudge,
    poison: Poison,
    /// Batches that came since the last append, in their order.
    waiting: Vec<Append>,
    waiting_bytes: usize,
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
            clock,
            dispatcher,
            nudge,
            poison,
            waiting: Vec::new(),
            waiting_bytes: 0,
            _vital: vital,
        }
    }

    /// Appends what came since the last time.
    fn append(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        if let Some(cause) = self.poison.cause() {
            let refusal = not_serving(cause);
            return waiting.into_iter().for_each(|append| append.refuse(refusal.clone()));
        }
        let Some(log) = &mut self.log else {
            let refusal = not_serving("the broker stops");
            return waiting.into_iter().for_each(|append| append.refuse(refusal.clone()));
        };
        let batches = waiting.iter_mut().map(|append| &mut append.batch);
        let appended = log.append_all(batches, self.clock.0.now_ms());
        for (append, appended) in waiting.drain(..).zip(appended) {
            match appended {
                Ok(appended) => {
                    self.nudge.wrote(appended.to);
                    self.hand_on(append, appended);
                }
                Err(error) => append.refuse(refusal_of(&error, &self.poison)),
            }
        }
        self.waiting = waiting;
    }

    fn hand_on(&self, append: Append, appended: Appended) {
        if let Err(undelivered) = self.dispatcher.try_send(Dispatch { append, appended }) {
            self.poison.trip("an appended batch could not be dispatched");
            undelivered.into_inner().append.refuse(Refusal::gone("Dispatcher"));
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
        if self.waiting.is_empty() {
            context.notify(Together);
        }
        self.waiting_bytes += append.batch.bytes.len();
        self.waiting.push(append);
        if self.waiting_bytes >= TOGETHER_BYTES {
            self.append();
        }
    }
}

impl Handler<Together> for CommitLog {
    type Result = ();

    fn handle(&mut self, _: Together, _: &mut Context<CommitLog>) {
        self.append();
    }
}

impl Handler<ReleaseLog> for CommitLog {
    type Result = MessageResult<ReleaseLog>;

    fn handle(&mut self, _: ReleaseLog, _: &mut Context<CommitLog>) -> Self::Result {
        self.append();
        MessageResult(self.log.take())
    }
}

/// What a client hears of a failed append. What cannot be trusted any more poisons the node.
fn refusal_of(error: &StoreError, poison: &Poison) -> Refusal {
    if matches!(error, StoreError::Poisoned { .. } | StoreError::Corrupt { .. }) {
        poison.trip(format!("append failed: {error}"));
    }
    not_serving(&error.to_string())
}

/// The answer of a broker that stores nothing, and why.
pub(crate) fn not_serving(cause: &str) -> Refusal {
    Refusal::new(
        ResponseCode::SERVICE_NOT_AVAILABLE,
        format!("service not available now. It may be caused by one of the following reasons: {cause}"),
    )
}
