//! `Dispatcher`: makes appended messages visible. Java: `ReputMessageService`.
//!
//! Invariants:
//! - batches are dispatched in the order of the log;
//! - where queues or index have no room, senders are refused with the cause and it is tried again until there is;
//! - a batch is answered after its units are published, so what is acknowledged is visible;
//! - units are published before the dispatcher looks whether somebody waits for the queue; who waits looks in
//!   the other order, so no arrival is missed.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_store::{Appended, DispatchWriter, LogReader, StoreError};

use crate::commit_log::{Append, MAILBOX, Outcome, not_stored};
use crate::config::NodeClock;
use crate::directory::QueueView;
use crate::flush::{AwaitFlush, Flush, Unflushed};
use crate::net::Refusal;
use crate::poison::{Poison, Vital};
use crate::queue::Arrived;

/// Time between two looks whether there is room for what could not be dispatched.
const ROOM_EVERY: Duration = Duration::from_secs(1);

// ---- messages

/// Batches that were appended together. Sent by `CommitLog` only; the requests in it are answered by the dispatcher,
/// or by `Flush` when they wait for the disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Dispatch {
    /// The requests in the order of the log, with their batches filled in, and where each stands in the log.
    pub stored: Vec<(Append, Appended)>,
}

/// Asked by queries and at the stop: answered when all that was appended before is visible everywhere, in
/// the index too.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Settle;

/// Asked at the stop, after the last append: gives the writer back, once.
#[derive(Debug, Message)]
#[rtype(result = "Option<DispatchWriter>")]
pub struct ReleaseWriter;

// ---- actor

/// Owner of the consume queues' and the index' writer.
#[derive(Debug)]
pub struct Dispatcher {
    /// The writer; none once the node stops.
    writer: Option<DispatchWriter>,
    flush: Option<Addr<Flush>>,
    log: LogReader,
    /// Queues of batches that could not be dispatched yet. The log takes nothing meanwhile, so these are at most
    /// the batches that were under way.
    late: Vec<Arc<QueueView>>,
    poison: Poison,
    clock: NodeClock,
    _vital: Vital,
}

impl Dispatcher {
    /// The owner of `writer`, which reads from `log` what it could not dispatch at once. With a `flush`, answers
    /// that ask for it wait for the disk.
    pub fn new(
        writer: DispatchWriter,
        log: LogReader,
        flush: Option<Addr<Flush>>,
        (poison, clock): (Poison, NodeClock),
    ) -> Dispatcher {
        let vital = poison.guard("Dispatcher");
        Dispatcher { writer: Some(writer), flush, log, late: Vec::new(), poison, clock, _vital: vital }
    }

    /// Refuses a batch that could not be dispatched, and sees to it that it is once there is room.
    fn wait_for_room(&mut self, append: Append, error: &StoreError, context: &mut Context<Dispatcher>) {
        if self.late.is_empty() {
            context.run_later(ROOM_EVERY, Dispatcher::catch_up);
        }
        self.late.extend(append.queues.iter().map(Arc::clone));
        append.refuse(not_stored(error));
    }

    /// Makes a batch visible and answers it, unless it waits for the disk.
    fn dispatch(
        &mut self,
        (mut append, appended): (Append, Appended),
        context: &mut Context<Dispatcher>,
    ) -> Option<Unflushed> {
        let Some(writer) = &mut self.writer else {
            append.refuse(Refusal::gone("Dispatcher"));
            return None;
        };
        match writer.dispatch(&append.batch, &appended) {
            Ok(()) => {
                append.stages.visible = self.clock.0.nanos();
                append.queues.iter().for_each(|queue| tell(queue));
                return self.finish(append, appended);
            }
            Err(error) if error.is_out_of_space() => self.wait_for_room(append, &error, context),
            Err(error) => {
                self.poison.trip(format!("dispatch failed: {error}"));
                append.refuse(Refusal::gone("Dispatcher"));
            }
        }
        None
    }

    fn catch_up(&mut self, context: &mut Context<Dispatcher>) {
        let Some(writer) = &mut self.writer else { return };
        match writer.catch_up(&self.log) {
            Ok(()) => std::mem::take(&mut self.late).iter().for_each(|queue| tell(queue)),
            Err(error) if error.is_out_of_space() => {
                context.run_later(ROOM_EVERY, Dispatcher::catch_up);
            }
            Err(error) => self.poison.trip(format!("dispatch failed: {error}")),
        }
    }

    fn finish(&self, append: Append, appended: Appended) -> Option<Unflushed> {
        let outcome = match appended.refused {
            None => Outcome::Stored,
            Some(error) => Outcome::StoredInPart(appended.records, not_stored(&error)),
        };
        if self.flush.is_some() && append.wait_for_disk {
            return Some(Unflushed { append, to: appended.to, outcome });
        }
        append.finish(outcome);
        None
    }

    fn await_flush(&self, unflushed: Vec<Unflushed>) {
        let Some(flush) = self.flush.as_ref().filter(|_| !unflushed.is_empty()) else { return };
        if let Err(undelivered) = flush.try_send(AwaitFlush(unflushed)) {
            let AwaitFlush(unflushed) = undelivered.into_inner();
            unflushed.into_iter().for_each(|batch| batch.append.finish(batch.outcome.not_in_time()));
        }
    }
}

impl Actor for Dispatcher {
    type Context = Context<Dispatcher>;

    fn started(&mut self, context: &mut Context<Dispatcher>) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<Dispatch> for Dispatcher {
    type Result = ();

    fn handle(&mut self, dispatch: Dispatch, context: &mut Context<Dispatcher>) {
        let stored = dispatch.stored.into_iter();
        let unflushed = stored.filter_map(|batch| self.dispatch(batch, context)).collect();
        self.await_flush(unflushed);
    }
}

impl Handler<Settle> for Dispatcher {
    type Result = ();

    fn handle(&mut self, _: Settle, _: &mut Context<Dispatcher>) {}
}

impl Handler<ReleaseWriter> for Dispatcher {
    type Result = MessageResult<ReleaseWriter>;

    fn handle(&mut self, _: ReleaseWriter, _: &mut Context<Dispatcher>) -> Self::Result {
        MessageResult(self.writer.take())
    }
}

/// Tells the actor of a queue that messages came, if anybody waits for them.
fn tell(queue: &QueueView) {
    if queue.is_waited_for()
        && let Some(actor) = queue.actor()
    {
        // One that is ending gives the pulls it holds back to their sessions. One whose mailbox is full has pulls to
        // park or arrivals to hear of in it, and looks at these messages with each: they are published already.
        let _ = actor.try_send(Arrived);
    }
}
