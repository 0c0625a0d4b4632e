//! Sends messages (RocketMQ's `DefaultMQProducer`).
//!
//! Invariants:
//! - a message is sent again only where that can help: after trouble with a broker, never after a refusal of the
//!   message itself, and then to another broker if there is one;
//! - the time limit holds for all tries together;
//! - every message has a unique id, the same for all tries.
//!
//! Contents: `ready` makes messages ready to be sent, `path` is the way that the last send took, `retry` says whether
//! another try helps.

mod path;
mod ready;
mod retry;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout_at};
use troupemq_codec::Text;
use troupemq_codec::filter::java_hash;
use troupemq_codec::message::{Compression, RecallHandle};
use troupemq_codec::request::{RecallMessage, RecallMessageHeader, SendMessageV2, SendMessageV2Header};

use super::error::ClientError;
use super::faults::Faults;
use super::message::{Message, Received};
use super::queue::Queue;
use super::routes::{Route, TEMPLATE_QUEUES_MAX};
use super::trace::collector::Tracer;
use super::trace::{Subject, Trace, What};
use super::transaction::{Checker, Decision};
use super::{Client, epoch_ms, legal};
use path::Paths;
use ready::{Ready, receipt};
use retry::{is_about_broker, may_retry};

/// Pause before a broker that just failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Tries beyond the first.
const RETRIES: usize = 2;
/// Smallest body that is compressed.
const COMPRESS_FROM_BYTES: usize = 4096;
/// What is so of a send that was done.
const LEFT_ITS_RECEIPT: &str = "a send that was done left its receipt";
/// What a send wishes the template of a topic made on demand to be.
const TEMPLATE_TOPIC: Text = Text::from_static("TBW102");

/// Settings of a producer.
#[derive(Debug, Clone)]
pub struct ProducerBuilder {
    client: Client,
    group: Text,
    send_timeout: Duration,
    retries: usize,
    compress: Compress,
    compresses: bool,
    checker: Option<Checker>,
    traces: bool,
}

/// Which bodies are compressed, and how.
#[derive(Debug, Clone, Copy)]
struct Compress {
    by: Compression,
    level: i32,
    from_bytes: usize,
}

impl Default for Compress {
    fn default() -> Compress {
        Compress { by: Compression::Zlib, level: 5, from_bytes: COMPRESS_FROM_BYTES }
    }
}

/// Sends messages; cheap to clone, and one is enough for a program.
#[derive(Debug, Clone)]
pub struct Producer {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    client: Client,
    group: Text,
    send_timeout: Duration,
    retries: usize,
    compression: Option<Compress>,
    faults: Faults,
    paths: Paths,
    turn: AtomicUsize,
    tracer: Option<Tracer>,
}

/// Where a message went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendReceipt {
    /// The id the message was given; those of a batch are separated by commas.
    pub message_id: String,
    /// The id that names the place in the broker's log.
    pub offset_id: String,
    /// The queue.
    pub queue: Queue,
    /// The position in the queue; of a batch, that of its first message.
    pub queue_offset: i64,
    /// Whether flush and replication were done in time.
    pub status: SendStatus,
    /// By which a message for a later time can be recalled; see [`Producer::recall`].
    pub recall_handle: Option<String>,
}

/// How safe a message that was taken is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// Stored as the broker is configured to. RocketMQ: `SEND_OK`.
    Stored,
    /// Stored, but the flush to disk was not done in time. RocketMQ: `FLUSH_DISK_TIMEOUT`.
    FlushTimedOut,
    /// Stored, but no slave confirmed in time. RocketMQ: `FLUSH_SLAVE_TIMEOUT`.
    SlaveTimedOut,
    /// Stored, but there is no slave fit to copy it. RocketMQ: `SLAVE_NOT_AVAILABLE`.
    NoSlave,
}

/// A try that failed.
struct Failed {
    /// The broker, if one was chosen.
    broker: Option<Text>,
    error: ClientError,
}

impl ProducerBuilder {
    pub(super) fn new(client: Client, group: &str) -> ProducerBuilder {
        ProducerBuilder {
            client,
            group: group.into(),
            send_timeout: Duration::from_secs(3),
            retries: RETRIES,
            compress: Compress::default(),
            compresses: true,
            checker: None,
            traces: false,
        }
    }

    /// How bodies of 4 KiB and more are compressed, and how hard, from 1 to 9. Default: zlib, 5. RocketMQ:
    /// `compressType`, `compressLevel`.
    pub fn compression(mut self, by: Compression, level: i32) -> ProducerBuilder {
        (self.compress.by, self.compress.level) = (by, level);
        self
    }

