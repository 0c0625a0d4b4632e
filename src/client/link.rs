//! One connection to a server: requests out, answers back to who asked, the server's own requests to the client.
//!
//! Invariants:
//! - one task owns the socket and the table of pending requests; it ends when the socket or the last handle does
//!   (a broker in this process needs no task: it takes the requests itself);
//! - every caller gets an answer or an error: what is pending when the task ends fails with `Disconnected`;
//! - once [`OUTBOUND_MAX_BYTES`] wait to be written, no further request is taken: callers wait, each with a limit;
//! - a connection on which requests stay without an answer, and nothing else is heard, ends: the next one may lead to
//!   a server that lives.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use troupemq_codec::command::Molds;
use troupemq_codec::frame::take_frame;
use troupemq_codec::signature::{ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, sign};
use troupemq_codec::{Command, CommandView, Order, Request, ResponseCode, Text};

use super::error::ClientError;
use super::near::{Near, give_out};
use super::peers::{Dialling, connect_timed_out};

/// Bytes that may wait for the socket before further requests are left in the queue.
const OUTBOUND_MAX_BYTES: usize = 256 << 10;
/// Requests that may wait in the queue; a full one makes callers wait.
const QUEUED_MAX: usize = 1024;
/// Turns of a broker in this process whose answers may wait to be given out.
const ANSWERED_MAX: usize = 64;
/// Requests taken from the queue at once.
const TAKEN_MAX: usize = 64;
/// How often entries of callers that gave up are removed, and a connection is looked at that may be dead.
const SWEEP: Duration = Duration::from_secs(5);
/// Callers that gave up without a word of the server since, after which the connection counts as dead.
const UNANSWERED_MAX: usize = 2;
/// How long what nobody waits for may wait for its place in the queue, and the last bytes for the socket.
const PATIENCE: Duration = Duration::from_secs(3);
/// Room made for each read.
const READ_BYTES: usize = 64 << 10;
/// How an alert of TLS begins, which is what a server that wants TLS answers to anything else.
const TLS_ALERT: [u8; 2] = [0x15, 3];
/// What is said of a connection that carries no TLS and ended before the server said anything.
const UNHEARD: &str = "it closed the connection without a word, as servers do that want TLS";

/// A request of a server to this client, over the connection the client opened.
#[derive(Debug)]
pub(crate) struct ServerCall {
    /// The request.
    pub(crate) command: Command,
    /// The server, as this client dialled it.
    pub(crate) address: Arc<str>,
    /// Where its answer goes.
    pub(crate) answers: AnswerTo,
}

/// The way back of a [`ServerCall`]; does not keep the connection open.
#[derive(Debug)]
pub(crate) struct AnswerTo(mpsc::WeakSender<LinkOrder>);

impl AnswerTo {
    /// Sends an answer; nothing happens if the connection has ended.
    pub(crate) async fn send(self, answer: Command) {
        if let Some(orders) = self.0.upgrade() {
            // A connection that is closed or takes nothing is the server's sign that it wants no answer any more.
            let _ = timeout(PATIENCE, orders.send(Order::new(&answer, None))).await;
        }
    }
}

/// Something to write, and who waits for the answer to it.
pub(crate) type LinkOrder = Order<oneshot::Sender<Command>>;

/// Who signs requests.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) user: Text,
    pub(crate) secret: Text,
    pub(crate) token: Option<Text>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials of {}", self.user)
    }
}

impl Credentials {
    /// Adds who asks, and the signature over everything.
    pub(crate) fn sign(&self, command: &mut Command) {
        command.fields.set(ACCESS_KEY, self.user.clone());
        if let Some(token) = &self.token {
            command.fields.set(SECURITY_TOKEN, token.clone());
        }
        let signature = sign(&command.fields, &command.body, &self.secret);
        command.fields.set(SIGNATURE, signature);
    }
}

/// A handle to a connection; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    address: Arc<str>,
    orders: mpsc::Sender<LinkOrder>,
    next_opaque: Arc<AtomicI32>,
    credentials: Option<Arc<Credentials>>,
    /// Why the connection ended, once it has.
    ending: Arc<OnceLock<String>>,
    /// Callers that gave up since the server last said something.
    unanswered: Arc<AtomicUsize>,
}

