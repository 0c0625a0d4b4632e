//! Sends messages (RocketMQ's `DefaultMQProducer`).
//!
//! Invariants:
//! - a message is sent again only where that can help: after trouble with a broker, never after a refusal of the
//!   message itself, and then to another broker if there is one;
//! - the time limit holds for all tries together;
//! - every message has a unique id, the same for all tries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, sleep};
use troupemq_codec::filter::java_hash;
use troupemq_codec::message::PropertiesView;
use troupemq_codec::message::batch::BatchItem;
use troupemq_codec::message::properties::{UNIQ_KEY, put_property};
use troupemq_codec::request::{SendBatchMessage, SendMessageReplyHeader, SendMessageV2, SendMessageV2Header};
use troupemq_codec::{Command, Request, ResponseCode, Text};

use super::error::ClientError;
use super::link::Link;
use super::message::Message;
use super::queue::Queue;
use super::routes::{Route, TEMPLATE_QUEUES_MAX};
use super::{Client, epoch_ms};

/// Pause before a broker that just failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Tries beyond the first.
const RETRIES: usize = 2;
/// What a send wishes the template of a topic made on demand to be.
const TEMPLATE_TOPIC: Text = Text::from_static("TBW102");

/// Settings of a producer.
#[derive(Debug, Clone)]
pub struct ProducerBuilder {
    client: Client,
    group: Text,
    send_timeout: Duration,
    retries: usize,
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
    turn: AtomicUsize,
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
}

/// How safe a message that was taken is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// Stored as the broker is configured to.
    Stored,
    /// Stored, but the flush to disk was not done in time.
    FlushTimedOut,
    /// Stored, but no slave confirmed in time.
    SlaveTimedOut,
    /// Stored, but there is no slave fit to copy it.
    NoSlave,
}

/// A message made ready: body, properties with id, and how it is to be sent.
struct Ready {
    topic: Text,
    flag: i32,
    body: Bytes,
    properties: Text,
    ids: String,
    is_batch: bool,
}

impl ProducerBuilder {
    pub(super) fn new(client: Client, group: &str) -> ProducerBuilder {
        ProducerBuilder {
            client,
            group: group.into(),
            send_timeout: Duration::from_secs(3),
            retries: RETRIES,
        }
    }

    /// How long a send may take, all tries together. Default: 3 s.
    pub fn send_timeout(mut self, within: Duration) -> ProducerBuilder {
        self.send_timeout = within;
        self
    }

    /// How often a send is tried again. Default: 2.
    pub fn retries(mut self, times: usize) -> ProducerBuilder {
        self.retries = times;
        self
    }

    /// Makes the producer known to the brokers.
    ///
    /// # Errors
    /// [`ClientError::Setting`] for a group without a name.
    pub async fn start(self) -> Result<Producer, ClientError> {
        if self.group.is_empty() {
            return Err(ClientError::Setting { setting: "group", why: "it has no name".to_owned() });
        }
        let ProducerBuilder { client, group, send_timeout, retries } = self;
        client.hub.add_producer(&group);
        client.hub.heartbeat().await;
        Ok(Producer {
            state: Arc::new(State { client, group, send_timeout, retries, turn: AtomicUsize::new(0) }),
        })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Brokers forget the group when the connection ends or its heart-beats do.
        self.client.hub.remove_producer(&self.group);
    }
}

impl Producer {
    /// Sends a message to the queue whose turn it is, and waits until it is stored.
    ///
    /// # Errors
    /// The broker's refusal, or what stood in the way of the last try.
    pub async fn send(&self, message: Message) -> Result<SendReceipt, ClientError> {
        let ready = self.ready(&message)?;
        self.send_ready(ready).await
    }

    /// Sends messages of one topic in one request: they get consecutive places in one queue.
    ///
    /// # Errors
    /// [`ClientError::IllegalMessage`] for no messages or messages of several topics; else as [`Producer::send`].
    pub async fn send_batch(&self, messages: &[Message]) -> Result<SendReceipt, ClientError> {
        let ready = self.ready_batch(messages)?;
        self.send_ready(ready).await
    }