    /// Compresses bodies from this size on, in bytes. Default: 4 KiB. RocketMQ: `compressMsgBodyOverHowmuch`.
    pub fn compress_from(mut self, bytes: usize) -> ProducerBuilder {
        self.compress.from_bytes = bytes;
        self
    }

    /// Sends bodies as they are, whatever is said of how they would be compressed.
    pub fn no_compression(mut self) -> ProducerBuilder {
        self.compresses = false;
        self
    }

    /// Answers brokers that ask what became of a transaction of this group; see [`Producer::begin`]. RocketMQ:
    /// `TransactionListener.checkLocalTransaction`.
    pub fn checker<F>(mut self, check: impl Fn(Received) -> F + Send + Sync + 'static) -> ProducerBuilder
    where
        F: Future<Output = Decision> + Send + 'static,
    {
        self.checker = Some(Checker { check: Arc::new(move |half| Box::pin(check(half))), tracer: None });
        self
    }

    /// Whether what happens to its messages is told in messages of the topic `RMQ_SYS_TRACE_TOPIC`, which must exist;
    /// `mqadmin queryMsgTraceById` reads them. A send never waits for its trace. Default: no.
    pub fn trace(mut self, traces: bool) -> ProducerBuilder {
        self.traces = traces;
        self
    }

    /// How long a send may take, all tries together. Default: 3 s. RocketMQ: `sendMsgTimeout`.
    pub fn send_timeout(mut self, within: Duration) -> ProducerBuilder {
        self.send_timeout = within;
        self
    }

    /// How often a send that met trouble is tried again, on another broker if there is one. Default: 2. RocketMQ:
    /// `retryTimesWhenSendFailed`.
    pub fn retries(mut self, times: usize) -> ProducerBuilder {
        self.retries = times;
        self
    }

    /// Makes the producer known to the brokers: to those of its client's topics, and with a checker to all masters,
    /// so that they can ask what became of transactions that an earlier run of the program has begun.
    ///
    /// # Errors
    /// [`ClientError::IllegalName`] for a group that cannot be called so, [`ClientError::ShutDown`] after the end of
    /// the client.
    pub async fn start(self) -> Result<Producer, ClientError> {
        legal::group(&self.group)?;
        let is_asked = self.checker.is_some();
        let producer = self.begin()?;
        let hub = &producer.state.client.hub;
        if is_asked && let Err(error) = hub.routes.know_all_masters(&hub.peers).await {
            tracing::debug!(%error, "brokers hear of the checker when its producer first sends");
        }
        hub.heartbeat().await;
        Ok(producer)
    }

    /// Makes the producer; brokers hear of it with the next heart-beat.
    pub(super) fn begin(self) -> Result<Producer, ClientError> {
        self.client.begin_here()?;
        let ProducerBuilder { client, group, send_timeout, retries, compress, compresses, checker, traces } =
            self;
        let compression = compresses.then_some(compress);
        let tracer = traces.then(|| Tracer::start(&client, &group, "PRODUCE-1")).transpose()?;
        let checker = checker.map(|checker| Checker { tracer: tracer.clone(), ..checker });
        client.hub.add_producer(&group, checker);
        let (faults, paths, turn) = (Faults::default(), Paths::default(), AtomicUsize::new(0));
        let state = State { client, group, send_timeout, retries, compression, faults, paths, turn, tracer };
        Ok(Producer { state: Arc::new(state) })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Brokers forget the group when the connection ends or its heart-beats do.
        self.client.hub.remove_producer(&self.group);
    }
}

impl Producer {
    /// Sends a message to the queue whose turn it is, and waits until it is stored, as the broker is configured
    /// ([`SendReceipt::status`]).
    ///
    /// # Errors
    /// [`ClientError::IllegalMessage`] before anything is sent, [`ClientError::NoRoute`] if nobody has the topic or
    /// makes it, [`ClientError::Refused`], or what stood in the way of the last try: after [`ClientError::TimedOut`]
    /// and [`ClientError::Disconnected`] the message may be stored all the same.
    pub fn send(
        &self,
        message: Message,
    ) -> impl Future<Output = Result<SendReceipt, ClientError>> + Send + use<'_> {
        // Each future that waits for another is moved with it: the message is made ready at once, and not kept.
        self.send_ready(self.state.ready(message, 0))
    }

