//! `Wire`: one connection as its own arbiter sees it: what waits to be written, calls that wait, its end.
//!
//! Invariants:
//! - lives on one arbiter; other threads reach it only through the session's mailbox;
//! - what can be written at once is written where it arises; a task of its own exists only while the socket
//!   is full;
//! - the bytes that wait are bounded: beyond the limit the session reads no further requests, beyond
//!   `HARD_FACTOR` times the limit, or when nothing moves for `stall`, the connection ends.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use troupemq_codec::command::Molds;
use troupemq_codec::ending::EndMolds;
use troupemq_codec::{CodecError, Command};

use crate::config::{NetConfig, NodeClock};
use crate::credits::Credits;
use crate::held::Held;
use crate::net::busy::Busy;
use crate::net::inbound::Spare;
use crate::net::outbound::Outbound;
use crate::net::pending::{CALLS_MAX, Pending};
use crate::net::pipe::Replies;
use crate::net::{CallError, Link, LinkId};
use crate::router::Served;
use crate::send::Benches;
use crate::transaction::gathered::Oneway;
use crate::transaction::kept::Kept;

/// How many times the limit of waiting bytes may be exceeded by what others push.
const HARD_FACTOR: usize = 8;

/// What the sessions of one arbiter share.
#[derive(Debug)]
pub struct Hall {
    /// Bounds.
    pub config: NetConfig,
    /// Where the time comes from.
    pub clock: NodeClock,
    /// Bytes of requests in flight in the node.
    pub credits: Credits,
    /// Buffers that sessions lease.
    pub spare: RefCell<Spare>,
    /// Work benches of sends that sessions lease.
    pub benches: RefCell<Benches>,
    /// Half messages that were stored a moment ago.
    pub halves: RefCell<Kept>,
    /// Ends of transactions that nobody waits for.
    pub oneway_ends: RefCell<Oneway>,
    /// What headers looked like that were read.
    pub molds: RefCell<Molds>,
    /// The same of the ends of transactions.
    pub end_molds: RefCell<EndMolds>,
    /// When to poll for the next request.
    pub busy: Busy,
    /// The sessions of this arbiter.
    pub links: RefCell<HashMap<LinkId, Arc<Link>>>,
    /// Who waits for the last session to end.
    pub emptied: RefCell<Vec<Held<()>>>,
    next_link: Arc<AtomicU64>,
}

/// Why a connection ended.
#[derive(Debug)]
pub enum End {
    /// The peer closed it.
    ByPeer,
    /// This node closed it.
    ByUs,
    /// Neither read nor written for the idle time.
    Idle,
    /// Too much waited for a peer that does not read.
    SlowReader,
    /// What came is no frame.
    Garbage(CodecError),
    /// The socket failed.
    Socket(io::Error),
}

/// Where what is written goes.
#[derive(Debug)]
pub enum Sink {
    /// To a peer behind a socket.
    Socket(OwnedWriteHalf),
    /// To a peer in this process.
    Pipe(Replies),
}

/// One connection.
#[derive(Debug)]
pub struct Wire {
    /// The published handle of it.
    pub link: Arc<Link>,
    /// Whom the peer speaks to.
    pub served: Served,
    /// What is shared with the arbiter's other sessions.
    pub hall: Rc<Hall>,
    /// Calls of ours that wait for the peer.
    pub pending: RefCell<Pending<Result<Command, CallError>>>,
    /// Requests of the peer in work, sends and held pulls not counted.
    pub calls: Cell<usize>,
    out: RefCell<Outbound>,
    sink: Sink,
    is_writing: Cell<bool>,
    is_draining: Cell<bool>,
    is_in_turn: Cell<bool>,
    end: RefCell<Option<End>>,
    is_ended: Cell<bool>,
    /// The task that reads, while it waits: it must learn of the end.
    reader: RefCell<Option<Waker>>,
    drained: Notify,
    active_at: Cell<u64>,
}

