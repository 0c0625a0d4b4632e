//! The task of a connection to a server: it owns the socket and the table of who waits.
//!
//! Invariants:
//! - what is taken from the queue together is written together, and frames of sends are written nowhere but in the
//!   buffer for the socket;
//! - once [`OUTBOUND_MAX_BYTES`] wait to be written, no further request is taken;
//! - a connection on which requests stay without an answer, and nothing else is heard, ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use troupemq_codec::command::Molds;
use troupemq_codec::frame::{LENGTH_BYTES, first_frame, take_frame};
use troupemq_codec::order::{Outgoing, Stencils};
use troupemq_codec::{CodecError, Command, CommandView, Sent, sent};

use super::{AnswerTo, HOME, Heard, LinkOrder, PATIENCE, SendWaiter, ServerCall};

/// Bytes that may wait for the socket before further requests are left in the queue.
const OUTBOUND_MAX_BYTES: usize = 256 << 10;
/// Requests taken from the queue at once.
const TAKEN_MAX: usize = 64;
/// How often entries of callers that gave up are removed, and a connection is looked at that may be dead.
pub(super) const SWEEP: Duration = Duration::from_secs(5);
/// Callers that gave up without a word of the server since, after which the connection counts as dead.
pub(super) const UNANSWERED_MAX: usize = 2;
/// Room made for each read.
pub(super) const READ_BYTES: usize = 64 << 10;
/// How an alert of TLS begins, which is what a server that wants TLS answers to anything else.
const TLS_ALERT: [u8; 2] = [0x15, 3];
/// What is said of a connection that carries no TLS and ended before the server said anything.
const UNHEARD: &str = "it closed the connection without a word, as servers do that want TLS";

/// Who waits for an answer.
#[derive(Debug)]
enum Waiter {
    Command(oneshot::Sender<Command>),
    Send(SendWaiter),
}

/// Who waits, by the number of the request.
type Pending = HashMap<i32, Waiter, BuildHasherDefault<Spread>>;

/// Spreads numbers that are given out one after the other.
#[derive(Default)]
struct Spread(u64);

/// What the task of a connection owns.
pub(super) struct Wire {
    pub(super) address: Arc<str>,
    /// Whether it carries TLS, whose records must be pushed out.
    pub(super) is_secret: bool,
    /// Whether the server has said anything.
    is_heard: bool,
    pub(super) next_opaque: Arc<AtomicI32>,
    pub(super) ending: Arc<OnceLock<String>>,
    pub(super) heard: Arc<Heard>,
    queue: mpsc::Receiver<LinkOrder>,
    answers: mpsc::WeakSender<LinkOrder>,
    calls: mpsc::Sender<ServerCall>,
    pending: Pending,
    /// What heads looked like that were read.
    molds: Molds,
    /// The same of answers to sends.
    sent_molds: sent::Molds,
    /// What heads of sends look like.
    stencils: Stencils,
    inbound: BytesMut,
    outbound: BytesMut,
}

impl Wire {
    /// The task of a connection whose handles send to `queue`; `answers` is the way back of the server's requests.
    pub(super) fn new(
        address: &str,
        is_secret: bool,
        (queue, answers): (mpsc::Receiver<LinkOrder>, mpsc::WeakSender<LinkOrder>),
        calls: mpsc::Sender<ServerCall>,
    ) -> Wire {
        Wire {
            address: address.into(),
            is_secret,
            is_heard: false,
            next_opaque: Arc::new(AtomicI32::new(1)),
            ending: Arc::default(),
            heard: Arc::new(Heard::new()),
            queue,
            answers,
            calls,
            pending: HashMap::default(),
            molds: Molds::default(),
            sent_molds: sent::Molds::default(),
            stencils: Stencils::default(),
            inbound: BytesMut::with_capacity(READ_BYTES),
            outbound: BytesMut::with_capacity(READ_BYTES),
        }
    }