impl Link {
    /// Connects, with TLS if that is wanted; requests of the server go to `calls`.
    pub(crate) async fn dial(
        address: &str,
        dialling: &Dialling,
        within: Duration,
        calls: mpsc::Sender<ServerCall>,
    ) -> Result<Link, ClientError> {
        let failed = |cause| ClientError::Connect { address: address.to_owned(), cause };
        let connected = async {
            let addresses = dialling.names.addresses(address).await.map_err(failed)?;
            let stream = reach(&addresses, within).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            match &dialling.security {
                None => Ok(Link::begin(address, stream.into_split(), calls, false)),
                Some(security) => {
                    let stream = security.over(address, stream).await?;
                    Ok(Link::begin(address, tokio::io::split(stream), calls, true))
                }
            }
        };
        timeout(within, connected).await.unwrap_or_else(|_| Err(connect_timed_out(address, within)))
    }

    /// Starts the task of a connection that was just made.
    fn begin(
        address: &str,
        (reader, writer): (impl AsyncRead + Unpin + Send + 'static, impl AsyncWrite + Unpin + Send + 'static),
        calls: mpsc::Sender<ServerCall>,
        is_secret: bool,
    ) -> Link {
        let (orders, queue) = mpsc::channel(QUEUED_MAX);
        let wire = Wire {
            address: address.into(),
            is_secret,
            is_heard: false,
            ending: Arc::new(OnceLock::new()),
            unanswered: Arc::default(),
            queue,
            answers: orders.downgrade(),
            calls,
            pending: HashMap::new(),
            molds: Molds::default(),
            inbound: BytesMut::with_capacity(READ_BYTES),
            outbound: BytesMut::with_capacity(READ_BYTES),
        };
        let (address, ending, unanswered) =
            (wire.address.clone(), wire.ending.clone(), wire.unanswered.clone());
        tokio::spawn(wire.run(reader, writer));
        let next_opaque = Arc::new(AtomicI32::new(1));
        Link { address, orders, next_opaque, credentials: None, ending, unanswered }
    }

    /// Opens a connection to a broker in this process, whose queue of orders is served by the broker itself.
    pub(crate) fn open(
        address: &str,
        near: &dyn Near,
        calls: mpsc::Sender<ServerCall>,
    ) -> Result<Link, ClientError> {
        let (orders, queue) = mpsc::channel(QUEUED_MAX);
        let answers = orders.downgrade();
        let server: Arc<str> = address.into();
        let called_by = server.clone();
        let on_call = move |command| {
            let (address, answers) = (called_by.clone(), AnswerTo(answers.clone()));
            let call = ServerCall { command, address, answers };
            if calls.try_send(call).is_err() {
                tracing::debug!("request of the broker dropped, too many wait");
            }
        };
        let (answered, given_out) = mpsc::channel(ANSWERED_MAX);
        near.open(queue, Box::new(on_call), answered)?;
        tokio::spawn(give_out(given_out));
        Ok(Link {
            address: server,
            orders,
            next_opaque: Arc::new(AtomicI32::new(1)),
            credentials: None,
            ending: Arc::new(OnceLock::from("the broker has ended".to_owned())),
            unanswered: Arc::default(),
        })
    }

    /// The same, and requests are signed.
    pub(crate) fn signed(self, credentials: Option<Arc<Credentials>>) -> Link {
        Link { credentials, ..self }
    }

