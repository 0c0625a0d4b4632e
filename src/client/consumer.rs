//! Receives messages as a member of a group (RocketMQ's `DefaultMQPushConsumer`), as a stream.
//!
//! Invariants:
//! - a message counts as done when it is acknowledged or sent back, and the group's progress never passes one that
//!   is neither: after a crash it comes again;
//! - a message that could not be sent back comes again to the same member;
//! - no more than [`UNSETTLED_MAX`] messages of a queue are out at a time, and none is [`SPAN_MAX`] ahead of one that
//!   is out; a slow reader stops the pulls;
//! - with the stream everything ends: progress is committed, the brokers are told, the queues go to the others.
//!
//! Contents: `member` takes up queues and commits, `share` says which, `lane` pulls one queue, `listener` calls a
//! function for each message, `locks` are leases on queues, `asked` what brokers ask, `offset_file` the progress of a
//! broadcast.

pub(crate) mod asked;
mod lane;
pub mod listener;
mod locks;
mod member;
mod offset_file;
mod share;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::{Notify, mpsc, oneshot};
use troupemq_codec::Text;
use troupemq_codec::filter::TagFilter;
use troupemq_codec::heartbeat_data::{
    ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel, SubscriptionData,
};
use troupemq_codec::message::properties::RETRY_TOPIC;
use troupemq_codec::request::DirectResult;
use troupemq_codec::topic::RETRY_PREFIX;

use super::error::ClientError;
use super::hub::Membership;
use super::message::Received;
use super::pull::ExpressionType;
use super::trace::collector::Tracer;
use super::{Client, epoch_ms, legal};
use lane::{Lane, Note};
use member::Member;
use offset_file::OffsetFile;

/// Messages of one queue that may be out unsettled. RocketMQ: `pullThresholdForQueue`.
pub const UNSETTLED_MAX: usize = 1024;
/// Offsets between the first message of a queue that is out and the last that was handed out, at which pulls stop.
/// RocketMQ: `consumeConcurrentlyMaxSpan`.
pub const SPAN_MAX: i64 = 2000;
/// Bytes of messages of one queue that may be out unsettled.
const UNSETTLED_MAX_BYTES: usize = 64 << 20;
/// Functions of a listener that run at a time.
const CONCURRENCY: usize = 20;
/// Times a listener that consumes in order gets a message again.
const TRIES_MAX: i32 = 16;
/// Questions of brokers that wait for the member's task.
const ASKED_MAX: usize = 16;
/// Messages that wait in the stream.
const WAITING_MAX: usize = 256;
/// Events that wait for the member's task.
const EVENTS_MAX: usize = 4096;

/// Settings of a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerBuilder {
    client: Client,
    settings: Settings,
    /// Functions of a listener that run at a time.
    concurrency: usize,
    /// Times a listener gets a message again, when it consumes in order.
    tries_max: i32,
}

/// What a member of a group does.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    group: Text,
    subscriptions: Vec<Subscription>,
    start: StartAt,
    batch_max: i32,
    hold: Duration,
    broadcast: bool,
    offset_file: Option<PathBuf>,
    in_order: bool,
    by_broker: bool,
    unsettled_max_bytes: usize,
    traces: bool,
}

/// One topic of a consumer.
#[derive(Debug, Clone)]
struct Subscription {
    topic: Text,
    expression: Text,
    expression_type: ExpressionType,
    filter: Arc<TagFilter>,
    version: i64,
}

/// Where a group begins in a queue in which it has committed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartAt {
    First,
    Last,
    Time(i64),
}

/// The messages of a consumer, as a stream.
#[derive(Debug)]
pub struct Deliveries {
    queue: mpsc::Receiver<Result<Delivery, ClientError>>,
    ended: oneshot::Receiver<()>,
}

/// A message that wants to be settled: acknowledged, or sent back. One that is dropped is sent back.
#[derive(Debug)]
pub struct Delivery {
    message: Received,
    /// `None` once it is settled.
    settle: Option<Settle>,
    /// Times a listener got it again.
    tries: i32,
    /// Whether it is with the application: its queue counts it as at work until it is let go.
    is_begun: bool,
    /// If it is traced: the id of this delivery, and when it began (epoch ms).
    begun: Option<Box<(String, i64)>>,
}

