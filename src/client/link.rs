//! One connection to a server: requests out, answers back to who asked, the server's own requests to the client.
//!
//! Invariants:
//! - one task owns the socket and the table of pending requests; it ends when the socket or the last handle does
//!   (a broker in this process takes the requests itself, the task only gives its answers out);
//! - every caller gets an answer or an error: what is pending when the task ends fails with `Disconnected`;
//! - when too much waits to be written no further request is taken: callers wait, each with a limit;
//! - a connection on which requests stay without an answer, and nothing else is heard, ends: the next one may lead to
//!   a server that lives.
//!
//! Contents: `wire` is the task of a connection, `answering` waits for answers, by the timers of `timers`, `heard` is
//! what is heard of the server.

mod answering;
mod heard;
mod timers;
mod wire;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use troupemq_codec::order::{EndOrder, Outgoing, SendOrder};
use troupemq_codec::request::{
    EndTransaction, EndTransactionHeader, SendBatchMessage, SendMessageV2, SendMessageV2Header,
    SendReplyMessageV2,
};
use troupemq_codec::sent::Stored;
use troupemq_codec::{CodecError, Command, Order, Request, ResponseCode, Sent, Text};

use super::connection::{Dialling, Stream};
use super::credentials::Credentials;
use super::error::ClientError;
use super::near::{Near, give_out};
use super::trace::REGION;
pub(crate) use answering::{Answering, Sending};
pub(crate) use heard::Heard;
use timers::Timers;
use wire::Wire;

/// Requests that may wait in the queue; a full one makes callers wait.
const QUEUED_MAX: usize = 1024;
/// Turns of a broker in this process whose answers may wait to be given out.
const ANSWERED_MAX: usize = 64;
/// How long what nobody waits for may wait for its place in the queue, and the last bytes for the socket.
const PATIENCE: Duration = Duration::from_secs(3);
/// The region of a broker that names none.
const HOME: Text = Text::from_static(REGION);

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
            let _ = timeout(PATIENCE, orders.send(Outgoing::Frame(Order::new(&answer, None)))).await;
        }
    }
}

/// Who waits for what becomes of a send.
pub(crate) type SendWaiter = oneshot::Sender<Result<Sent, CodecError>>;

/// Something to write, and who waits for the answer to it.
pub(crate) type LinkOrder = Outgoing<oneshot::Sender<Command>, SendWaiter>;

/// A handle to a connection; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    address: Arc<str>,
    orders: mpsc::Sender<LinkOrder>,
    next_opaque: Arc<AtomicI32>,
    credentials: Option<Arc<Credentials>>,
    /// Why the connection ended, once it has.
    ending: Arc<OnceLock<String>>,
    heard: Arc<Heard>,
    timers: Arc<Timers>,
    /// What takes answers off the connection; it ends with its runtime.
    task: AbortHandle,
    /// Whether it leads to a broker in this process.
    is_near: bool,
}

impl Link {
    /// Connects, with TLS if that is wanted; requests of the server go to `calls`.
    pub(crate) async fn dial(
        address: &str,
        dialling: &Dialling,
        within: Duration,
        calls: mpsc::Sender<ServerCall>,
    ) -> Result<Link, ClientError> {
        Ok(match dialling.connect(address, within).await? {
            Stream::Plain(stream) => Link::begin(address, stream.into_split(), calls, false),
            Stream::Secret(stream) => Link::begin(address, tokio::io::split(*stream), calls, true),
        })
    }

    /// Starts the task of a connection that was just made.
    fn begin(
        address: &str,
        (reader, writer): (impl AsyncRead + Unpin + Send + 'static, impl AsyncWrite + Unpin + Send + 'static),
        calls: mpsc::Sender<ServerCall>,
        is_secret: bool,
    ) -> Link {
        let (orders, queue) = mpsc::channel(QUEUED_MAX);
        let wire = Wire::new(address, is_secret, (queue, orders.downgrade()), calls);
        let (address, next_opaque) = (wire.address.clone(), wire.next_opaque.clone());
        let (ending, heard) = (wire.ending.clone(), wire.heard.clone());
        let task = tokio::spawn(wire.run(reader, writer)).abort_handle();
        let (credentials, timers, is_near) = (None, Arc::default(), false);
        Link { address, orders, next_opaque, credentials, ending, heard, timers, task, is_near }
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
        let heard = Arc::new(Heard::new());
        let task = tokio::spawn(give_out(given_out, heard.clone())).abort_handle();
        Ok(Link {
            task,
            address: server,
            orders,
            next_opaque: Arc::new(AtomicI32::new(1)),
            credentials: None,
            ending: Arc::new(OnceLock::from("the broker has ended".to_owned())),
            heard,
            timers: Arc::default(),
            is_near: true,
        })
    }

    /// Whether a send over it names group and broker: one in this process asks for neither where no frame is written.
    pub(crate) fn needs_names(&self) -> bool {
        !self.is_near || self.credentials.is_some()
    }

    /// The same, and requests are signed.
    pub(crate) fn signed(self, credentials: Option<Arc<Credentials>>) -> Link {
        Link { credentials, ..self }
    }