    /// The server.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.orders.is_closed()
    }

    /// Sends a request and waits for its answer, whatever its code is.
    pub(crate) async fn call<R: Request>(
        &self,
        header: &R::Header,
        body: Bytes,
        within: Duration,
    ) -> Result<Command, ClientError> {
        let begun = Instant::now();
        self.call_until::<R>(header, body, (begun, begun + within)).await
    }

    /// The same from a moment on, which is now, until another. The header is written at once: it need not outlive
    /// this call.
    pub(crate) fn call_until<'a, R: Request>(
        &'a self,
        header: &R::Header,
        body: Bytes,
        (begun, until): (Instant, Instant),
    ) -> impl Future<Output = Result<Command, ClientError>> + use<'a, R> {
        let (reply, answer) = oneshot::channel();
        let order = self.order::<R>(header, body, Some(reply));
        let exchange = async move {
            self.orders.send(order).await.map_err(|_| self.disconnected::<R>())?;
            answer.await.map_err(|_| self.disconnected::<R>())
        };
        async move {
            match timeout_at(until, exchange).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.unanswered.fetch_add(1, Ordering::Relaxed);
                    Err(self.timed_out::<R>(until.saturating_duration_since(begun)))
                }
            }
        }
    }

    /// Sends a request and reads the header of its answer; any code but success is an error.
    pub(crate) async fn ask<R: Request>(
        &self,
        header: &R::Header,
        body: Bytes,
        within: Duration,
    ) -> Result<(R::Reply, Bytes), ClientError> {
        let answer = self.call::<R>(header, body, within).await?;
        if answer.response_code() != ResponseCode::SUCCESS {
            return Err(self.refusal::<R>(&answer));
        }
        let reply = answer.header().map_err(|cause| self.malformed::<R>(cause))?;
        Ok((reply, answer.body))
    }

    /// Sends a request that nobody answers; returns when it is queued for the socket.
    pub(crate) async fn tell<R: Request>(
        &self,
        header: &R::Header,
        body: Bytes,
        within: Duration,
    ) -> Result<(), ClientError> {
        let order = self.order::<R>(header, body, None);
        match timeout(within, self.orders.send(order)).await {
            Ok(queued) => queued.map_err(|_| self.disconnected::<R>()),
            Err(_) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                Err(self.timed_out::<R>(within))
            }
        }
    }

    fn timed_out<R: Request>(&self, after: Duration) -> ClientError {
        ClientError::TimedOut { address: self.address.to_string(), request: R::NAME, after }
    }

    fn disconnected<R: Request>(&self) -> ClientError {
        let why = self.ending.get().map_or("it is lost", String::as_str).to_owned();
        ClientError::Disconnected { address: self.address.to_string(), request: R::NAME, why }
    }

    /// An answer with a bad code as an error.
    pub(crate) fn refusal<R: Request>(&self, answer: &Command) -> ClientError {
        ClientError::Refused {
            address: self.address.to_string(),
            request: R::NAME,
            code: answer.response_code(),
            remark: answer.remark.as_ref().map(ToString::to_string).unwrap_or_default(),
        }
    }

    /// An answer that cannot be read as an error.
    pub(crate) fn malformed<R: Request>(&self, cause: troupemq_codec::CodecError) -> ClientError {
        ClientError::Malformed { address: self.address.to_string(), request: R::NAME, cause }
    }

    /// A request; nobody answers one for which nobody waits.
    fn order<R: Request>(
        &self,
        header: &R::Header,
        body: Bytes,
        waiter: Option<oneshot::Sender<Command>>,
    ) -> LinkOrder {
        let opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
        let Some(credentials) = &self.credentials else {
            return Order::request::<R>(opaque, header, body, waiter);
        };
        let mut command = Command::request::<R>(header).with_body(body);
        command.opaque = opaque;
        credentials.sign(&mut command);
        let command = if waiter.is_none() { command.oneway() } else { command };
        Order::new(&command, waiter)
    }
}

/// What the task of a connection owns.
struct Wire {
    address: Arc<str>,
    /// Whether it carries TLS, whose records must be pushed out.
    is_secret: bool,
    /// Whether the server has said anything.
    is_heard: bool,
    ending: Arc<OnceLock<String>>,
    unanswered: Arc<AtomicUsize>,
    queue: mpsc::Receiver<LinkOrder>,
    answers: mpsc::WeakSender<LinkOrder>,
    calls: mpsc::Sender<ServerCall>,
    pending: HashMap<i32, oneshot::Sender<Command>>,
    /// What heads looked like that were read.
    molds: Molds,
    inbound: BytesMut,
    outbound: BytesMut,
}