    /// Carries what is asked and answered until one side ends.
    pub(super) async fn run(mut self, reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin) {
        let ended = self.carry(reader, writer).await;
        let why = match ended {
            Ok(()) => "the connection was closed".to_owned(),
            Err(cause) if self.is_unheard(&cause) => UNHEARD.to_owned(),
            Err(cause) => cause.to_string(),
        };
        tracing::debug!(address = %self.address, why, "connection ended");
        // Set before what is pending fails, so that everybody hears it; there is one ending.
        let _ = self.ending.set(why);
    }

    /// Whether a server that wants TLS ends connections like this.
    fn is_unheard(&self, cause: &io::Error) -> bool {
        let closed =
            [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        !self.is_secret && !self.is_heard && closed.contains(&cause.kind())
    }

    /// Reads and writes until one side ends; `Ok` when it is this one.
    async fn carry(
        &mut self,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut is_unflushed = false;
        let mut taken = Vec::with_capacity(TAKEN_MAX);
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let may_take = self.outbound.len() < OUTBOUND_MAX_BYTES;
            tokio::select! {
                read = reader.read_buf(&mut self.inbound) => {
                    if read? == 0 {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it"));
                    }
                    self.heard.note();
                    self.deliver()?;
                    self.inbound.reserve(READ_BYTES);
                }
                count = self.queue.recv_many(&mut taken, TAKEN_MAX), if may_take => {
                    if count == 0 {
                        return self.leave(writer).await;
                    }
                    taken.drain(..).for_each(|order| self.enqueue(order));
                }
                written = push(&mut writer, &mut self.outbound), if is_unflushed || !self.outbound.is_empty() => {
                    is_unflushed = written? && self.is_secret;
                }
                _ = sweep.tick() => {
                    self.pending.retain(|_, waiter| !waiter.is_closed());
                    self.check_alive()?;
                    if !may_take && self.queue.sender_strong_count() == 0 {
                        return self.leave(writer).await;
                    }
                }
            }
        }
    }

