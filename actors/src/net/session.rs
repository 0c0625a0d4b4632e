//! `Session`: one connection. Reads frames, answers them, writes what others send through its `Link`.
//!
//! Invariants:
//! - all complete frames of one read are one turn; their sends are one batch, and one batch is in flight;
//! - while a batch is in flight, or too much waits for the peer, nothing is read: TCP pushes back;
//! - requests are looked at in their order; a heart-beat is finished before the next request is looked at;
//! - what the peer sends is never trusted: a frame that cannot be parsed closes the connection;
//! - reading is a task of its own beside the actor, so that a frame that comes wakes neither its mailbox nor its
//!   timers; however that task ends, the session ends with it.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message};
use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::time::sleep;
use troupemq_codec::Command;

use crate::credits::Credit;
use crate::held::Held;
use crate::net::inbound::{READ_BYTES, first_frame, frame_bytes};
use crate::net::pipe::{self, Pipe, PipeOrder, Replies};
use crate::net::seats::Seat;
use crate::net::turn::{Came, Turn};
use crate::net::wire::{End, Hall, Sink, Wire};
use crate::net::{CallError, Link, ToSession};
use crate::router::Served;

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
    source: Option<Source>,
    /// Its place on the arbiter, which is free when it ends.
    _seat: Option<Seat>,
}

/// Where a session reads from.
#[derive(Debug)]
enum Source {
    Socket(OwnedReadHalf),
    Pipe(mpsc::Receiver<PipeOrder>),
}

impl Session {
    /// Starts the session of a connection on the current arbiter and publishes its link.
    pub fn start_on(
        stream: TcpStream,
        served: Served,
        hall: &Rc<Hall>,
        seat: Option<Seat>,
    ) -> std::io::Result<Arc<Link>> {
        let ends = (stream.peer_addr()?, stream.local_addr()?);
        let (read, write) = stream.into_split();
        Ok(Session::launch(ends, (Source::Socket(read), Sink::Socket(write)), served, (hall, seat)))
    }

    /// Starts the session of a peer in this process, which is known by the address of its broker.
    pub(crate) fn start_in_process(
        pipe: Pipe,
        address: SocketAddr,
        served: Served,
        hall: &Rc<Hall>,
    ) -> Arc<Link> {
        let Pipe { orders, calls, answers } = pipe;
        let through = (Source::Pipe(orders), Sink::Pipe(Replies::new(calls, answers)));
        Session::launch((address, address), through, served, (hall, None))
    }

    fn launch(
        (peer, local): (SocketAddr, SocketAddr),
        (source, sink): (Source, Sink),
        served: Served,
        (hall, seat): (&Rc<Hall>, Option<Seat>),
    ) -> Arc<Link> {
        let mut started = None;
        Session::create(|context| {
            let link = Link::new(hall.next_link(), peer, local, context.address().recipient());
            started = Some(link.clone());
            let wire = Wire::new(link, served, hall.clone(), sink);
            Session { wire, source: Some(source), _seat: seat }
        });
        let link = started.expect("create runs the closure before it returns");
        hall.links.borrow_mut().insert(link.id(), link.clone());
        link
    }

    fn look_for_idleness(&mut self, context: &mut Context<Session>) {
        match self.wire.idle_left() {
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
            cast.stats.connected();
        }
        let reading: Pin<Box<dyn Future<Output = End>>> =
            match self.source.take().expect("a session is started once") {
                Source::Socket(read) => {
                    self.look_for_idleness(context);
                    Box::pin(Reader::new(read, &self.wire).run())
                }
                // A peer in this process does not vanish unseen: it may be silent as long as it likes.
                Source::Pipe(orders) => Box::pin(pipe::serve(orders, self.wire.clone())),
            };
        let (wire, last_word) = (self.wire.clone(), LastWord(context.address()));
        actix::spawn(async move {
            let _last_word = last_word;
            wire.finish(reading.await);
        });
    }

    fn stopped(&mut self, _: &mut Context<Session>) {
        let link = &self.wire.link;
        self.wire.finish(End::ByUs);
        let end = self.wire.take_end();
        tracing::debug!(peer = %link.peer(), ?end, "connection ended");
        link.mark_closed();
        if let Served::Broker(cast) = &self.wire.served {
            cast.stats.disconnected(end.as_ref().unwrap_or(&End::ByUs));
            cast.directory.withdraw_link(link.id());
        }
        self.wire.served.closed(link);
        self.wire.hall.forget(link.id());
    }
}

impl Handler<Ended> for Session {
    type Result = ();