impl Wire {
    async fn run(mut self, reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin) {
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
                    self.unanswered.store(0, Ordering::Relaxed);
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
                    self.pending.retain(|_, reply| !reply.is_closed());
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
        let unanswered = self.unanswered.load(Ordering::Relaxed);
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

    fn enqueue(&mut self, order: LinkOrder) {
        if order.waiter.as_ref().is_some_and(oneshot::Sender::is_closed) {
            // Who asked has given up: the server is spared it.
            return;
        }
        self.outbound.extend_from_slice(&order.head);
        self.outbound.extend_from_slice(&order.body);
        if let Some(reply) = order.waiter {
            self.pending.insert(order.opaque, reply);
        }
    }

    /// Hands every whole frame on.
    fn deliver(&mut self) -> io::Result<()> {
        let broken = |cause| io::Error::new(io::ErrorKind::InvalidData, cause);
        if !self.is_heard && !self.is_secret && self.inbound.starts_with(&TLS_ALERT) {
            let why = "it speaks TLS, which this client was not told to do";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        while let Some(frame) = take_frame(&mut self.inbound).map_err(broken)? {
            let view = CommandView::parse_like(&frame, &mut self.molds).map_err(broken)?;
            let command = Command::from_view(&view, &frame);
            self.is_heard = true;
            if command.is_response() {
                if let Some(reply) = self.pending.remove(&command.opaque) {
                    // Who does not listen any more has timed out or was cancelled.
                    let _ = reply.send(command);
                }
            } else {
                let (address, answers) = (self.address.clone(), AnswerTo(self.answers.clone()));
                let call = ServerCall { command, address, answers };
                if self.calls.try_send(call).is_err() {
                    tracing::debug!(address = %self.address, "request of the server dropped, too many wait");
                }
            }
        }
        Ok(())
    }
}

/// Connects to the first address that can be reached; each has its share of the time.
async fn reach(addresses: &[SocketAddr], within: Duration) -> io::Result<TcpStream> {
    let share = within / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {share:?}")),
        }
    }
    Err(last)
}

/// Writes some of the bytes; pushes out what a layer below may keep if there are none. Tells which it was: true if it
/// wrote. Nothing is lost if it is dropped half way.
async fn push(writer: &mut (impl AsyncWrite + Unpin), outbound: &mut BytesMut) -> io::Result<bool> {
    if outbound.is_empty() {
        return writer.flush().await.map(|()| false);
    }
    writer.write_buf(outbound).await.map(|_| true)
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex, split};
    use tokio::time::advance;
    use troupemq_codec::NoHeader;
    use troupemq_codec::request::HeartBeat;

    use super::*;

    /// Longer than anything a connection does by itself.
    const LONG: Duration = Duration::from_secs(60);

    /// A connection to a server that can take in so many bytes, and reads none.
    fn silent(bytes: usize) -> (Link, DuplexStream) {
        let (ours, theirs) = duplex(bytes);
        (Link::begin("silent:1", split(ours), mpsc::channel(1).0, false), theirs)
    }

    async fn asked(link: &Link, within: Duration) -> ClientError {
        link.call::<HeartBeat>(&NoHeader, Bytes::new(), within).await.expect_err("nobody answers")
    }

    /// Says so much that nothing more is taken, and gives what is said then.
    async fn filled(link: &Link) -> ClientError {
        for _ in 0..QUEUED_MAX * 2 {
            if let Err(error) = link.tell::<HeartBeat>(&NoHeader, Bytes::from(vec![0; 4096]), PATIENCE).await
            {
                return error;
            }
        }
        panic!("it takes in everything")
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_server_has_fallen_silent_ends_and_says_why() {
        let (link, _server) = silent(1 << 20);
        for _ in 0..UNANSWERED_MAX {
            let error = asked(&link, PATIENCE).await;
            assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
        }
        let error = asked(&link, LONG).await;
        assert!(matches!(error, ClientError::Disconnected { .. }), "{error}");
        assert!(error.to_string().contains("2 requests in a row were not answered in time"), "{error}");
        assert!(link.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn one_late_answer_is_no_silence() {
        let (link, mut server) = silent(1 << 20);
        asked(&link, PATIENCE / 10).await;
        let alive = Command::response(ResponseCode::SUCCESS);
        let mut out = BytesMut::new();
        alive.encode(&mut out);
        server.write_all(&out).await.expect("the connection stands");
        let error = asked(&link, LONG).await;
        assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_to_a_server_that_reads_nothing_fails_with_the_limit() {
        let (link, _server) = silent(64);
        let error = filled(&link).await;
        assert_eq!(error.to_string(), "silent:1 did not answer HEART_BEAT within 3s");
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_ends_with_the_last_handle_though_the_server_reads_nothing() {
        let (link, _server) = silent(64);
        filled(&link).await;
        let task = Arc::downgrade(&link.ending);
        drop(link);
        for _ in 0..8 {
            advance(SWEEP).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(task.strong_count(), 0);
    }
}
