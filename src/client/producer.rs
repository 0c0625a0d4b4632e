//! Sends messages (RocketMQ's `DefaultMQProducer`).
//!
//! Invariants:
//! - a message is sent again only where that can help: after trouble with a broker, never after a refusal of the
//!   message itself, and then to another broker if there is one;
//! - the time limit holds for all tries together;
//! - every message has a unique id, the same for all tries.

mod ready;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout_at};
use troupemq_codec::filter::java_hash;
use troupemq_codec::message::{Compression, RecallHandle};
use troupemq_codec::request::{
    RecallMessage, RecallMessageHeader, SendBatchMessage, SendMessageV2, SendMessageV2Header,
    SendReplyMessageV2,
};
use troupemq_codec::{ResponseCode, Text};

use super::error::ClientError;
use super::faults::Faults;
use super::link::Link;
use super::message::{Message, Received};
use super::queue::Queue;
use super::routes::{Route, TEMPLATE_QUEUES_MAX};
use super::trace::collector::Tracer;
use super::trace::{Subject, Trace, What};
use super::transaction::{Checker, Decision};
use super::{Client, epoch_ms};
use ready::{Ready, receipt};

/// Pause before a broker that just failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Tries beyond the first.
const RETRIES: usize = 2;
/// Smallest body that is compressed.
const COMPRESS_FROM_BYTES: usize = 4096;
/// What a send wishes the template of a topic made on demand to be.
const TEMPLATE_TOPIC: Text = Text::from_static("TBW102");

/// Settings of a producer.
#[derive(Debug, Clone)]
pub struct ProducerBuilder {
    client: Client,
    group: Text,
    send_timeout: Duration,
    retries: usize,
    compression: Option<Compress>,
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

impl ProducerBuilder {
    pub(super) fn new(client: Client, group: &str) -> ProducerBuilder {
        ProducerBuilder {
            client,
            group: group.into(),
            send_timeout: Duration::from_secs(3),
            retries: RETRIES,
            compression: Some(Compress::default()),
            checker: None,
            traces: false,
        }
    }

    /// How bodies of 4 KiB and more are compressed, and how hard, from 1 to 9. Default: zlib, 5. RocketMQ:
    /// `compressType`, `compressLevel`.
    pub fn compression(mut self, by: Compression, level: i32) -> ProducerBuilder {
        self.compression = Some(Compress { by, level, ..self.compression.unwrap_or_default() });
        self
    }

    /// Compresses bodies from this size on, in bytes. Default: 4 KiB. RocketMQ: `compressMsgBodyOverHowmuch`.
    pub fn compress_from(mut self, bytes: usize) -> ProducerBuilder {
        self.compression = Some(Compress { from_bytes: bytes, ..self.compression.unwrap_or_default() });
        self
    }