    /// Sends messages of one topic in one request: they get consecutive places in one queue. RocketMQ: `send` of a
    /// collection.
    ///
    /// # Errors
    /// [`ClientError::IllegalMessage`] for no messages, messages of several topics, for a later time, or of which only
    /// some wait until they are stored; else as [`Producer::send`].
    pub async fn send_batch(&self, messages: &[Message]) -> Result<SendReceipt, ClientError> {
        self.send_ready(self.state.ready_batch(messages)).await
    }

    /// Sends a message to a queue of the caller's choice; it is tried again on that queue only. RocketMQ: `send` with a
    /// `MessageQueue`.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_to(&self, queue: &Queue, message: Message) -> Result<SendReceipt, ClientError> {
        let mut ready = self.state.ready(message, 0)?;
        let (_, deadline) = self.limits();
        let mut tries = self.state.retries;
        loop {
            let limits = (Instant::now(), deadline);
            let sent = async {
                let route = self.route(&ready.topic, limits).await?;
                self.send_once(&mut ready, (&route, queue), limits).await
            };
            match sent.await {
                Ok(_) => return Ok(ready.receipt.expect(LEFT_ITS_RECEIPT)),
                Err(error) if tries > 0 && may_retry(&error) && Instant::now() + RETRY_PAUSE < deadline => {
                    tries -= 1;
                    sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a message to the queue that its ordering key falls on: messages of one key keep their order. The queue is
    /// that which Java's `SelectMessageQueueByHash` takes.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_ordered(
        &self,
        ordering_key: &str,
        message: Message,
    ) -> Result<SendReceipt, ClientError> {
        let route = self.route(&message.topic, self.limits()).await?;
        let queues = route.in_order();
        let at = usize::try_from(java_hash(ordering_key).unsigned_abs()).expect("32 bits fit")
            % queues.len().max(1);
        let no_queue = || ClientError::NoQueue { topic: message.topic().to_owned(), wanted: "writable" };
        let queue = queues.get(at).ok_or_else(no_queue)?.clone();
        self.send_to(&queue, message).await
    }

    /// Cancels the delivery of a message that was sent for a later time; the handle is that of its receipt. Brokers do
    /// so from RocketMQ 5.3.2 on, and ours, with `recallMessageEnable=true`.
    ///
    /// # Errors
    /// The broker's refusal: it has been delivered, or the broker keeps no such message.
    pub async fn recall(&self, topic: &str, handle: &str) -> Result<(), ClientError> {
        let unreadable = |_| ClientError::IllegalMessage {
            topic: topic.to_owned(),
            why: format!("{handle:?} is no handle of a message to come"),
        };
        let place = RecallHandle::parse(handle).map_err(unreadable)?;
        let hub = &self.state.client.hub;
        let link = hub.master_of(topic, &place.broker_name).await?;
        let header = RecallMessageHeader {
            producer_group: Some(self.state.group.clone()),
            topic: topic.into(),
            recall_handle: handle.into(),
        };
        let begun_ms = epoch_ms();
        let recalled = link.ask::<RecallMessage>(&header, Bytes::new(), hub.within).await;
        if let Some(tracer) = &self.state.tracer {
            let subject = Subject::named(topic, &place.unique_id);
            let what = What::Recalled { is_done: recalled.is_ok() };
            tracer.take(Trace { subject, region: None, begun_ms, what });
        }
        recalled.map(drop)
    }

    /// Sends a message without an answer: it may get lost, and nobody will know. RocketMQ: `sendOneway`.
    ///
    /// # Errors
    /// What can be known before the message has left.
    pub async fn send_oneway(&self, message: Message) -> Result<(), ClientError> {
        let mut ready = self.state.ready(message, 0)?;
        let limits @ (now, deadline) = self.limits();
        let route = self.route(&ready.topic, limits).await?;
        let queue = self.next_queue(&route, None, now)?;
        let link = self.link(&route, queue, deadline).await?;
        let within = deadline.saturating_duration_since(Instant::now());
        link.tell::<SendMessageV2>(&self.header(&mut ready, queue), ready.body, within).await
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.state.group
    }

    pub(super) fn client(&self) -> &Client {
        &self.state.client
    }

    pub(super) fn tracer(&self) -> Option<&Tracer> {
        self.state.tracer.as_ref()
    }

    pub(super) fn has_checker(&self) -> bool {
        self.state.client.hub.has_checker(&self.state.group)
    }

    /// Sends a message with bits of the system flag.
    pub(super) async fn send_flagged(
        &self,
        message: Message,
        sys_flag: i32,
    ) -> Result<SendReceipt, ClientError> {
        self.send_ready(self.state.ready(message, sys_flag)).await
    }

    /// Sends a reply by the broker that the request came through.
    pub(super) async fn send_reply(&self, reply: Message, via: &Queue) -> Result<SendReceipt, ClientError> {
        let mut ready = self.state.ready(reply, 0)?;
        let limits @ (_, deadline) = self.limits();
        let route = self.route(&ready.topic, limits).await?;
        let queue = route.writable().iter().find(|queue| queue.broker_name == via.broker_name);
        let no_queue = || ClientError::NoQueue { topic: ready.topic.to_string(), wanted: "writable" };
        let queue = queue.ok_or_else(no_queue)?;
        let link = self.link(&route, queue, deadline).await?;
        let within = deadline.saturating_duration_since(Instant::now());
        let header = self.header(&mut ready, queue);
        let stored = link.send_reply(&header, ready.body, within).await?;
        Ok(receipt(ready.ids, queue, stored))
    }

    /// Makes this client known to the masters of a topic, if they have not heard of it yet.
    pub(super) async fn meet_brokers(&self, topic: &str) {
        let hub = &self.state.client.hub;
        let Ok(route) = hub.routes.route_for_send(&hub.peers, topic).await else { return };
        let is_stranger = |address: &Text| matches!(hub.peers.open(address), Ok(None));
        let masters = route.addresses().into_iter().filter(|(id, _)| *id == 0);
        let strangers = masters.map(|(_, address)| address).filter(is_stranger).collect();
        hub.meet(strangers).await;
    }

    async fn send_ready(&self, ready: Result<Box<Ready>, ClientError>) -> Result<SendReceipt, ClientError> {
        let mut ready = ready?;
        let mut limits = self.limits();
        let mut avoided: Option<Text> = None;
        let mut tries = self.state.retries;
        loop {
            // Boxed, like what else is seldom done: a send is moved about less the smaller it is.
            let route = match self.known_route(&ready.topic, limits.0) {
                Some(route) => Ok(route),
                None => Box::pin(self.asked_anew(&ready.topic, &mut limits)).await,
            };
            let Failed { broker, error } = match route {
                Ok(route) => match self.next_queue(&route, avoided.as_ref(), limits.0) {
                    Ok(queue) => {
                        let outcome = self.send_once(&mut ready, (&route, queue), limits).await;
                        self.judge(&queue.broker_name, limits.0, &outcome);
                        let Err(error) = outcome else { return Ok(ready.receipt.expect(LEFT_ITS_RECEIPT)) };
                        Failed { broker: Some(queue.broker_name.clone()), error }
                    }
                    Err(error) => Failed { broker: None, error },
                },
                Err(error) => Failed { broker: None, error },
            };
            if tries == 0 || !may_retry(&error) || Instant::now() + RETRY_PAUSE >= limits.1 {
                return Err(error);
            }
            tracing::debug!(topic = %ready.topic, %error, "send is tried again");
            self.state.client.hub.routes.doubt(&ready.topic);
            tries -= 1;
            match broker.filter(|broker| avoided.as_ref() != Some(broker)) {
                Some(broker) => avoided = Some(broker),
                // There is no other broker: this one gets the time to come back.
                None => Box::pin(sleep(RETRY_PAUSE)).await,
            }
            limits.0 = Instant::now();
        }
    }

    /// The route as it is asked for. What a name server takes is not the broker's fault: the send begins after it.
    async fn asked_anew(
        &self,
        topic: &Text,
        limits: &mut (Instant, Instant),
    ) -> Result<Arc<Route>, ClientError> {
        let asked = self.asked_route(topic, limits.1).await;
        limits.0 = Instant::now();
        asked
    }

    /// Remembers how a broker did that was asked at a moment.
    fn judge(&self, broker: &Text, begun: Instant, outcome: &Result<Instant, ClientError>) {
        let ended = outcome.as_ref().map_or_else(|_| Instant::now(), |answered| *answered);
        match outcome {
            Err(error) if error.is_transport() || is_about_broker(error) => {
                self.state.faults.failed(broker, ended)
            }
            _ => self.state.faults.answered(broker, ended.saturating_duration_since(begun), ended),
        }
    }

    /// One try on a queue; what is ready is told its ids once, and where it went. When it was answered.
    async fn send_once(
        &self,
        ready: &mut Ready,
        (route, queue): (&Arc<Route>, &Queue),
        limits: (Instant, Instant),
    ) -> Result<Instant, ClientError> {
        let link = match self.open_link(route, queue)? {
            Some(link) => link,
            None => Box::pin(self.link(route, queue, limits.1)).await?,
        };
        let begun_ms = self.state.tracer.as_ref().map(|_| epoch_ms());
        // Names that all messages share would be counted by two processors, one waiting for the other.
        let header = match link.needs_names() {
            true => self.header(ready, queue),
            false => self.header_with(ready, queue.queue_id, (Text::default(), None)),
        };
        let (code, mut stored) = match link.send(header, ready.body.clone(), limits).await {
            Ok(sent) => sent,
            Err(error) => {
                // The header has taken it along: most sends are not tried again.
                ready.topic = route.topic().clone();
                return Err(error);
            }
        };
        let region = stored.region.take();
        let receipt = receipt(std::mem::take(&mut ready.ids), queue, (code, stored));
        if let (Some(tracer), Some(region), Some(begun_ms)) = (&self.state.tracer, region, begun_ms) {
            trace_sent(tracer, ready, &receipt, (region, link.address(), begun_ms));
        }
        ready.receipt = Some(receipt);
        Ok(link.heard_at())
    }

    /// Now, and until when a send may take.
    fn limits(&self) -> (Instant, Instant) {
        let now = Instant::now();
        (now, now + self.state.send_timeout)
    }

    async fn route(
        &self,
        topic: &Text,
        (now, deadline): (Instant, Instant),
    ) -> Result<Arc<Route>, ClientError> {
        match self.known_route(topic, now) {
            Some(route) => Ok(route),
            None => self.asked_route(topic, deadline).await,
        }
    }

    fn known_route(&self, topic: &Text, now: Instant) -> Option<Arc<Route>> {
        let hub = &self.state.client.hub;
        self.state.paths.route(hub, topic, now).or_else(|| hub.routes.known(topic, now))
    }

    async fn asked_route(&self, topic: &str, deadline: Instant) -> Result<Arc<Route>, ClientError> {
        let hub = &self.state.client.hub;
        let asked = hub.routes.route_for_send(&hub.peers, topic);
        timeout_at(deadline, asked).await.unwrap_or_else(|_| Err(hub.routes.silent(self.state.send_timeout)))
    }

    /// Round robin, past brokers to avoid if others are there.
    fn next_queue<'a>(
        &self,
        route: &'a Route,
        avoided: Option<&Text>,
        now: Instant,
    ) -> Result<&'a Queue, ClientError> {
        let queues = route.writable();
        let turn = self.state.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = || (0..queues.len()).map(|step| &queues[turn.wrapping_add(step) % queues.len()]);
        let is_other = |queue: &&Queue| Some(&queue.broker_name) != avoided;
        let is_welcome = |queue: &&Queue| self.state.faults.is_welcome(&queue.broker_name, now);
        let best = in_turn().find(|queue| is_other(queue) && is_welcome(queue));
        let chosen = best.or_else(|| in_turn().find(is_other)).or_else(|| in_turn().next());
        chosen.ok_or_else(|| ClientError::NoQueue { topic: route.topic().to_string(), wanted: "writable" })
    }