    /// Sends a message to a queue of the caller's choice; it is tried again on that queue only.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_to(&self, queue: &Queue, message: Message) -> Result<SendReceipt, ClientError> {
        let ready = self.ready(&message)?;
        let deadline = Instant::now() + self.state.send_timeout;
        let mut tries = self.state.retries;
        loop {
            match self.send_once(&ready, queue, deadline).await {
                Err(error) if tries > 0 && may_retry(&error) && Instant::now() + RETRY_PAUSE < deadline => {
                    tries -= 1;
                    sleep(RETRY_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Sends a message to the queue that its ordering key falls on: messages of one key keep their order.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_ordered(
        &self,
        ordering_key: &str,
        message: Message,
    ) -> Result<SendReceipt, ClientError> {
        let queues = self.state.client.writable_queues(message.topic()).await?;
        let at = usize::try_from(java_hash(ordering_key).unsigned_abs()).expect("32 bits fit")
            % queues.len().max(1);
        let no_queue = || ClientError::NoQueue { topic: message.topic().to_owned(), wanted: "writable" };
        let queue = queues.get(at).ok_or_else(no_queue)?.clone();
        self.send_to(&queue, message).await
    }

    /// Sends a message without an answer: it may get lost, and nobody will know.
    ///
    /// # Errors
    /// What can be known before the message has left.
    pub async fn send_oneway(&self, message: Message) -> Result<(), ClientError> {
        let ready = self.ready(&message)?;
        let route = self.route(&ready.topic).await?;
        let queue = self.next_queue(&route, None)?;
        let link = self.link(&route, &queue).await?;
        link.tell::<SendMessageV2>(&self.header(&ready, &queue), ready.body.clone()).await
    }

    async fn send_ready(&self, ready: Ready) -> Result<SendReceipt, ClientError> {
        let deadline = Instant::now() + self.state.send_timeout;
        let mut avoided = None;
        let mut tries = self.state.retries;
        loop {
            let failed_at = avoided.clone();
            let error = match self.send_somewhere(&ready, &mut avoided, deadline).await {
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
        let route = self.route(&ready.topic).await?;
        let queue = self.next_queue(&route, avoided.as_ref())?;
        *avoided = Some(queue.broker_name.clone());
        self.send_once(ready, &queue, deadline).await
    }

    async fn send_once(
        &self,
        ready: &Ready,
        queue: &Queue,
        deadline: Instant,
    ) -> Result<SendReceipt, ClientError> {
        let route = self.route(&ready.topic).await?;
        let link = self.link(&route, queue).await?;
        let header = self.header(ready, queue);
        let within = deadline.saturating_duration_since(Instant::now());
        if ready.is_batch {
            let answer = link.call::<SendBatchMessage>(&header, ready.body.clone(), within).await?;
            receipt::<SendBatchMessage>(&link, &answer, ready, queue)
        } else {
            let answer = link.call::<SendMessageV2>(&header, ready.body.clone(), within).await?;
            receipt::<SendMessageV2>(&link, &answer, ready, queue)
        }
    }

    async fn route(&self, topic: &str) -> Result<Arc<Route>, ClientError> {
        let hub = &self.state.client.hub;
        hub.routes.route_for_send(&hub.peers, topic).await
    }

    async fn link(&self, route: &Route, queue: &Queue) -> Result<Link, ClientError> {
        let no_queue = || ClientError::NoQueue { topic: queue.topic.to_string(), wanted: "reachable" };
        let address = route.master(&queue.broker_name).ok_or_else(no_queue)?;
        self.state.client.hub.peers.link(address).await
    }

    /// Round robin, past the broker to avoid if another is there.
    fn next_queue(&self, route: &Route, avoided: Option<&Text>) -> Result<Queue, ClientError> {
        let queues = route.writable();
        let turn = self.state.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..queues.len()).map(|step| &queues[turn.wrapping_add(step) % queues.len()]);
        let other = in_turn.clone().find(|queue| Some(&queue.broker_name) != avoided);
        other
            .or_else(|| in_turn.clone().next())
            .cloned()
            .ok_or_else(|| ClientError::NoQueue { topic: route.topic().to_string(), wanted: "writable" })
    }

    fn header(&self, ready: &Ready, queue: &Queue) -> SendMessageV2Header {
        SendMessageV2Header {
            producer_group: self.state.group.clone(),
            topic: ready.topic.clone(),
            default_topic: TEMPLATE_TOPIC,
            default_topic_queues: TEMPLATE_QUEUES_MAX,
            queue_id: queue.queue_id,
            sys_flag: 0,
            born_timestamp_ms: epoch_ms(),
            flag: ready.flag,
            properties: Some(ready.properties.clone()),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            is_batch: Some(ready.is_batch),
            broker_name: Some(queue.broker_name.clone()),
            ..Default::default()
        }
    }

    fn ready(&self, message: &Message) -> Result<Ready, ClientError> {
        message.check()?;
        let (properties, ids) = self.properties_with_id(message);
        Ok(Ready {
            topic: message.topic.clone(),
            flag: message.flag,
            body: message.body.clone(),
            properties: utf8(properties.freeze()),
            ids,
            is_batch: false,
        })
    }

    fn ready_batch(&self, messages: &[Message]) -> Result<Ready, ClientError> {
        let topic = messages.first().map(|message| message.topic.clone()).unwrap_or_default();
        let illegal = |why: String| ClientError::IllegalMessage { topic: topic.to_string(), why };
        let mut body = BytesMut::new();
        let mut ids = Vec::with_capacity(messages.len());
        for message in messages {
            message.check()?;
            if message.topic != topic {
                return Err(illegal(format!("the batch has a message for {} too", message.topic)));
            }
            let (properties, id) = self.properties_with_id(message);
            let properties = PropertiesView(&properties);
            let item = BatchItem { flag: message.flag, body: &message.body, properties };
            item.encode(&mut body).map_err(|cause| illegal(cause.to_string()))?;
            ids.push(id);
        }
        if ids.is_empty() {
            return Err(illegal("the batch is empty".to_owned()));
        }
        let (body, properties, ids) = (body.freeze(), Text::default(), ids.join(","));
        Ok(Ready { topic, flag: 0, body, properties, ids, is_batch: true })
    }

    fn properties_with_id(&self, message: &Message) -> (BytesMut, String) {
        let mut properties = BytesMut::with_capacity(message.properties.encoded().len() + 48);
        properties.extend_from_slice(message.properties.encoded());
        if let Some(id) = message.property(UNIQ_KEY) {
            return (properties, id.to_owned());
        }
        let id = self.state.client.hub.identity.message_id(epoch_ms());
        put_property(&mut properties, UNIQ_KEY, id.as_str());
        (properties, id.as_str().to_owned())
    }
}

fn utf8(properties: Bytes) -> Text {
    Text::from_utf8(properties).expect("names and values of properties are text")
}

fn receipt<R: Request<Reply = SendMessageReplyHeader>>(
    link: &Link,
    answer: &Command,
    ready: &Ready,
    queue: &Queue,
) -> Result<SendReceipt, ClientError> {
    let status = match answer.response_code() {
        ResponseCode::SUCCESS => SendStatus::Stored,
        ResponseCode::FLUSH_DISK_TIMEOUT => SendStatus::FlushTimedOut,
        ResponseCode::FLUSH_SLAVE_TIMEOUT => SendStatus::SlaveTimedOut,
        ResponseCode::SLAVE_NOT_AVAILABLE => SendStatus::NoSlave,
        _ => return Err(link.refusal::<R>(answer)),
    };
    let reply: SendMessageReplyHeader = answer.header().map_err(|cause| link.malformed::<R>(cause))?;
    Ok(SendReceipt {
        message_id: ready.ids.clone(),
        offset_id: reply.message_id.to_string(),
        queue: Queue { queue_id: reply.queue_id, ..queue.clone() },
        queue_offset: reply.queue_offset,
        status,
    })
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