    /// Sends bodies as they are.
    pub fn no_compression(mut self) -> ProducerBuilder {
        self.compression = None;
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
    /// [`ClientError::Setting`] for a group without a name, [`ClientError::ShutDown`] after the end of the client.
    pub async fn start(self) -> Result<Producer, ClientError> {
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
        self.client.hub.still_open()?;
        if self.group.is_empty() {
            return Err(ClientError::Setting { setting: "group", why: "it has no name".to_owned() });
        }
        let ProducerBuilder { client, group, send_timeout, retries, compression, checker, traces } = self;
        let tracer = traces.then(|| Tracer::start(&client, &group, "PRODUCE-1")).transpose()?;
        let checker = checker.map(|checker| Checker { tracer: tracer.clone(), ..checker });
        client.hub.add_producer(&group, checker);
        let (faults, turn) = (Faults::default(), AtomicUsize::new(0));
        let state = State { client, group, send_timeout, retries, compression, faults, turn, tracer };
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
    pub async fn send(&self, message: Message) -> Result<SendReceipt, ClientError> {
        self.send_flagged(&message, 0).await
    }

    /// Sends messages of one topic in one request: they get consecutive places in one queue. RocketMQ: `send` of a
    /// collection.
    ///
    /// # Errors
    /// [`ClientError::IllegalMessage`] for no messages, messages of several topics, for a later time, or of which only
    /// some wait until they are stored; else as [`Producer::send`].
    pub async fn send_batch(&self, messages: &[Message]) -> Result<SendReceipt, ClientError> {
        let ready = self.state.ready_batch(messages)?;
        self.send_ready(&ready).await
    }

    /// Sends a message to a queue of the caller's choice; it is tried again on that queue only. RocketMQ: `send` with a
    /// `MessageQueue`.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_to(&self, queue: &Queue, message: Message) -> Result<SendReceipt, ClientError> {
        let ready = self.state.ready(&message, 0)?;
        let deadline = Instant::now() + self.state.send_timeout;
        let mut tries = self.state.retries;
        loop {
            let sent = async {
                let route = self.route(&ready.topic, deadline).await?;
                self.send_once(&ready, (&route, queue), (Instant::now(), deadline)).await
            };
            match sent.await {
                Err(error) if tries > 0 && may_retry(&error) && Instant::now() + RETRY_PAUSE < deadline => {
                    tries -= 1;
                    sleep(RETRY_PAUSE).await;
                }
                outcome => return outcome,
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
        let deadline = Instant::now() + self.state.send_timeout;
        let route = self.route(message.topic(), deadline).await?;
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
        let ready = self.state.ready(&message, 0)?;
        let deadline = Instant::now() + self.state.send_timeout;
        let route = self.route(&ready.topic, deadline).await?;
        let queue = self.next_queue(&route, None, Instant::now())?;
        let link = self.link(&route, &queue, deadline).await?;
        let within = deadline.saturating_duration_since(Instant::now());
        link.tell::<SendMessageV2>(&self.header(&ready, &queue, epoch_ms()), ready.body.clone(), within).await
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
        message: &Message,
        sys_flag: i32,
    ) -> Result<SendReceipt, ClientError> {
        let ready = self.state.ready(message, sys_flag)?;
        self.send_ready(&ready).await
    }

    /// Sends a reply by the broker that the request came through.
    pub(super) async fn send_reply(&self, reply: Message, via: &Queue) -> Result<SendReceipt, ClientError> {
        let ready = self.state.ready(&reply, 0)?;
        let deadline = Instant::now() + self.state.send_timeout;
        let route = self.route(&ready.topic, deadline).await?;
        let queue = route.writable().iter().find(|queue| queue.broker_name == via.broker_name);
        let no_queue = || ClientError::NoQueue { topic: ready.topic.to_string(), wanted: "writable" };
        let queue = queue.ok_or_else(no_queue)?;
        let link = self.link(&route, queue, deadline).await?;
        let within = deadline.saturating_duration_since(Instant::now());
        let header = self.header(&ready, queue, epoch_ms());
        let answer = link.call::<SendReplyMessageV2>(&header, ready.body.clone(), within).await?;
        receipt::<SendReplyMessageV2>(&link, &answer, &ready, queue).map(|(receipt, _)| receipt)
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

    async fn send_ready(&self, ready: &Ready) -> Result<SendReceipt, ClientError> {
        let deadline = Instant::now() + self.state.send_timeout;
        let mut avoided = None;
        let mut tries = self.state.retries;
        loop {
            let failed_at = avoided.clone();
            let error = match self.send_somewhere(ready, &mut avoided, deadline).await {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error,
            };
            if tries == 0 || !may_retry(&error) || Instant::now() + RETRY_PAUSE >= deadline {
                return Err(error);
            }
            tracing::debug!(topic = %ready.topic, %error, "send is tried again");
            self.state.client.hub.routes.doubt(&ready.topic);
            tries -= 1;
            if failed_at == avoided {
                // There is no other broker: this one gets the time to come back.
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// One try, on another broker than the one to avoid if there is one; that becomes the one to avoid.
    async fn send_somewhere(
        &self,
        ready: &Ready,
        avoided: &mut Option<Text>,
        deadline: Instant,
    ) -> Result<SendReceipt, ClientError> {
        let route = self.route(&ready.topic, deadline).await?;
        let begun = Instant::now();
        let queue = self.next_queue(&route, avoided.as_ref(), begun)?;
        *avoided = Some(queue.broker_name.clone());
        let outcome = self.send_once(ready, (&route, &queue), (begun, deadline)).await;
        let ended = Instant::now();
        match &outcome {
            Err(error) if error.is_transport() || is_about_broker(error) => {
                self.state.faults.failed(&queue.broker_name, ended)
            }
            _ => self.state.faults.answered(&queue.broker_name, ended - begun, ended),
        }
        outcome
    }

    async fn send_once(
        &self,
        ready: &Ready,
        (route, queue): (&Route, &Queue),
        limits: (Instant, Instant),
    ) -> Result<SendReceipt, ClientError> {
        let link = self.link(route, queue, limits.1).await?;
        let (body, begun_ms) = (ready.body.clone(), epoch_ms());
        let (receipt, region) = if ready.is_batch {
            let call =
                link.call_until::<SendBatchMessage>(&self.header(ready, queue, begun_ms), body, limits);
            receipt::<SendBatchMessage>(&link, &call.await?, ready, queue)?
        } else {
            let call = link.call_until::<SendMessageV2>(&self.header(ready, queue, begun_ms), body, limits);
            receipt::<SendMessageV2>(&link, &call.await?, ready, queue)?
        };
        if let (Some(tracer), Some(region)) = (&self.state.tracer, region) {
            trace_sent(tracer, ready, &receipt, (region, link.address(), begun_ms));
        }
        Ok(receipt)
    }

    async fn route(&self, topic: &str, deadline: Instant) -> Result<Arc<Route>, ClientError> {
        let routes = &self.state.client.hub.routes;
        if let Some(route) = routes.known(topic) {
            return Ok(route);
        }
        let asked = routes.route_for_send(&self.state.client.hub.peers, topic);
        timeout_at(deadline, asked).await.unwrap_or_else(|_| Err(routes.silent(self.state.send_timeout)))
    }

    async fn link(&self, route: &Route, queue: &Queue, deadline: Instant) -> Result<Arc<Link>, ClientError> {
        let no_queue = || ClientError::NoQueue { topic: queue.topic.to_string(), wanted: "reachable" };
        let address = route.master(&queue.broker_name).ok_or_else(no_queue)?;
        let peers = &self.state.client.hub.peers;
        if let Some(link) = peers.open(address)? {
            return Ok(link);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        // A broker that cannot be reached leaves time for another one, if there is one.
        let is_other = |other: &Queue| other.broker_name != queue.broker_name;
        let within = if route.writable().iter().any(is_other) { left / 2 } else { left };
        peers.link_within(address, within).await
    }

    /// Round robin, past brokers to avoid if others are there.
    fn next_queue(&self, route: &Route, avoided: Option<&Text>, now: Instant) -> Result<Queue, ClientError> {
        let queues = route.writable();
        let turn = self.state.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = || (0..queues.len()).map(|step| &queues[turn.wrapping_add(step) % queues.len()]);
        let is_other = |queue: &&Queue| Some(&queue.broker_name) != avoided;
        let is_welcome = |queue: &&Queue| self.state.faults.is_welcome(&queue.broker_name, now);
        let best = in_turn().find(|queue| is_other(queue) && is_welcome(queue));
        let chosen = best.or_else(|| in_turn().find(is_other)).or_else(|| in_turn().next());
        chosen
            .cloned()
            .ok_or_else(|| ClientError::NoQueue { topic: route.topic().to_string(), wanted: "writable" })
    }

    fn header(&self, ready: &Ready, queue: &Queue, now_ms: i64) -> SendMessageV2Header {
        SendMessageV2Header {
            producer_group: self.state.group.clone(),
            topic: ready.topic.clone(),
            default_topic: TEMPLATE_TOPIC,
            default_topic_queues: TEMPLATE_QUEUES_MAX,
            queue_id: queue.queue_id,
            sys_flag: ready.sys_flag,
            born_timestamp_ms: now_ms,
            flag: ready.flag,
            properties: Some(ready.properties.clone()),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            is_batch: Some(ready.is_batch),
            broker_name: Some(queue.broker_name.clone()),
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

/// Whether a broker refused because of itself: others may be well. RocketMQ's client avoids it like one that failed.
fn is_about_broker(error: &ClientError) -> bool {
    let codes = [
        ResponseCode::SERVICE_NOT_AVAILABLE,
        ResponseCode::SYSTEM_ERROR,
        ResponseCode::SYSTEM_BUSY,
        ResponseCode::GO_AWAY,
    ];
    error.code().is_some_and(|code| codes.contains(&code))
}

/// Whether another try can help.
fn may_retry(error: &ClientError) -> bool {
    let codes = [
        ResponseCode::TOPIC_NOT_EXIST,
        ResponseCode::SERVICE_NOT_AVAILABLE,
        ResponseCode::SYSTEM_ERROR,
        ResponseCode::SYSTEM_BUSY,
        ResponseCode::NO_PERMISSION,
        ResponseCode::NO_BUYER_ID,
        ResponseCode::NOT_IN_CURRENT_UNIT,
        ResponseCode::GO_AWAY,
    ];
    let is_elsewhere = matches!(error, ClientError::NoRoute { .. } | ClientError::NoQueue { .. });
    error.is_transport() || is_elsewhere || error.code().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_says_of_itself_is_tried_elsewhere_and_what_it_says_of_the_message_is_not() {
        let refused = |code| {
            let (address, remark) = ("a:1".to_owned(), String::new());
            let error = ClientError::Refused { address, request: "SEND_MESSAGE_V2", code, remark };
            (may_retry(&error), is_about_broker(&error))
        };
        for code in [ResponseCode::SYSTEM_BUSY, ResponseCode::SERVICE_NOT_AVAILABLE, ResponseCode::GO_AWAY] {
            assert_eq!(refused(code), (true, true), "{code}");
        }
        for code in [ResponseCode::TOPIC_NOT_EXIST, ResponseCode::NO_PERMISSION] {
            assert_eq!(refused(code), (true, false), "{code}");
        }
        for code in [ResponseCode::MESSAGE_ILLEGAL, ResponseCode::INVALID_PARAMETER] {
            assert_eq!(refused(code), (false, false), "{code}");
        }
        let why = "no body".to_owned();
        assert!(!may_retry(&ClientError::IllegalMessage { topic: "t".to_owned(), why }));
        assert!(!may_retry(&ClientError::ShutDown { what: "client" }));
        let (address, request) = ("a:1".to_owned(), "SEND_MESSAGE_V2");
        assert!(may_retry(&ClientError::TimedOut { address, request, after: RETRY_PAUSE }));
    }
}
