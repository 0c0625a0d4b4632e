//! `Retry`: messages that a consumer failed with and wants again later, or no more. Java:
//! `AbstractSendMessageProcessor.consumerSendMsgBack`.
//!
//! Invariants:
//! - the copy keeps body, flag, tags, keys, unique id and birth of the message, and the id and topic of the first;
//! - what becomes of a message is decided in `next`, for those that are sent back and for those that consumers send
//!   to their retry topic themselves;
//! - messages that come together are stored together; those of one group in the order in which they were sent back,
//!   also where its topics are only being made or a record is read from the disk;
//! - one that has to wait for its record or topic holds up no other group;
//! - each is answered once, when its copy is stored or cannot be.
//!
//! Contents: `next` what becomes of a message, `copies` what is stored of it, `in_order` who goes before whom,
//! `answers` the request.

pub mod answers;
mod copies;
mod in_order;
pub mod next;

use std::future::Future;
use std::sync::Arc;
use std::task::{self, Poll, Waker};

use actix::{Actor, AsyncContext, Context, Handler, Message};
use troupemq_codec::Text;
use troupemq_codec::request::ConsumerSendMsgBackHeader;

use crate::cast::BrokerCast;
use crate::commit_log::MAILBOX;
use crate::held::Held;
use crate::net::Refusal;
use crate::together::{Together, WAITING_MAX};
use copies::Copy;
use in_order::{InOrder, Turn};

/// Who waits for a message to be stored again.
type Waiter = Held<Result<(), Refusal>>;

// ---- messages

/// Deliver a message again later, or no more. Sent by CONSUMER_SEND_MSG_BACK; answered when its copy is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SendBack {
    /// Which message, and what its consumer wants.
    pub header: ConsumerSendMsgBackHeader,
    /// The version of the client that asks.
    pub version: i32,
    /// Who asks.
    pub reply: Waiter,
}

/// What a message that was sent back needs is there: its copy, or nothing if it is dropped on purpose. Sent by the
/// actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Prepared {
    group: Text,
    turn: Turn,
    piece: Piece,
}

/// A copy, or nothing, or why there is none; and who waits for it.
type Piece = (Result<Option<Copy>, Refusal>, Waiter);

/// Store the copies that are there. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct StoreCopies;

/// What became of copies that were stored together. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Stored(Vec<((Copy, Waiter), Result<(), Refusal>)>);

// ---- actor

/// Owner of the messages that were sent back and are not stored again yet.
#[derive(Debug)]
pub struct Retry {
    cast: Arc<BrokerCast>,
    awaited: InOrder<Piece>,
    copies: Together<(Copy, Waiter)>,
}

impl Retry {
    /// Stores what is sent back to `cast`.
    pub fn new(cast: Arc<BrokerCast>) -> Retry {
        Retry { cast, awaited: InOrder::default(), copies: Together::default() }
    }

    /// Goes on with a message whose copy is there, or that needs none.
    fn go_on(&mut self, (copy, reply): Piece, context: &mut Context<Retry>) {
        match copy {
            Ok(Some(copy)) => {
                if self.copies.add((copy, reply)) {
                    context.notify(StoreCopies);
                }
            }
            dropped_or_refused => {
                self.copies.release();
                reply.answer(dropped_or_refused.map(drop));
            }
        }
    }
}

impl Actor for Retry {
    type Context = Context<Retry>;

    fn started(&mut self, context: &mut Context<Retry>) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<SendBack> for Retry {
    type Result = ();

    fn handle(&mut self, SendBack { header, version, reply }: SendBack, context: &mut Context<Retry>) {
        if !self.copies.reserve() {
            return reply.answer(Err(too_many()));
        }
        let group = header.group.clone();
        let mut copy = Box::pin(copies::prepare(self.cast.clone(), header, version));
        // Mostly nothing has to be waited for, and then nobody has to wait for its turn.
        if !self.awaited.has(&group)
            && let Poll::Ready(copy) = copy.as_mut().poll(&mut task::Context::from_waker(Waker::noop()))
        {
            return self.go_on((copy, reply), context);
        }
        let (retry, turn) = (context.address(), self.awaited.turn(&group));
        actix::spawn(async move {
            let copy = copy.await;
            // An actor that is gone needs no news: whoever waits learns that it has gone.
            let _ = retry.send(Prepared { group, turn, piece: (copy, reply) }).await;
        });
    }
}

impl Handler<Prepared> for Retry {
    type Result = ();

    fn handle(&mut self, Prepared { group, turn, piece }: Prepared, context: &mut Context<Retry>) {
        for piece in self.awaited.ready(&group, turn, piece) {
            self.go_on(piece, context);
        }
    }
}

impl Handler<StoreCopies> for Retry {
    type Result = ();

    fn handle(&mut self, _: StoreCopies, context: &mut Context<Retry>) {
        let Some(batch) = self.copies.begin(|(copy, _)| copy.bytes()) else { return };
        let (cast, retry) = (self.cast.clone(), context.address());
        actix::spawn(async move {
            let outcomes = copies::store_all(&cast, &batch).await;
            // An actor that is gone needs no news: with it goes who waits, and learns of that.
            let _ = retry.send(Stored(batch.into_iter().zip(outcomes).collect())).await;
        });
    }
}

impl Handler<Stored> for Retry {
    type Result = ();

    fn handle(&mut self, Stored(stored): Stored, context: &mut Context<Retry>) {
        for ((copy, reply), outcome) in stored {
            if outcome.is_ok() {
                copy.count(&self.cast);
            }
            reply.answer(outcome);
        }
        self.copies.ended();
        context.notify(StoreCopies);
    }
}

/// Why a message is not taken back while too many are.
fn too_many() -> Refusal {
    Refusal::busy(format_args!("{WAITING_MAX} messages that were sent back wait to be stored"))
}
