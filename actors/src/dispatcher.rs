//! `Dispatcher`: makes appended messages visible. Java: `ReputMessageService`.
//!
//! Invariants:
//! - batches are dispatched in the order of the log;
//! - a batch is answered after its units are published, so what is acknowledged is visible;
//! - units are published before the dispatcher looks whether somebody waits for the queue; who waits looks in
//!   the other order, so no arrival is missed.

use actix::{Actor, Addr, Context, Handler, Message, MessageResult};
use troupemq_store::{Appended, DispatchWriter};

use crate::commit_log::{Append, MAILBOX, Outcome, not_serving};
use crate::directory::QueueView;
use crate::flush::{AwaitFlush, Flush};
use crate::net::Refusal;
use crate::poison::{Poison, Vital};
use crate::queue::Arrived;

// ---- messages

/// An appended batch. Sent by `CommitLog` only; the request in it is answered by the dispatcher, or by
/// `Flush` when it waits for the disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Dispatch {
    /// The request, with its batch filled in.
    pub append: Append,
    /// Where it stands in the log.
    pub appended: Appended,
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
    poison: Poison,
    _vital: Vital,
}

impl Dispatcher {
    /// The owner of `writer`. With a `flush`, answers that ask for it wait for the disk.
    pub fn new(writer: DispatchWriter, flush: Option<Addr<Flush>>, poison: Poison) -> Dispatcher {
        let vital = poison.guard("Dispatcher");
        Dispatcher { writer: Some(writer), flush, poison, _vital: vital }
    }

    fn finish(&self, append: Append, appended: Appended) {
        let to = appended.to;
        if let Some(error) = appended.refused {
            return append.finish(Outcome::StoredInPart(appended.records, not_serving(&error.to_string())));
        }
        match self.flush.as_ref().filter(|_| append.wait_for_disk) {
            None => append.finish(Outcome::Stored),
            Some(flush) => {
                if let Err(undelivered) = flush.try_send(AwaitFlush { append, to }) {
                    undelivered.into_inner().append.finish(Outcome::NotFlushedInTime);
                }
            }
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

    fn handle(&mut self, dispatch: Dispatch, _: &mut Context<Dispatcher>) {
        let Dispatch { append, appended } = dispatch;
        let Some(writer) = &mut self.writer else { return append.refuse(Refusal::gone("Dispatcher")) };
        if let Err(error) = writer.dispatch(&append.batch, &appended) {
            self.poison.trip(format!("dispatch failed: {error}"));
            return append.refuse(Refusal::gone("Dispatcher"));
        }
        append.queues.iter().for_each(|queue| tell(queue));
        self.finish(append, appended);
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

/// Tells the actor of a queue that messages came, if anybody waits for them. An actor that cannot be told
/// is ending; the pulls it holds go back to their sessions by that.
fn tell(queue: &QueueView) {
    if queue.is_waited_for()
        && let Some(actor) = queue.actor()
    {
        let _ = actor.try_send(Arrived);
    }
}
