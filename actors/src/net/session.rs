//! `Session`: one connection. Reads frames, answers them, writes what others send through its `Link`.
//!
//! Invariants:
//! - all complete frames of one read are one turn; their sends are one batch, and one batch is in flight;
//! - while a batch is in flight, or too much waits for the peer, nothing is read: TCP pushes back;
//! - requests are looked at in their order; a heart-beat is finished before the next request is looked at;
//! - what the peer sends is never trusted: a frame that cannot be parsed closes the connection.

use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use troupemq_codec::{Command, CommandView, ResponseCode};

use crate::credits::Credit;
use crate::held::Held;
use crate::net::inbound::{READ_BYTES, first_frame, frame_bytes};
use crate::net::wire::{End, Hall, Wire};
use crate::net::{Answer, Call, CallError, Link, Refusal, ToSession};
use crate::router::Served;
use crate::send::{self, Bench};

/// Messages that may wait for a session; what comes on top is refused as `Busy`.
const MAILBOX: usize = 16_384;
/// An unfinished frame longer than this takes its bytes from the node's purse before it is gathered.
const LARGE_BYTES: usize = 256 << 10;
/// The rest of a read shorter than this is kept in a buffer of its own size.
const KEEP_BELOW_BYTES: usize = 16 << 10;

// ---- actor

/// One connection. Its messages are [`ToSession`].
#[derive(Debug)]
pub struct Session {
    wire: Rc<Wire>,
    read: Option<OwnedReadHalf>,
}

impl Session {
    /// Starts the session of a connection on the current arbiter and publishes its link.
    pub fn start_on(stream: TcpStream, served: Served, hall: &Rc<Hall>) -> std::io::Result<Arc<Link>> {
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        let (read, write) = stream.into_split();
        let mut started = None;
        Session::create(|context| {
            let link = Link::new(hall.next_link(), peer, local, context.address().recipient());
            started = Some(link.clone());
            let wire = Wire::new(link, served, hall.clone(), write);
            Session { wire, read: Some(read) }
        });
        let link = started.expect("create runs the closure before it returns");
        hall.links.borrow_mut().insert(link.id(), link.clone());
        Ok(link)
    }

    fn look_for_idleness(&mut self, context: &mut Context<Session>) {
        let idle = self.wire.hall.config.idle();
        let unused = std::time::Duration::from_nanos(self.wire.idle_nanos());
        match idle.checked_sub(unused).filter(|left| !left.is_zero()) {
            Some(left) => {
                context.run_later(left, Session::look_for_idleness);
            }
            None => self.wire.finish(End::Idle),
        }
    }

    fn ask(&self, mut request: Command, waiter: Held<Result<Command, CallError>>) {
        match self.wire.pending.borrow_mut().add(waiter) {
            Err(refused) => return refused.answer(Err(CallError::Busy)),
            Ok(opaque) => request.opaque = opaque,
        }
        self.wire.write_command(&request);
    }
}

impl Actor for Session {
    type Context = Context<Session>;

    fn started(&mut self, context: &mut Context<Session>) {
        context.set_mailbox_capacity(MAILBOX);
        if let Served::Broker(cast) = &self.wire.served {
            cast.directory.publish_link(self.wire.link.clone());
        }
        let read = self.read.take().expect("a session is started once");
        let reader =
            Reader { read, wire: self.wire.clone(), rest: BytesMut::new(), large: None, bench: None };
        let ends = reader.run().into_actor(self).map(|end, session, context| {
            session.wire.finish(end);
            context.stop();
        });
        context.spawn(ends);
        self.look_for_idleness(context);
    }

    fn stopped(&mut self, _: &mut Context<Session>) {
        let link = &self.wire.link;
        self.wire.finish(End::ByUs);
        tracing::debug!(peer = %link.peer(), end = ?self.wire.take_end(), "connection ended");
        link.mark_closed();
        if let Served::Broker(cast) = &self.wire.served {
            cast.directory.withdraw_link(link.id());
        }
        self.wire.served.closed(link);
        self.wire.hall.forget(link.id());
    }
}

impl Handler<ToSession> for Session {
    type Result = ();

    fn handle(&mut self, wanted: ToSession, _: &mut Context<Session>) {
        match wanted {
            ToSession::Push(command) => self.wire.write_command(&command),
            ToSession::Ask(request, waiter) => self.ask(request, waiter),
            ToSession::Resume(parcel) => crate::pull::resume(&self.wire, parcel),
            ToSession::Close => self.wire.drain(),
        }
    }
}

// ---- reading

/// The reading half of a session: a loop of turns.
struct Reader {
    read: OwnedReadHalf,
    wire: Rc<Wire>,
    /// What came of a frame that is not complete.
    rest: BytesMut,
    /// The bytes a large unfinished frame took from the purse.
    large: Option<Credit>,
    /// The sends of the current turn.
    bench: Option<Bench>,
}

impl Reader {
    async fn run(mut self) -> End {
        let wire = self.wire.clone();
        loop {
            let readable = tokio::select! {
                biased;
                () = wire.ended() => return End::ByUs,
                readable = self.read.readable() => readable,
            };
            if let Err(error) = readable {
                return End::Socket(error);
            }
            if let Err(end) = self.turn().await {
                return end;
            }
            if wire.is_full() {
                wire.drained().await;
            }
        }
    }