    fn handle(&mut self, _: Ended, context: &mut Context<Session>) {
        context.stop();
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

/// Told by the reading task to its session when it ends.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Ended;

/// Tells the session of the end of its reading task, in a panic too.
struct LastWord(Addr<Session>);

impl Drop for LastWord {
    #[expect(clippy::disallowed_methods, reason = "one for each connection, and none may be lost")]
    fn drop(&mut self) {
        self.0.do_send(Ended);
    }
}

/// The reading half of a session: a loop of turns.
struct Reader {
    read: OwnedReadHalf,
    wire: Rc<Wire>,
    turn: Turn,
    /// What came of a frame that is not complete.
    rest: BytesMut,
    /// The bytes a large unfinished frame took from the purse.
    large: Option<Credit>,
}

impl Reader {
    fn new(read: OwnedReadHalf, wire: &Rc<Wire>) -> Reader {
        Reader { read, wire: wire.clone(), turn: Turn::new(wire), rest: BytesMut::new(), large: None }
    }

    async fn run(mut self) -> End {
        let wire = self.wire.clone();
        loop {
            let socket: &TcpStream = self.read.as_ref();
            let readable = poll_fn(|context| match wire.poll_ended(context) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => socket.poll_read_ready(context).map(Some),
            });
            match readable.await {
                None => return End::ByUs,
                Some(Err(error)) => return End::Socket(error),
                Some(Ok(())) => {}
            }
            if let Err(end) = self.read_once().await {
                return end;
            }
            if wire.is_full() {
                wire.drained().await;
            }
        }
    }

    /// One read and all that follows from it.
    async fn read_once(&mut self) -> Result<(), End> {
        let mut input = self.input();
        let read = self.read.read_buf(&mut input).await.map_err(End::Socket)?;
        if read == 0 {
            return Err(End::ByPeer);
        }
        self.turn.begin();
        let consumed = self.serve(&input).await;
        self.turn.end().await;
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

    /// Takes bytes from the purse, waiting while it is empty but no longer than an idle connection may live. Only this
    /// connection waits; what it does not read meanwhile, TCP keeps from its peer.
    async fn credit(&self, bytes: usize) -> Result<Credit, End> {
        let taken = self.wire.hall.credits.take_later(bytes);
        tokio::pin!(taken);
        while let Some(left) = self.wire.idle_left() {
            tokio::select! {
                credit = &mut taken => return Ok(credit),
                () = self.wire.ended() => return Err(End::ByUs),
                // Its answers may have kept it from being idle: what is left is asked again.
                () = sleep(left) => {}
            }
        }
        Err(End::Idle)
    }

    /// Looks at all complete frames of `input` and returns how many bytes they are.
    async fn serve(&mut self, input: &[u8]) -> Result<usize, End> {
        let mut consumed = 0;
        while let Some(frame) = first_frame(&input[consumed..]).map_err(End::Garbage)? {
            consumed += frame.len() + 4;
            self.turn.look_at(Came::Slice(frame)).await?;
        }
        Ok(consumed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;
    use troupemq_codec::request::{GetMaxOffset, GetMaxOffsetHeader};
    use troupemq_store::SystemClock;

    use super::*;
    use crate::config::{NetConfig, NodeClock};
    use crate::credits::Credits;
    use crate::net::Call;
    use crate::net::sessions::{Count, Sessions, TakeIn};
    use crate::router::{Answering, Responder};

    /// A limit on everything, so that a session that stays is a failure and no wait.
    const LIMIT: Duration = Duration::from_secs(60);

    /// Panics at the first request; knows whether its connection is gone.
    #[derive(Debug, Default)]
    struct Faulty(AtomicBool);

    impl Responder for Faulty {
        fn respond(&self, _: Call) -> Answering {
            panic!("a fault, for the test")
        }

        fn closed(&self, _: &Arc<Link>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_fault_in_the_reading_task_ends_its_session_and_no_other() {
        let faulty = Arc::new(Faulty::default());
        let served = Served::Other(faulty.clone());
        actix::System::new().block_on(async {
            let clock = NodeClock(Arc::new(SystemClock::new()));
            let sessions = Sessions::new(NetConfig::default(), clock, Credits::new(1 << 20), Arc::default());
            let sessions = sessions.start();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut peers = Vec::new();
            for _ in 0..2 {
                let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let stream = listener.accept().await.unwrap().0.into_std().unwrap();
                let taken = TakeIn { stream, served: served.clone(), seat: None };
                peers.push((peer, sessions.send(taken).await.unwrap().unwrap()));
            }
            let (peer, link) = &mut peers[0];
            let mut frame = BytesMut::new();
            Command::request::<GetMaxOffset>(&GetMaxOffsetHeader::default()).encode(&mut frame);
            peer.write_all(&frame).await.unwrap();
            let read = timeout(LIMIT, peer.read(&mut [0])).await.expect("the session ends");
            assert_eq!(read.unwrap(), 0);
            assert!(link.is_closed() && faulty.0.load(Ordering::SeqCst));
            assert_eq!(sessions.send(Count).await, Ok(1));
            assert!(!peers[1].1.is_closed());
        });
    }

    /// Nobody reads the mailbox while this test fills it: both are on one thread.
    #[test]
    fn a_session_with_a_full_mailbox_refuses_calls_as_busy_and_drops_what_is_pushed() {
        let served = Served::Other(Arc::new(Faulty::default()));
        actix::System::new().block_on(async {
            let clock = NodeClock(Arc::new(SystemClock::new()));
            let sessions = Sessions::new(NetConfig::default(), clock, Credits::new(1 << 20), Arc::default());
            let sessions = sessions.start();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let stream = listener.accept().await.unwrap().0.into_std().unwrap();
            let link = sessions.send(TakeIn { stream, served, seat: None }).await.unwrap().unwrap();
            assert_eq!(sessions.send(Count).await, Ok(1));
            let request = Command::request::<GetMaxOffset>(&GetMaxOffsetHeader::default());
            let push = || link.hand(ToSession::Push(request.clone()));
            let filled = (0..2 * MAILBOX).take_while(|_| push().is_ok()).count();
            assert!((MAILBOX..=MAILBOX + 1).contains(&filled), "{filled}");
            assert_eq!(push(), Err(CallError::Busy));
            assert_eq!(link.ask(request.clone(), LIMIT).await.unwrap_err(), CallError::Busy);
        });
    }
}