    fn header(&self, ready: &mut Ready, queue: &Queue) -> SendMessageV2Header {
        let names = (self.state.group.clone(), Some(queue.broker_name.clone()));
        self.header_with(ready, queue.queue_id, names)
    }

    fn header_with(
        &self,
        ready: &mut Ready,
        queue_id: i32,
        (producer_group, broker_name): (Text, Option<Text>),
    ) -> SendMessageV2Header {
        let properties = ready.take_properties();
        SendMessageV2Header {
            producer_group,
            topic: std::mem::take(&mut ready.topic),
            default_topic: TEMPLATE_TOPIC,
            default_topic_queues: TEMPLATE_QUEUES_MAX,
            queue_id,
            sys_flag: ready.sys_flag,
            born_timestamp_ms: ready.made_ms,
            flag: ready.flag,
            properties: Some(properties),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            is_batch: Some(ready.is_batch),
            broker_name,
            ..Default::default()
        }
    }
}

/// Tells of messages that were stored, when, where and in which region.
fn trace_sent(
    tracer: &Tracer,
    ready: &Ready,
    receipt: &SendReceipt,
    (region, address, begun_ms): (Text, &str, i64),
) {
    let cost_ms = epoch_ms() - begun_ms;
    for (at, subject) in ready.subjects.iter().enumerate() {
        let what = What::Sent {
            store_host: address.to_owned(),
            cost_ms,
            // The ids of a batch are separated by commas, like its messages' own.
            offset_id: receipt.offset_id.split(',').nth(at).unwrap_or_default().to_owned(),
            is_safe: receipt.status == SendStatus::Stored,
        };
        tracer.take(Trace { subject: subject.clone(), region: Some(region.clone()), begun_ms, what });
    }
}