    /// One read and all that follows from it.
    async fn turn(&mut self) -> Result<(), End> {
        let mut input = self.input();
        let read = self.read.read_buf(&mut input).await.map_err(End::Socket)?;
        if read == 0 {
            return Err(End::ByPeer);
        }
        self.wire.touch();
        self.wire.begin_turn();
        let consumed = self.serve(&input).await;
        self.hand_in_sends().await;
        self.wire.end_turn();
        if let Some(bench) = self.bench.take() {
            self.wire.hall.benches.borrow_mut().give(bench);
        }
        input.advance(consumed?);
        self.keep(input).await
    }

    /// A buffer with the unfinished frame in it and room for more.
    fn input(&mut self) -> BytesMut {
        let rest = std::mem::take(&mut self.rest);
        if rest.capacity() >= READ_BYTES {
            return rest;
        }
        let mut input = self.wire.hall.spare.borrow_mut().take();
        input.reserve(READ_BYTES);
        input.extend_from_slice(&rest);
        input
    }

    /// Keeps what is left of a read until more comes.
    async fn keep(&mut self, mut input: BytesMut) -> Result<(), End> {
        let wanted = frame_bytes(&input).map_err(End::Garbage)?.unwrap_or(0);
        if wanted <= LARGE_BYTES {
            self.large = None;
        } else if self.large.is_none() {
            self.large = Some(self.credit(wanted).await?);
        }
        if input.len() < KEEP_BELOW_BYTES {
            self.rest = BytesMut::from(&input[..]);
            self.wire.hall.spare.borrow_mut().give(input);
        } else {
            let missing = wanted.saturating_sub(input.len());
            input.reserve(missing.clamp(READ_BYTES, 8 * READ_BYTES));
            self.rest = input;
        }
        Ok(())
    }

    /// Takes bytes from the purse, waiting while it is empty but no longer than an idle connection may live.
    async fn credit(&self, bytes: usize) -> Result<Credit, End> {
        loop {
            if let Ok(credit) = self.wire.hall.credits.take(bytes) {
                return Ok(credit);
            }
            if self.wire.idle_nanos() > self.wire.hall.config.idle_ms.saturating_mul(1_000_000) {
                return Err(End::Idle);
            }
            // Only this connection waits; what it does not read meanwhile, TCP keeps from its peer.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Looks at all complete frames of `input` and returns how many bytes they are.
    async fn serve(&mut self, input: &[u8]) -> Result<usize, End> {
        let mut consumed = 0;
        while let Some(frame) = first_frame(&input[consumed..]).map_err(End::Garbage)? {
            consumed += frame.len() + 4;
            self.look_at(frame).await?;
        }
        Ok(consumed)
    }

    async fn look_at(&mut self, frame: &[u8]) -> Result<(), End> {
        let view = CommandView::parse(frame).map_err(End::Garbage)?;
        if view.is_response() {
            return self.answered(owned(&view, frame));
        }
        match &self.wire.served {
            Served::Broker(cast) if send::is_send(view.code) => {
                let cast = cast.clone();
                let benches = &self.wire.hall.benches;
                let bench = self.bench.get_or_insert_with(|| benches.borrow_mut().take());
                bench.take_in(&cast, &self.wire, &view, frame).await;
                if bench.is_full() {
                    self.hand_in_sends().await;
                }
                Ok(())
            }
            Served::Broker(cast) if crate::pull::is_pull(view.code) => {
                crate::pull::first(&self.wire, cast, owned(&view, frame));
                Ok(())
            }
            _ => self.call(owned(&view, frame)).await,
        }
    }

    /// Stores the sends gathered so far and answers them.
    async fn hand_in_sends(&mut self) {
        if let (Some(bench), Served::Broker(cast)) = (&mut self.bench, &self.wire.served) {
            bench.hand_in(cast, &self.wire).await;
        }
    }

    fn answered(&self, answer: Command) -> Result<(), End> {
        let waiter = self.wire.pending.borrow_mut().take(answer.opaque);
        match waiter {
            Some(waiter) => waiter.answer(Ok(answer)),
            None => tracing::debug!(opaque = answer.opaque, "an answer nobody waits for"),
        }
        Ok(())
    }

    async fn call(&self, command: Command) -> Result<(), End> {
        let wire = self.wire.clone();
        if wire.calls.get() >= wire.hall.config.calls_max {
            let max = wire.hall.config.calls_max;
            let busy =
                format!("[OVERLOAD]system busy, start flow control for a while: {max} requests in work");
            answer(&wire, &command, Err(Refusal::new(ResponseCode::SYSTEM_BUSY, busy)));
            return Ok(());
        }
        let in_order = wire.served.is_in_order(command.code);
        let answering = wire.served.answer(Call { command: command.clone(), link: wire.link.clone() });
        if in_order {
            let given = answering.await;
            answer(&wire, &command, given);
            return Ok(());
        }
        wire.calls.set(wire.calls.get() + 1);
        actix::spawn(async move {
            let given = answering.await;
            wire.calls.set(wire.calls.get() - 1);
            answer(&wire, &command, given);
        });
        Ok(())
    }
}

/// A command that outlives the buffer of the read.
fn owned(view: &CommandView<'_>, frame: &[u8]) -> Command {
    Command::from_view(view, &Bytes::copy_from_slice(frame))
}

/// Writes the answer to `request`, unless it wants none.
pub(crate) fn answer(wire: &Rc<Wire>, request: &Command, given: Answer) {
    if request.is_oneway() {
        return;
    }
    let command = match given {
        Ok(command) => command,
        Err(refusal) => Command::response(refusal.code).with_remark(refusal.remark),
    };
    wire.write_command(&command.answering(request));
}
