//! The network floor: connections, what a request is, and how the node speaks to its peers.
//!
//! Invariants:
//! - one connection is one `Session` actor; everybody else knows it by its `Link` alone;
//! - a one-way request is never answered, whatever happens to it;
//! - the two directions of a connection count their requests (opaque) independently;
//! - what is sent through a link of a closed connection is dropped, a call through it fails with `Closed`.
//!
//! Contents: `listener` accepts, `sessions` hands connections out over the arbiters, `session` reads and
//! answers, `wire` is a connection as its arbiter sees it, `inbound` cuts frames, `outbound` writes,
//! `pending` matches answers to calls, `dialer` connects, `turn` serves what was read, `pipe` is a connection
//! within the process, `seats` spreads connections over the arbiters, `busy` saves them from sleeping too early.

pub mod busy;
pub mod dialer;
pub mod inbound;
pub mod listener;
pub mod outbound;
pub mod pending;
pub mod pipe;
pub mod seats;
pub mod session;
pub mod sessions;
pub mod turn;
pub mod wire;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::{Message, Recipient};
use bytes::Bytes;
use troupemq_codec::{Command, Request, ResponseCode};

use crate::held::{Held, hold};
use crate::queue::room::Room;

/// When who was refused as one too many may try again, in ms: most work takes less.
const AGAIN_MS: u32 = 100;

/// The name of one connection within its node; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// The published handle of a connection: requests to the peer, answers that come late, closing.
#[derive(Debug)]
pub struct Link {
    id: LinkId,
    peer: SocketAddr,
    local: SocketAddr,
    session: Option<Recipient<ToSession>>,
    closed: AtomicBool,
    held_pulls: Room,
}

/// What a link asks of its session. Sent by `Link` only; a `Call` is answered through its `Held`.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum ToSession {
    /// Write this command as it is: an answer given late, or a one-way request.
    Push(Command),
    /// Write this request and give its answer to the waiter.
    Ask(Command, Held<Result<Command, CallError>>),
    /// Run a pull again that was held, because messages came or its time is over.
    Resume(Box<crate::pull::Parcel>),
    /// Close the connection once what is queued has been written.
    Close,
}

/// Why a call through a link has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection is closed, or was closed before the answer came.
    #[error("the connection is closed")]
    Closed,
    /// The answer did not come in time.
    #[error("no answer in time")]
    TimedOut,
    /// Too many calls or bytes wait for this peer.
    #[error("the peer is too slow: too much waits for it")]
    Busy,
}

/// A decoded request and the connection it came by.
#[derive(Debug, Clone)]
pub struct Call {
    /// The request.
    pub command: Command,
    /// Who sent it.
    pub link: Arc<Link>,
}

/// What a handler gives back: the answer (opaque and form are filled in by the session), or why not.
pub type Answer = Result<Command, Refusal>;

/// A refusal for reasons of business: a value of the reply, not an error of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// RocketMQ's response code.
    pub code: ResponseCode,
    /// The text for a human; clients of RocketMQ match some of them.
    pub remark: String,
}

impl Refusal {
    /// A refusal with its code and remark.
    pub fn new(code: ResponseCode, remark: impl Into<String>) -> Refusal {
        Refusal { code, remark: remark.into() }
    }

    /// A request this node does not know.
    pub fn unsupported(code: i32) -> Refusal {
        Refusal::new(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, format!(" request type {code} not supported"))
    }

    /// Too much is under way: of what how much, and when another try is worth it.
    pub fn busy(cause: impl Display) -> Refusal {
        let remark = format!(
            "[OVERLOAD]system busy, start flow control for a while: {cause}; try again in {AGAIN_MS} ms"
        );
        Refusal::new(ResponseCode::SYSTEM_BUSY, remark)
    }

    /// The part that should answer is gone: the node stops or is poisoned.
    pub fn gone(part: &str) -> Refusal {
        Refusal::new(
            ResponseCode::SERVICE_NOT_AVAILABLE,
            format!("service not available now: {part} is gone"),
        )
    }
}

impl From<troupemq_codec::CodecError> for Refusal {
    /// What cannot be read is the client's fault and named so.
    fn from(error: troupemq_codec::CodecError) -> Refusal {
        Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string())
    }
}

impl From<actix::MailboxError> for Refusal {
    fn from(_: actix::MailboxError) -> Refusal {
        Refusal::gone("an actor")
    }
}

impl Link {
    /// The handle of a connection whose session takes what is handed to `session`.
    pub fn new(id: LinkId, peer: SocketAddr, local: SocketAddr, session: Recipient<ToSession>) -> Arc<Link> {
        Link::with(id, (peer, local), Some(session))
    }

    /// A link with no connection behind it: what is sent is dropped, calls fail with `Closed`. For tests of
    /// parts that only need to tell links apart.
    pub fn loose(id: u64, peer: SocketAddr) -> Arc<Link> {
        Link::with(LinkId(id), (peer, peer), None)
    }

    fn with(
        id: LinkId,
        (peer, local): (SocketAddr, SocketAddr),
        session: Option<Recipient<ToSession>>,
    ) -> Arc<Link> {
        let (closed, held_pulls) = (AtomicBool::new(false), Room::of_connection());
        Arc::new(Link { id, peer, local, session, closed, held_pulls })
    }

    /// The name of this connection in its node.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// The address of the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address of our end.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether the connection is known to be closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How many pulls of the peer are on hold.
    pub(crate) fn held_pulls(&self) -> &Room {
        &self.held_pulls
    }

    /// Called by the session when it ends.
    pub fn mark_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Sends a command as it is: an answer that comes late, or a one-way request.
    /// Dropped when the connection is closed or its mailbox is full.
    pub fn send(&self, command: Command) {
        // Nobody waits for it: who must know asks.
        let _ = self.hand(ToSession::Push(command));
    }

    /// Sends a request and waits for its answer. An answer with any response code is `Ok`.
    pub async fn call<R: Request>(
        &self,
        header: &R::Header,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Command, CallError> {
        self.ask(Command::request::<R>(header).with_body(body), timeout).await
    }

    /// Sends a ready request and waits for its answer. The session numbers it.
    pub async fn ask(&self, request: Command, timeout: Duration) -> Result<Command, CallError> {
        let (held, waiting) = hold();
        self.hand(ToSession::Ask(request, held))?;
        match tokio::time::timeout(timeout, waiting).await {
            Err(_elapsed) => Err(CallError::TimedOut),
            Ok(Err(_lost)) => Err(CallError::Closed),
            Ok(Ok(answer)) => answer,
        }
    }

    /// Closes the connection after what is queued has been written.
    pub fn close(&self) {
        // One that is closed already, or ends for being too slow, is what is wanted.
        let _ = self.hand(ToSession::Close);
    }

    /// Hands something to the session; what cannot be handed over is dropped.
    pub(crate) fn hand(&self, what: ToSession) -> Result<(), CallError> {
        let Some(session) = self.session.as_ref().filter(|_| !self.is_closed()) else {
            return Err(CallError::Closed);
        };
        session.try_send(what).map_err(|error| match error {
            actix::prelude::SendError::Full(_) => CallError::Busy,
            actix::prelude::SendError::Closed(_) => CallError::Closed,
        })
    }
}
