//! `Sessions`: the sessions of one arbiter.
//!
//! Invariants:
//! - a connection stays on the arbiter it was given to;
//! - after `CloseAll` no connection is taken in any more, and it is answered when the last has ended.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use actix::{Actor, AsyncContext, Context, Handler, Message, ResponseFuture, WrapFuture};
use tokio::net::TcpStream;

use crate::config::{NetConfig, NodeClock};
use crate::credits::Credits;
use crate::held::hold;
use crate::net::Link;
use crate::net::busy;
use crate::net::pipe::Pipe;
use crate::net::seats::Seat;
use crate::net::session::Session;
use crate::net::wire::Hall;
use crate::router::Served;

/// Connections that may wait to be taken in.
const MAILBOX: usize = 16_384;

// ---- messages

/// A connection to take in. Sent by `Listener` for those accepted and by the dialer for those made.
/// Answered with its link.
#[derive(Debug, Message)]
#[rtype(result = "std::io::Result<Arc<Link>>")]
pub struct TakeIn {
    /// The connection, non-blocking.
    pub stream: std::net::TcpStream,
    /// Whom the peer speaks to.
    pub served: Served,
    /// Its place on the arbiter, for one that was accepted.
    pub seat: Option<Seat>,
}

/// A peer in this process to take in. Sent by programs that embed the broker. Answered with its link.
#[derive(Debug, Message)]
#[rtype(result = "std::io::Result<Arc<Link>>")]
pub struct TakeInPipe {
    /// Our ends of the connection.
    pub pipe: Pipe,
    /// The address that stands for the peer where one is wanted: in stored messages and in lists of clients.
    pub address: SocketAddr,
    /// Whom the peer speaks to.
    pub served: Served,
}

/// Sent by the node when it stops: write what waits, close, and answer when no connection is left.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CloseAll;

/// Asked by tests and the console: how many connections there are.
#[derive(Debug, Message)]
#[rtype(result = "usize")]
pub struct Count;

// ---- actor

/// Owner of the sessions of one arbiter.
#[derive(Debug)]
pub struct Sessions {
    hall: Rc<Hall>,
    is_closing: bool,
}

impl Sessions {
    /// No sessions yet; to be called on the arbiter that will carry them.
    pub fn new(config: NetConfig, clock: NodeClock, credits: Credits, next_link: Arc<AtomicU64>) -> Sessions {
        Sessions { hall: Rc::new(Hall::new(config, clock, credits, next_link)), is_closing: false }
    }
}

impl Actor for Sessions {
    type Context = Context<Sessions>;

    fn started(&mut self, context: &mut Context<Sessions>) {
        context.set_mailbox_capacity(MAILBOX);
        if self.hall.config.busy_poll_us > 0 {
            context.spawn(busy::poll(self.hall.clone()).into_actor(self));
        }
    }
}

impl Handler<TakeIn> for Sessions {
    type Result = std::io::Result<Arc<Link>>;

    fn handle(&mut self, wanted: TakeIn, _: &mut Context<Sessions>) -> Self::Result {
        if self.is_closing {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        wanted.stream.set_nodelay(true)?;
        let stream = TcpStream::from_std(wanted.stream)?;
        Session::start_on(stream, wanted.served, &self.hall, wanted.seat)
    }
}

impl Handler<TakeInPipe> for Sessions {
    type Result = std::io::Result<Arc<Link>>;

    fn handle(&mut self, wanted: TakeInPipe, _: &mut Context<Sessions>) -> Self::Result {
        if self.is_closing {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        Ok(Session::start_in_process(wanted.pipe, wanted.address, wanted.served, &self.hall))
    }
}

impl Handler<CloseAll> for Sessions {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: CloseAll, _: &mut Context<Sessions>) -> Self::Result {
        self.is_closing = true;
        let (held, waiting) = hold();
        if self.hall.links.borrow().is_empty() {
            held.answer(());
        } else {
            self.hall.emptied.borrow_mut().push(held);
        }
        self.hall.links.borrow().values().for_each(|link| link.close());
        Box::pin(async move {
            // Who would have answered is gone only when no session is left: that is what is waited for.
            let _ = waiting.await;
        })
    }
}

impl Handler<Count> for Sessions {
    type Result = usize;

    fn handle(&mut self, _: Count, _: &mut Context<Sessions>) -> usize {
        self.hall.links.borrow().len()
    }
}