impl Hall {
    /// The hall of one arbiter; `next_link` is shared by all of the node.
    pub fn new(config: NetConfig, clock: NodeClock, credits: Credits, next_link: Arc<AtomicU64>) -> Hall {
        let busy = Busy::new(config.busy_poll_us.saturating_mul(1_000));
        Hall {
            busy,
            config,
            clock,
            credits,
            spare: RefCell::default(),
            benches: RefCell::default(),
            halves: RefCell::default(),
            oneway_ends: RefCell::default(),
            molds: RefCell::default(),
            end_molds: RefCell::default(),
            links: RefCell::default(),
            emptied: RefCell::default(),
            next_link,
        }
    }

    /// A name for a new connection.
    pub fn next_link(&self) -> LinkId {
        LinkId(self.next_link.fetch_add(1, Ordering::Relaxed))
    }

    /// Forgets a session that ended.
    pub fn forget(&self, id: LinkId) {
        let mut links = self.links.borrow_mut();
        links.remove(&id);
        if links.is_empty() {
            self.emptied.borrow_mut().drain(..).for_each(|waiting| waiting.answer(()));
        }
    }
}

impl Wire {
    /// The connection that writes to `sink`.
    pub fn new(link: Arc<Link>, served: Served, hall: Rc<Hall>, sink: Sink) -> Rc<Wire> {
        let active_at = Cell::new(hall.clock.0.nanos());
        Rc::new(Wire {
            link,
            served,
            hall,
            pending: RefCell::new(Pending::new(CALLS_MAX)),
            calls: Cell::new(0),
            out: RefCell::default(),
            sink,
            is_writing: Cell::new(false),
            is_draining: Cell::new(false),
            is_in_turn: Cell::new(false),
            end: RefCell::new(None),
            is_ended: Cell::new(false),
            reader: RefCell::default(),
            drained: Notify::new(),
            active_at,
        })
    }