    /// Whether the server can be believed to be there.
    fn check_alive(&self) -> io::Result<()> {
        let unanswered = self.heard.in_vain();
        if unanswered < UNANSWERED_MAX {
            return Ok(());
        }
        let why = format!("{unanswered} requests in a row were not answered in time");
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Writes what is left and ends the connection; a server that does not read is not waited for.
    async fn leave(&mut self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        let farewell = async {
            writer.write_all_buf(&mut self.outbound).await?;
            writer.shutdown().await
        };
        let silent = || io::Error::new(io::ErrorKind::TimedOut, "the server reads nothing");
        timeout(PATIENCE, farewell).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Writes what was taken from the queue; the server is spared what was given up meanwhile.
    fn enqueue(&mut self, order: LinkOrder) {
        match order {
            Outgoing::Frame(order) if order.waiter.as_ref().is_some_and(oneshot::Sender::is_closed) => {}
            Outgoing::Send(order) if order.waiter.is_closed() => {}
            Outgoing::End(order) => self.enqueue(Outgoing::Frame(order.framed())),
            Outgoing::Frame(order) => {
                self.outbound.extend_from_slice(&order.head);
                self.outbound.extend_from_slice(&order.body);
                if let Some(waiter) = order.waiter {
                    self.pending.insert(order.opaque, Waiter::Command(waiter));
                }
            }
            Outgoing::Send(order) => {
                let opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
                self.stencils.encode_head(&order, opaque, &mut self.outbound);
                self.outbound.extend_from_slice(&order.body);
                self.pending.insert(opaque, Waiter::Send(order.waiter));
            }
        }
    }

    /// Hands every whole frame on.
    fn deliver(&mut self) -> io::Result<()> {
        let broken = |cause| io::Error::new(io::ErrorKind::InvalidData, cause);
        if !self.is_heard && !self.is_secret && self.inbound.starts_with(&TLS_ALERT) {
            let why = "it speaks TLS, which this client was not told to do";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        // Answers to sends are read where they lie; what else there is takes its bytes along.
        let mut read = 0;
        loop {
            let rest = self.inbound.get(read..).unwrap_or_default();
            let Some(frame) = first_frame(rest).map_err(broken)? else { break };
            let frame_bytes = LENGTH_BYTES + frame.len();
            self.is_heard = true;
            if self.answer_send(read..read + frame_bytes).map_err(broken)? {
                read += frame_bytes;
                continue;
            }
            self.inbound.advance(std::mem::take(&mut read));
            let Some(frame) = take_frame(&mut self.inbound).map_err(broken)? else { break };
            self.deliver_command(&frame).map_err(broken)?;
        }
        self.inbound.advance(read);
        Ok(())
    }

    /// Answers the send that a frame answers; false if it answers none.
    fn answer_send(&mut self, frame: Range<usize>) -> Result<bool, CodecError> {
        let frame = self.inbound.get(frame.start + LENGTH_BYTES..frame.end).unwrap_or_default();
        if let Some((opaque, sent)) = self.sent_molds.read(frame) {
            let Some(waiter) = take_send(&mut self.pending, opaque) else { return Ok(false) };
            // Who does not listen any more has timed out or was cancelled.
            drop(waiter.send(Ok(sent)));
            return Ok(true);
        }
        let view = CommandView::parse_like(frame, &mut self.molds)?;
        let waiter = view.is_response().then(|| take_send(&mut self.pending, view.opaque)).flatten();
        let Some(waiter) = waiter else { return Ok(false) };
        let sent = Sent::read(&view, &HOME);
        sent.iter().for_each(|sent| self.sent_molds.learn(&view, frame, sent));
        drop(waiter.send(sent));
        Ok(true)
    }

    /// Hands on what is no answer to a send.
    fn deliver_command(&mut self, frame: &Bytes) -> Result<(), CodecError> {
        let view = CommandView::parse_like(frame, &mut self.molds)?;
        if !view.is_response() {
            self.called(Command::from_view(&view, frame));
        } else if let Some(Waiter::Command(waiter)) = self.pending.remove(&view.opaque) {
            drop(waiter.send(Command::from_view(&view, frame)));
        }
        Ok(())
    }

    /// Hands a request of the server on.
    fn called(&self, command: Command) {
        let (address, answers) = (self.address.clone(), AnswerTo(self.answers.clone()));
        let call = ServerCall { command, address, answers };
        if self.calls.try_send(call).is_err() {
            tracing::debug!(address = %self.address, "request of the server dropped, too many wait");
        }
    }
}

/// Who waits for what becomes of the send of this number.
fn take_send(pending: &mut Pending, opaque: i32) -> Option<SendWaiter> {
    let Entry::Occupied(entry) = pending.entry(opaque) else { return None };
    if matches!(entry.get(), Waiter::Command(_)) {
        return None;
    }
    match entry.remove() {
        Waiter::Send(waiter) => Some(waiter),
        Waiter::Command(_) => None,
    }
}

impl Waiter {
    /// Whether nobody waits any more.
    fn is_closed(&self) -> bool {
        match self {
            Waiter::Command(waiter) => waiter.is_closed(),
            Waiter::Send(waiter) => waiter.is_closed(),
        }
    }
}

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_i32(i32::from(*byte)));
    }

    fn write_i32(&mut self, number: i32) {
        // The golden ratio of 64 bits: neighbours fall far apart, in the upper bits too.
        self.0 = (self.0 ^ u64::from(number.cast_unsigned())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Writes some of the bytes; pushes out what a layer below may keep if there are none. Tells which it was: true if it
/// wrote. Nothing is lost if it is dropped half way.
async fn push(writer: &mut (impl AsyncWrite + Unpin), outbound: &mut BytesMut) -> io::Result<bool> {
    if outbound.is_empty() {
        return writer.flush().await.map(|()| false);
    }
    writer.write_buf(outbound).await.map(|_| true)
}