    /// The server.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// When the server last said something: of an answer just got, when it came.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard.at()
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.orders.is_closed() || self.task.is_finished()
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
    fn call_until<'a, R: Request>(
        &'a self,
        header: &R::Header,
        body: Bytes,
        limits: (Instant, Instant),
    ) -> Answering<'a, Command> {
        let (waiter, answer) = oneshot::channel();
        let late = self.hand_over(self.order::<R>(header, body, Some(waiter)));
        Answering::new(self, R::NAME, (late, answer), limits)
    }

    /// Sends a message, or a batch, from a moment on, which is now, and waits until another for where it is stored. It
    /// is handed over at once: the header, which is large, need not be kept for this call.
    pub(crate) fn send<'a>(
        &'a self,
        header: SendMessageV2Header,
        body: Bytes,
        limits: (Instant, Instant),
    ) -> Sending<'a> {
        let is_batch = header.is_batch == Some(true);
        let request = if is_batch { SendBatchMessage::NAME } else { SendMessageV2::NAME };
        if self.credentials.is_some() {
            return Sending::Signed(self, request, Box::pin(self.send_signed(header, body, limits)));
        }
        let (waiter, answer) = oneshot::channel();
        let late = self.hand_over(Outgoing::Send(SendOrder { header, body, waiter }));
        Sending::Plain(Answering::new(self, request, (late, answer), limits))
    }

    /// Ends a transaction, and waits for what the broker says to it.
    pub(crate) async fn end(
        &self,
        header: EndTransactionHeader,
        within: Duration,
    ) -> Result<(), ClientError> {
        if self.credentials.is_some() {
            return self.ask::<EndTransaction>(&header, Bytes::new(), within).await.map(drop);
        }
        let begun = Instant::now();
        let (waiter, answer) = oneshot::channel();
        let opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
        let late = self.hand_over(Outgoing::End(EndOrder { opaque, header, waiter }));
        let limits = (begun, begun + within);
        let answer = Answering::new(self, EndTransaction::NAME, (late, answer), limits).await?;
        match answer.response_code() {
            ResponseCode::SUCCESS => Ok(()),
            _ => Err(self.refusal::<EndTransaction>(&answer)),
        }
    }

    /// A send as a command: a signature is over the fields of one.
    async fn send_signed(
        &self,
        header: SendMessageV2Header,
        body: Bytes,
        limits: (Instant, Instant),
    ) -> Result<Result<Sent, CodecError>, ClientError> {
        let signed = match header.is_batch == Some(true) {
            true => self.call_until::<SendBatchMessage>(&header, body, limits).await,
            false => self.call_until::<SendMessageV2>(&header, body, limits).await,
        };
        Ok(Sent::of(&signed?, &HOME))
    }

    /// Sends the reply to a message, and waits for where it is stored.
    pub(crate) async fn send_reply(
        &self,
        header: &SendMessageV2Header,
        body: Bytes,
        within: Duration,
    ) -> Result<(ResponseCode, Stored), ClientError> {
        let answer = self.call::<SendReplyMessageV2>(header, body, within).await?;
        self.stored(SendReplyMessageV2::NAME, Sent::of(&answer, &HOME))
    }

    /// Where a message is, by the answer to it.
    fn stored(
        &self,
        request: &'static str,
        sent: Result<Sent, CodecError>,
    ) -> Result<(ResponseCode, Stored), ClientError> {
        let address = || self.address.to_string();
        match sent {
            Ok(Sent::Stored(code, place)) => Ok((code, place)),
            Ok(Sent::Refused { code, remark }) => {
                Err(ClientError::Refused { address: address(), request, code, remark })
            }
            Err(cause) => Err(ClientError::Malformed { address: address(), request, cause }),
        }
    }

    /// Hands an order over if there is room; gives it back if not. Orders are large: one that need not wait is not
    /// moved about with those who wait for its answer.
    fn hand_over(&self, order: LinkOrder) -> Option<Box<LinkOrder>> {
        match self.orders.try_send(order) {
            Ok(()) => None,
            Err(TrySendError::Full(order) | TrySendError::Closed(order)) => Some(Box::new(order)),
        }
    }

    /// Somebody gives up after so long.
    fn given_up(&self, request: &'static str, after: Duration) -> ClientError {
        self.heard.miss();
        self.timed_out(request, after)
    }

    /// Hands an order over as soon as there is room; no error where the time is over before.
    async fn hand_over_late(
        &self,
        request: &'static str,
        order: LinkOrder,
        until: Instant,
    ) -> Result<(), Option<ClientError>> {
        match timeout_at(until, self.orders.send(order)).await {
            Ok(handed) => handed.map_err(|_| Some(self.disconnected(request))),
            Err(_) => Err(None),
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
            Ok(queued) => queued.map_err(|_| self.disconnected(R::NAME)),
            Err(_) => Err(self.given_up(R::NAME, within)),
        }
    }

    fn timed_out(&self, request: &'static str, after: Duration) -> ClientError {
        ClientError::TimedOut { address: self.address.to_string(), request, after }
    }

    fn disconnected(&self, request: &'static str) -> ClientError {
        let why = self.ending.get().map_or("it is lost", String::as_str).to_owned();
        ClientError::Disconnected { address: self.address.to_string(), request, why }
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
    pub(crate) fn malformed<R: Request>(&self, cause: CodecError) -> ClientError {
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
            return Outgoing::Frame(Order::request::<R>(opaque, header, body, waiter));
        };
        let mut command = Command::request::<R>(header).with_body(body);
        command.opaque = opaque;
        credentials.sign(&mut command);
        let command = if waiter.is_none() { command.oneway() } else { command };
        Outgoing::Frame(Order::new(&command, waiter))
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex, split};
    use tokio::time::advance;
    use troupemq_codec::NoHeader;
    use troupemq_codec::request::HeartBeat;

    use super::wire::{SWEEP, UNANSWERED_MAX};
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