/// Who wants to know how a message is settled.
#[derive(Debug)]
enum Settle {
    /// The lane it came by.
    Lane(Arc<Lane>),
    /// A tool that had it sent, through a broker.
    Tool(oneshot::Sender<DirectResult>),
}

impl ConsumerBuilder {
    pub(super) fn new(client: Client, group: &str) -> ConsumerBuilder {
        let settings = Settings {
            group: group.into(),
            subscriptions: Vec::new(),
            start: StartAt::Last,
            batch_max: 32,
            hold: Duration::from_secs(15),
            broadcast: false,
            offset_file: None,
            in_order: false,
            by_broker: false,
            unsettled_max_bytes: UNSETTLED_MAX_BYTES,
            traces: false,
        };
        ConsumerBuilder { client, settings, concurrency: CONCURRENCY, tries_max: TRIES_MAX }
    }

    /// Adds a topic. The expression names tags with `||` between them; `*` is everything. RocketMQ:
    /// `MessageSelector.byTag`.
    pub fn subscribe(mut self, topic: &str, expression: &str) -> ConsumerBuilder {
        self.settings.subscriptions.push(Subscription::new(topic, expression));
        self
    }

    /// Adds a topic of which the broker selects messages by their properties, with an expression of SQL92 such as
    /// `price > 9 AND kind IN ('tea', 'milk')`; `TAGS` is the tag.
    pub fn subscribe_sql(mut self, topic: &str, expression: &str) -> ConsumerBuilder {
        self.settings.subscriptions.push(Subscription::sql(topic, expression));
        self
    }

    /// A new group begins with the first message there is. RocketMQ: `CONSUME_FROM_FIRST_OFFSET`.
    pub fn from_first(mut self) -> ConsumerBuilder {
        self.settings.start = StartAt::First;
        self
    }

    /// A new group begins with what arrives from now on; this is the default. RocketMQ: `CONSUME_FROM_LAST_OFFSET`.
    pub fn from_last(mut self) -> ConsumerBuilder {
        self.settings.start = StartAt::Last;
        self
    }

    /// A new group begins with the first message stored at a time or later: epoch ms. RocketMQ:
    /// `CONSUME_FROM_TIMESTAMP`.
    pub fn from_time(mut self, epoch_ms: i64) -> ConsumerBuilder {
        self.settings.start = StartAt::Time(epoch_ms);
        self
    }

    /// Every member gets all messages, each once: one that fails is logged and does not come again. Progress is not
    /// kept, each start begins anew, unless it has an [`ConsumerBuilder::offset_file`]. RocketMQ:
    /// `MessageModel.BROADCASTING`.
    pub fn broadcast(mut self) -> ConsumerBuilder {
        self.settings.broadcast = true;
        self
    }

    /// Where a consumer with [`ConsumerBuilder::broadcast`] keeps how far it has come; no two may share a file. It has
    /// the form of Java's `offsets.json`.
    pub fn offset_file(mut self, path: impl Into<PathBuf>) -> ConsumerBuilder {
        self.settings.offset_file = Some(path.into());
        self
    }

    /// Consumes the messages of each queue one after the other: no other member has the queue meanwhile, and a message
    /// that fails holds up those behind it. RocketMQ: `MessageListenerOrderly`.
    pub fn in_order(mut self) -> ConsumerBuilder {
        self.settings.in_order = true;
        self
    }

    /// Asks a broker which queues are this member's, instead of computing it from the list of members; all members of
    /// a group must do the same. Brokers before RocketMQ 5 cannot be asked: the share is computed then. A broker that
    /// wants the queues popped (`setConsumeMode -m POP`) is refused, the consumer only pulls.
    pub fn assigned_by_broker(mut self) -> ConsumerBuilder {
        self.settings.by_broker = true;
        self
    }

    /// How many functions of a listener run at a time. Default: 20. RocketMQ: `consumeThreadMax`.
    pub fn concurrency(mut self, functions: usize) -> ConsumerBuilder {
        self.concurrency = functions.max(1);
        self
    }

    /// How often a listener that consumes in order gets a message again before it goes to the dead letters. Default:
    /// 16. RocketMQ: `maxReconsumeTimes`; of other consumers the broker counts, by the group's `retryMaxTimes`.
    pub fn tries_max(mut self, times: i32) -> ConsumerBuilder {
        self.tries_max = times.max(0);
        self
    }