    /// The address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer()
    }

    /// Whether the peer may have one more request in work, sends and held pulls not counted.
    pub fn may_call(&self) -> bool {
        self.calls.get() < self.hall.config.calls_max
    }

    /// Encodes something and writes it, or as much as the socket takes.
    pub fn write(self: &Rc<Wire>, encode: impl FnOnce(&mut Outbound)) {
        if self.is_ended.get() {
            return;
        }
        {
            let mut out = self.out.borrow_mut();
            if out.needs_buffer() {
                out.lend(self.hall.spare.borrow_mut().take());
            }
            encode(&mut out);
        }
        if !self.is_writing.get() {
            self.flush();
        }
        if self.out.borrow().bytes() > self.hall.config.outbound_max_bytes.saturating_mul(HARD_FACTOR) {
            self.finish(End::SlowReader);
        }
    }

    /// Writes a whole command.
    pub fn write_command(self: &Rc<Wire>, command: &Command) {
        self.write_commands(std::slice::from_ref(command));
    }

    /// Writes whole commands at once.
    pub fn write_commands(self: &Rc<Wire>, commands: &[Command]) {
        if commands.is_empty() {
            return;
        }
        self.write(|out| {
            for command in commands {
                command.encode_head(command.body.len(), out.tail());
                out.push(command.body.clone());
            }
        });
    }

    /// Whether no further request should be read: too much waits, or the connection is about to end.
    pub fn is_full(&self) -> bool {
        self.is_draining.get() || self.out.borrow().bytes() > self.hall.config.outbound_max_bytes
    }

    /// Waits until less waits.
    pub async fn drained(&self) {
        while self.is_full() && !self.is_ended.get() {
            self.drained.notified().await;
        }
    }

    /// Ends the connection at once; the first reason stays.
    pub fn finish(&self, end: End) {
        if !self.is_ended.replace(true) {
            *self.end.borrow_mut() = Some(end);
        }
        if let Sink::Pipe(replies) = &self.sink {
            replies.forget_all();
        }
        let reader = self.reader.borrow_mut().take();
        if let Some(reader) = reader {
            reader.wake();
        }
        self.drained.notify_one();
    }

    /// Who waits in this process for the answers, if the peer is in it.
    pub fn replies(&self) -> Option<&Replies> {
        match &self.sink {
            Sink::Socket(_) => None,
            Sink::Pipe(replies) => Some(replies),
        }
    }

    /// Ends the connection once what was read is answered and everything is written.
    pub fn drain(&self) {
        self.is_draining.set(true);
        self.end_if_drained();
    }

    /// What was read is being answered.
    pub fn begin_turn(&self) {
        self.is_in_turn.set(true);
        self.touch();
        self.hall.busy.began(self.link.id(), self.active_at.get());
    }

    /// What was read has been answered.
    pub fn end_turn(&self) {
        self.is_in_turn.set(false);
        self.hall.busy.ended(self.hall.clock.0.nanos());
        self.end_if_drained();
    }

    fn end_if_drained(&self) {
        if self.is_draining.get() && !self.is_in_turn.get() && self.out.borrow().is_empty() {
            self.finish(End::ByUs);
        }
    }

    /// Waits for the end.
    pub async fn ended(&self) {
        poll_fn(|context| self.poll_ended(context)).await;
    }

    /// Whether it has ended; if not, the task that asks is woken when it does. One task asks, the one that reads:
    /// it asks at every turn, so that this must cost next to nothing.
    pub fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_ended.get() {
            return Poll::Ready(());
        }
        let mut reader = self.reader.borrow_mut();
        if reader.as_ref().is_none_or(|reader| !reader.will_wake(context.waker())) {
            *reader = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Why it ended; once.
    pub fn take_end(&self) -> Option<End> {
        self.end.borrow_mut().take()
    }

    /// Notes that something was read or written.
    pub fn touch(&self) {
        self.active_at.set(self.hall.clock.0.nanos());
    }

    /// How long nothing need be read or written before it counts as idle; none if it does.
    pub fn idle_left(&self) -> Option<Duration> {
        let unused = Duration::from_nanos(self.hall.clock.0.nanos().saturating_sub(self.active_at.get()));
        self.hall.config.idle().checked_sub(unused).filter(|left| !left.is_zero())
    }

    /// Writes until the queue is empty or the socket full; in the latter case a task goes on.
    fn flush(self: &Rc<Wire>) {
        match self.write_out() {
            Ok(true) => self.emptied(),
            Ok(false) => {
                self.is_writing.set(true);
                actix::spawn(self.clone().write_on());
            }
            Err(error) => self.finish(End::Socket(error)),
        }
    }

    /// Writes what the peer takes; true when nothing is left.
    fn write_out(&self) -> io::Result<bool> {
        let mut out = self.out.borrow_mut();
        match &self.sink {
            Sink::Pipe(replies) => replies.hand_out(&mut out)?,
            Sink::Socket(socket) => {
                if !write_to(socket, &mut out)? {
                    return Ok(false);
                }
            }
        }
        if let Some(buffer) = out.take_buffer() {
            self.hall.spare.borrow_mut().give(buffer);
        }
        Ok(true)
    }

    fn emptied(&self) {
        self.drained.notify_one();
        self.end_if_drained();
    }

    /// Goes on writing whenever the socket has room.
    async fn write_on(self: Rc<Wire>) {
        // A peer in this process takes everything at once.
        let Sink::Socket(socket) = &self.sink else { return };
        while !self.is_ended.get() {
            let has_room = tokio::time::timeout(self.hall.config.stall(), socket.writable());
            match has_room.await {
                Err(_elapsed) => return self.finish(End::SlowReader),
                Ok(Err(error)) => return self.finish(End::Socket(error)),
                Ok(Ok(())) => {}
            }
            self.touch();
            match self.write_out() {
                Err(error) => return self.finish(End::Socket(error)),
                Ok(false) => self.drained.notify_one(),
                Ok(true) => {
                    self.is_writing.set(false);
                    return self.emptied();
                }
            }
        }
    }
}

/// Writes what the socket takes; true when nothing is left.
fn write_to(socket: &OwnedWriteHalf, out: &mut Outbound) -> io::Result<bool> {
    while !out.is_empty() {
        match out.write_with(|slices| socket.try_write_vectored(slices)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