    /// Bytes of messages of one queue that may be out unsettled. Default: 64 MiB. RocketMQ:
    /// `pullThresholdSizeForQueue`.
    pub fn unsettled_max_bytes(mut self, bytes: usize) -> ConsumerBuilder {
        self.settings.unsettled_max_bytes = bytes.max(1);
        self
    }

    /// Whether deliveries and what becomes of them are told in messages of the topic `RMQ_SYS_TRACE_TOPIC`, which must
    /// exist; `mqadmin queryMsgTraceById` reads them. Default: no.
    pub fn trace(mut self, traces: bool) -> ConsumerBuilder {
        self.settings.traces = traces;
        self
    }

    /// Most messages asked for at once. Default: 32, which is also what brokers give at most. RocketMQ:
    /// `pullBatchSize`.
    pub fn batch_max(mut self, messages: i32) -> ConsumerBuilder {
        self.settings.batch_max = messages.clamp(1, i32::try_from(UNSETTLED_MAX).unwrap_or(i32::MAX));
        self
    }

    /// How long a broker holds a pull that finds nothing. Default: 15 s. RocketMQ: `brokerSuspendMaxTimeMillis`.
    pub fn hold(mut self, hold: Duration) -> ConsumerBuilder {
        self.settings.hold = hold;
        self
    }

    /// Joins the group and receives. A topic that does not exist yet is waited for.
    ///
    /// # Errors
    /// [`ClientError::IllegalName`] for a group or topic that cannot be called so, [`ClientError::Setting`] without a
    /// subscription, for settings that contradict each other, or if this client is a member already;
    /// [`ClientError::ShutDown`] after the end of the client.
    pub async fn stream(mut self) -> Result<Deliveries, ClientError> {
        self.client.begin_here()?;
        self.settings.check()?;
        if !self.settings.broadcast {
            let retry_topic = format!("{RETRY_PREFIX}{}", self.settings.group);
            self.settings.subscriptions.push(Subscription::new(&retry_topic, TagFilter::ALL));
        }
        let file = OffsetFile::open(self.settings.offset_file.clone()).await;
        let changed = Arc::new(Notify::new());
        let (asked, questions) = mpsc::channel(ASKED_MAX);
        let membership = Membership { data: self.settings.to_heartbeat(), changed: changed.clone(), asked };
        self.client.hub.add_consumer(&self.settings.group, membership)?;
        let traced =
            self.settings.traces.then(|| Tracer::start(&self.client, &self.settings.group, "CONSUME-1"));
        let tracer = traced.transpose()?;
        let (sender, queue) = mpsc::channel(WAITING_MAX);
        let (events, inbox) = mpsc::channel(EVENTS_MAX);
        let (tell_joined, joined) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let member = Member::new(self.client, self.settings, sender, (events, tracer), file);
        // The task joins, so that it also leaves if this future is dropped meanwhile.
        tokio::spawn(async move {
            member.join().await;
            // Nobody waits if the stream was dropped instead of shut down.
            let _ = tell_joined.send(());
            member.run(inbox, questions, changed).await;
            let _ = end.send(());
        });
        let _ = joined.await;
        Ok(Deliveries { queue, ended })
    }
}

impl Settings {
    /// Refuses what could only be waited for without end, or would count for nothing.
    fn check(&self) -> Result<(), ClientError> {
        legal::group(&self.group)?;
        self.subscriptions.iter().try_for_each(|subscription| legal::topic(&subscription.topic))?;
        let wrong = |setting, why: &str| Err(ClientError::Setting { setting, why: why.to_owned() });
        match &self.offset_file {
            _ if self.subscriptions.is_empty() => wrong("subscription", "there is none"),
            Some(_) if !self.broadcast => wrong(
                "offset_file",
                "only a broadcasting consumer has one, brokers keep what others have done",
            ),
            _ => Ok(()),
        }
    }

    /// Whether a queue is read only under a lease: of a broadcast every member reads all.
    fn leases(&self) -> bool {
        self.in_order && !self.broadcast
    }

    fn to_heartbeat(&self) -> ConsumerData {
        ConsumerData {
            consume_from_where: match self.start {
                StartAt::First => ConsumeFromWhere::FirstOffset,
                StartAt::Last => ConsumeFromWhere::LastOffset,
                StartAt::Time(_) => ConsumeFromWhere::Timestamp,
            },
            consume_type: ConsumeType::Passively,
            group_name: self.group.clone(),
            message_model: match self.broadcast {
                true => MessageModel::Broadcasting,
                false => MessageModel::Clustering,
            },
            subscription_data_set: self.subscriptions.iter().map(Subscription::to_heartbeat).collect(),
            unit_mode: false,
        }
    }
}

impl Subscription {
    fn new(topic: &str, expression: &str) -> Subscription {
        let filter = Arc::new(TagFilter::parse(expression));
        let expression = if filter.is_all() { TagFilter::ALL } else { expression };
        Subscription {
            topic: topic.into(),
            expression: expression.into(),
            expression_type: ExpressionType::Tag,
            filter,
            version: epoch_ms(),
        }
    }

    /// The broker alone knows what an expression of SQL92 selects.
    fn sql(topic: &str, expression: &str) -> Subscription {
        let all = Subscription::new(topic, TagFilter::ALL);
        Subscription { expression: expression.into(), expression_type: ExpressionType::Sql92, ..all }
    }

    fn to_heartbeat(&self) -> SubscriptionData {
        SubscriptionData {
            topic: self.topic.clone(),
            sub_string: self.expression.clone(),
            expression_type: self.expression_type.name(),
            tags_set: self.filter.tags().iter().cloned().collect(),
            code_set: self.filter.codes().iter().copied().collect(),
            sub_version: self.version,
            ..Default::default()
        }
    }
}

impl Deliveries {
    /// The next message; `None` after the end of the client. A refusal of a broker is an `Err`, after which the stream
    /// goes on. A future of this that is dropped loses no message.
    pub async fn next(&mut self) -> Option<Result<Delivery, ClientError>> {
        Some(self.queue.recv().await?.map(Delivery::begin))
    }

    /// Takes what is there, so many at most and one at least; none after the end of the client. It is not begun yet.
    async fn take(&mut self, taken: &mut Vec<Result<Delivery, ClientError>>, at_most: usize) -> usize {
        self.queue.recv_many(taken, at_most).await
    }

    /// Leaves the group: commits the progress and tells the brokers. Messages that were not read are not lost, they
    /// come again to whoever gets the queue.
    pub async fn shutdown(mut self) {
        self.queue.close();
        // The task always sends before it ends; an error says that it is gone already.
        let _ = self.ended.await;
    }
}

impl Stream for Deliveries {
    type Item = Result<Delivery, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.queue.poll_recv(context).map(|next| Some(next?.map(Delivery::begin)))
    }
}

impl Delivery {
    fn new(message: Received, settle: Settle) -> Delivery {
        Delivery { message, settle: Some(settle), tries: 0, is_begun: false, begun: None }
    }

    /// The message.
    pub fn message(&self) -> &Received {
        &self.message
    }

    /// Done with it: the group's progress may pass it, and is committed within 5 s or with the end of the consumer.
    /// RocketMQ: `CONSUME_SUCCESS`.
    ///
    /// # Errors
    /// [`ClientError::ShutDown`] if the consumer has ended: the message will come again.
    pub async fn ack(mut self) -> Result<(), ClientError> {
        self.trace_settled(true);
        self.settle_by(None, DirectResult::Success).await
    }

    /// Done with all of them, as with each by [`Delivery::ack`]: those of one queue are told together.
    async fn ack_all(mut deliveries: Vec<Delivery>) -> Result<(), ClientError> {
        for same in deliveries.chunk_by_mut(|one, next| one.is_beside(next)) {
            same.iter_mut().for_each(|delivery| delivery.trace_settled(true));
            let Some(Settle::Lane(lane)) = same.first().and_then(|first| first.settle.as_ref()) else {
                for delivery in same {
                    delivery.settle_by(None, DirectResult::Success).await?;
                }
                continue;
            };
            let bytes = same.iter().map(|delivery| delivery.message.body().len()).sum();
            let queue_offsets = same.iter().map(|delivery| delivery.message.queue_offset()).collect();
            let settled = lane.clone().note(Note::AllDone { queue_offsets, bytes }).await;
            same.iter_mut().for_each(|delivery| drop(delivery.let_go()));
            settled?;
        }
        Ok(())
    }

    /// Whether both came by the same lane.
    fn is_beside(&self, other: &Delivery) -> bool {
        match (&self.settle, &other.settle) {
            (Some(Settle::Lane(one)), Some(Settle::Lane(next))) => Arc::ptr_eq(one, next),
            _ => false,
        }
    }

    /// Sends it back: the broker delivers it again to the group after a while. The level is one of the broker's
    /// delay levels; 0 lets it grow with each time, a negative one puts the message among the dead letters. Of a
    /// broadcast nothing comes again: it is logged and done with. RocketMQ: `RECONSUME_LATER` with
    /// `delayLevelWhenNextConsume`.
    ///
    /// # Errors
    /// What the broker says; the message is then still not settled and comes again to this consumer after some seconds.
    pub async fn retry_later(mut self, level: i32) -> Result<(), ClientError> {
        let told = self.try_retry_later(level).await;
        self.keep();
        told
    }

    /// Lets it come again to this consumer, unless it is settled.
    fn keep(mut self) {
        if let Some(Settle::Lane(lane)) = self.let_go() {
            lane.keep(self.message.clone());
        }
    }

    /// Sends it back; if the broker cannot take it, it stays as it is.
    async fn try_retry_later(&mut self, level: i32) -> Result<(), ClientError> {
        self.trace_settled(false);
        self.settle_by(Some(level), DirectResult::Later).await
    }

    /// Settles it, after it was sent back if there is a level. It counts as settled only at the end: a future that is
    /// dropped half way leaves a message that is sent back like any other that is dropped, and one that could not be
    /// sent back is not settled.
    async fn settle_by(&mut self, level: Option<i32>, result: DirectResult) -> Result<(), ClientError> {
        let Some(Settle::Lane(lane)) = &self.settle else {
            if let Some(Settle::Tool(tool)) = self.let_go() {
                // A tool that has gone meanwhile wants nothing any more.
                let _ = tool.send(result);
            }
            return Ok(());
        };
        let lane = lane.clone();
        if let Some(level) = level {
            lane.send_back(&self.message, level).await?;
        }
        let (queue_offset, bytes) = (self.message.queue_offset(), self.message.body().len());
        let settled = lane.note(Note::Done { queue_offset, bytes }).await;
        self.let_go();
        settled
    }

    /// Puts it among the dead letters of the group.
    ///
    /// # Errors
    /// As [`Delivery::retry_later`].
    pub async fn give_up(self) -> Result<(), ClientError> {
        self.retry_later(-1).await
    }

    /// Whether it still counts how it is settled: its queue has not been given to another member.
    pub fn is_current(&self) -> bool {
        match &self.settle {
            Some(Settle::Lane(lane)) => lane.is_current(),
            Some(Settle::Tool(tool)) => !tool.is_closed(),
            None => false,
        }
    }

    /// It is with the application from now on.
    fn begin(mut self) -> Delivery {
        if let Some(Settle::Lane(lane)) = &self.settle {
            lane.begin_one();
            self.is_begun = true;
            let request_id = lane.trace_begun(&self.message);
            self.begun = request_id.map(|request_id| Box::new((request_id, epoch_ms())));
        }
        self
    }

    fn trace_settled(&mut self, is_done: bool) {
        if let (Some(Settle::Lane(lane)), Some(begun)) = (&self.settle, self.begun.take()) {
            lane.trace_settled(&self.message, *begun, is_done);
        }
    }

    /// Leaves it as it is: it comes again when its queue is next assigned.
    fn forget(mut self) {
        self.let_go();
    }

    /// It is not with the application any more; gives who wanted to know how it is settled.
    fn let_go(&mut self) -> Option<Settle> {
        let settle = self.settle.take();
        if let Some(Settle::Lane(lane)) = &settle
            && self.is_begun
        {
            lane.end_one();
        }
        settle
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.trace_settled(false);
        if let Some(Settle::Lane(lane)) = self.let_go() {
            lane.dropped(self.message.clone());
        }
    }
}

/// A message that comes again bears the topic it was sent to.
fn original_topic(topic: &Text, message: &troupemq_codec::Message) -> Text {
    let original = || message.properties.get(RETRY_TOPIC).map(Text::from);
    let is_again = topic.starts_with(RETRY_PREFIX);
    is_again.then(original).flatten().unwrap_or_else(|| topic.clone())
}
