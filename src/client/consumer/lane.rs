//! One assigned queue of a consumer: the task that pulls it.
//!
//! Invariants:
//! - the member's task hears of every message before the application can settle it;
//! - a lane that was taken away delivers nothing any more and its messages change no progress;
//! - of a broadcast nothing is sent back: no broker would bring it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::sleep;
use troupemq_codec::message::properties::MSG_REGION;
use troupemq_codec::request::{ConsumerSendMsgBack, ConsumerSendMsgBackHeader};
use troupemq_codec::{ResponseCode, Text};

use super::member::Event;
use super::{Delivery, SPAN_MAX, Settings, Settle, Subscription, UNSETTLED_MAX, original_topic};
use crate::client::error::ClientError;
use crate::client::message::Received;
use crate::client::pull::{PullRequest, PullStatus, Pulled};
use crate::client::queue::Queue;
use crate::client::trace::collector::Tracer;
use crate::client::trace::{Subject, Trace, What};
use crate::client::{Client, epoch_ms};

/// Pause after a pull that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after the broker asked for one, or moved the queue.
const FLOW_CONTROL_PAUSE: Duration = Duration::from_millis(50);

/// Messages that are given to the application together.
const TOGETHER_MAX: usize = 32;

/// One assigned queue.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Tells this assignment of the queue from earlier ones.
    pub(crate) id: u64,
    /// The queue.
    pub(crate) queue: Arc<Queue>,
    client: Client,
    group: Text,
    events: mpsc::Sender<Event>,
    tracer: Option<Tracer>,
    room: Semaphore,
    /// Messages that are out; the room also lacks what a pull under way may bring.
    messages: AtomicUsize,
    is_broadcast: bool,
    /// Bytes of bodies that are out.
    bytes: AtomicUsize,
    max_bytes: usize,
    /// The first offset that is not done with, as the member's task knows it.
    position: AtomicI64,
    settled: Notify,
    /// Takes notes to the member's task, in their order; there are never more than messages that are out and a pull.
    notes: mpsc::UnboundedSender<Note>,
    /// Whether the member's task was told that there are notes, and has not looked yet.
    is_told: AtomicBool,
    /// Messages that are with the application.
    at_work: AtomicUsize,
    is_given_away: AtomicBool,
}

/// What becomes of the messages of a lane.
#[derive(Debug)]
pub(crate) enum Note {
    /// Messages are about to be handed out.
    Delivered { queue_offsets: Vec<i64>, next_offset: i64 },
    /// A message is done with; `bytes` is the length of its body.
    Done { queue_offset: i64, bytes: usize },
    /// Several messages are; `bytes` is the length of their bodies together.
    AllDone { queue_offsets: Vec<i64>, bytes: usize },
    /// A message could not be sent back.
    Kept(Received),
}

impl Lane {
    pub(crate) fn new(
        id: u64,
        (queue, queue_offset): (Queue, i64),
        client: Client,
        settings: &Settings,
        (events, notes, tracer): (mpsc::Sender<Event>, mpsc::UnboundedSender<Note>, Option<Tracer>),
    ) -> Lane {
        let (queue, group) = (Arc::new(queue), settings.group.clone());
        Lane {
            id,
            queue,
            client,
            group,
            events,
            tracer,
            room: Semaphore::new(UNSETTLED_MAX),
            messages: AtomicUsize::new(0),
            is_broadcast: settings.broadcast,
            bytes: AtomicUsize::new(0),
            max_bytes: settings.unsettled_max_bytes,
            position: AtomicI64::new(queue_offset),
            settled: Notify::new(),
            notes,
            is_told: AtomicBool::new(false),
            at_work: AtomicUsize::new(0),
            is_given_away: AtomicBool::new(false),
        }
    }

    /// Whether the queue is still this member's.
    pub(crate) fn is_current(&self) -> bool {
        !self.is_given_away.load(Ordering::Acquire)
    }

    /// The queue is another member's from now on.
    pub(crate) fn give_away(&self) {
        self.is_given_away.store(true, Ordering::Release);
    }

    /// Messages and bytes that are out.
    pub(crate) fn out(&self) -> (usize, usize) {
        (self.messages.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Tells the member's task.
    pub(crate) async fn tell(self: Arc<Lane>, event: Event) -> Result<(), ClientError> {
        self.events.send(event).await.map_err(|_| ClientError::ShutDown { what: "consumer" })
    }

    /// Tells the member's task of a message that was dropped, from where nothing can be waited for; if the task cannot
    /// keep up, the message comes again.
    pub(crate) fn dropped(self: Arc<Lane>, message: Received) {
        let event = Event::Dropped { lane: self.clone(), message };
        if let Err(TrySendError::Full(Event::Dropped { message, .. })) = self.events.try_send(event) {
            self.keep(message);
        }
    }

    /// Leaves a note for the member's task. Those that come before it looks are one event. Nothing is noted if this is
    /// dropped half way.
    pub(crate) async fn note(self: &Arc<Lane>, note: Note) -> Result<(), ClientError> {
        let gone = || ClientError::ShutDown { what: "consumer" };
        let event = match self.is_told.load(Ordering::Acquire) {
            true => None,
            false => Some(self.events.reserve().await.map_err(|_| gone())?),
        };
        if self.events.is_closed() {
            return Err(gone());
        }
        // Of a queue that was given away nothing counts any more.
        let _ = self.notes.send(note);
        if !self.is_told.swap(true, Ordering::AcqRel) {
            match event.or_else(|| self.events.try_reserve().ok()) {
                Some(event) => event.send(Event::Noted { lane: self.clone() }),
                // There is much to do for the member's task; it looks at the latest before it commits.
                None => self.is_told.store(false, Ordering::Release),
            }
        }
        Ok(())
    }

    /// The member's task looks from now on: what comes later is another event.
    pub(crate) fn begin_look(&self) {
        self.is_told.swap(false, Ordering::AcqRel);
    }

    /// Keeps a message that could not be sent back; the member's task lets it come again.
    pub(crate) fn keep(&self, message: Received) {
        // Of a queue that was given away nothing is kept: its new owner gets the message.
        let _ = self.notes.send(Note::Kept(message));
    }

    /// A message is with the application.
    pub(crate) fn begin_one(&self) {
        self.at_work.fetch_add(1, Ordering::AcqRel);
    }

    /// A message is not with the application any more.
    pub(crate) fn end_one(&self) {
        self.at_work.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a message is with the application.
    pub(crate) fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Acquire) > 0
    }

    /// The first offset that is not done with.
    pub(crate) fn moved_to(&self, queue_offset: i64) {
        self.position.store(queue_offset, Ordering::Release);
        self.settled.notify_one();
    }

    /// Messages were settled: there is room for others.
    pub(crate) fn make_room(&self, messages: usize, bytes: usize) {
        self.messages.fetch_sub(messages, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.room.add_permits(messages);
        self.settled.notify_one();
    }

    /// Waits until fewer bytes are out than may be, and the first message that is out is near enough.
    async fn room_after(&self, last_offset: i64) {
        let is_full = || self.bytes.load(Ordering::Relaxed) >= self.max_bytes;
        let is_far = || last_offset - self.position.load(Ordering::Acquire) >= SPAN_MAX;
        while is_full() || is_far() {
            self.settled.notified().await;
        }
    }

    /// Tells that a message is with the application; gives the id of this delivery if it is traced.
    pub(crate) fn trace_begun(&self, message: &Received) -> Option<String> {
        let (tracer, subject) = (self.tracer.as_ref()?, Subject::of_received(message)?);
        let request_id = self.client.hub.new_message_id(epoch_ms()).as_str().to_owned();
        let reconsume_times = message.reconsume_times();
        let what = What::Delivered { request_id: request_id.clone(), reconsume_times };
        let region = message.property(MSG_REGION).map(Text::from);
        tracer.take(Trace { subject, region, begun_ms: epoch_ms(), what });
        Some(request_id)
    }

    /// Tells what becomes of a message.
    pub(crate) fn trace_settled(&self, message: &Received, begun: (String, i64), is_done: bool) {
        let (request_id, begun_ms) = begun;
        if let (Some(tracer), Some(subject)) = (&self.tracer, Subject::of_received(message)) {
            let what = What::Settled { request_id, cost_ms: epoch_ms() - begun_ms, is_done };
            let region = message.property(MSG_REGION).map(Text::from);
            tracer.take(Trace { subject, region, begun_ms, what });
        }
    }

    /// Gives a message back to the broker.
    pub(crate) async fn send_back(&self, message: &Received, level: i32) -> Result<(), ClientError> {
        if self.is_broadcast {
            let (queue_offset, id) = (message.queue_offset(), message.message_id());
            tracing::warn!(queue = %self.queue, queue_offset, id, "a message of a broadcast does not come again");
            return Ok(());
        }
        let hub = &self.client.hub;
        let link = hub.master_of(&self.queue.topic, &self.queue.broker_name).await?;
        let stored = message.stored();
        let header = ConsumerSendMsgBackHeader {
            log_offset: stored.log_offset,
            group: self.group.clone(),
            delay_level: level,
            origin_message_id: Some(stored.message_id().into()),
            origin_topic: Some(stored.topic.clone()),
            unit_mode: Some(false),
            reconsume_max: None,
        };
        link.ask::<ConsumerSendMsgBack>(&header, Bytes::new(), hub.within).await.map(|_| ())
    }

    /// Pulls until it is aborted or the stream is gone.
    pub(crate) async fn run(
        self: Arc<Lane>,
        subscription: Subscription,
        mut wanted: PullRequest,
        deliveries: mpsc::Sender<Result<Delivery, ClientError>>,
    ) {
        let mut last_offset = wanted.queue_offset;
        loop {
            let batch = u32::try_from(wanted.messages_max).unwrap_or(1);
            self.room_after(last_offset).await;
            let Ok(room) = self.room.acquire_many(batch).await else { return };
            let pulled = match self.client.pull(&self.queue, &wanted).await {
                Ok(pulled) => pulled,
                Err(error) => {
                    drop(room);
                    if self.rest_after(error, &deliveries).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            wanted.queue_offset = pulled.next_offset;
            wanted.broker_id = pulled.broker_id;
            if pulled.status == PullStatus::OffsetMoved {
                let event = Event::Moved { lane: self.clone(), next_offset: pulled.next_offset };
                if self.clone().tell(event).await.is_err() {
                    return;
                }
                last_offset = wanted.queue_offset;
                // A broker that goes on saying so is not asked without end.
                sleep(FLOW_CONTROL_PAUSE).await;
                continue;
            }
            room.forget();
            last_offset = pulled.messages.last().map_or(last_offset, |message| message.queue_offset);
            if self.hand_out(&subscription, pulled, batch, &deliveries).await.is_err() {
                return;
            }
        }
    }

    /// Announces the messages to the member's task, then gives them to the application.
    async fn hand_out(
        self: &Arc<Lane>,
        subscription: &Subscription,
        pulled: Pulled,
        batch: u32,
        deliveries: &mpsc::Sender<Result<Delivery, ClientError>>,
    ) -> Result<(), ClientError> {
        let next_offset = pulled.next_offset;
        let mut messages = pulled.messages;
        messages.retain(|message| subscription.filter.matches_tags(message.tags()));
        let unused = usize::try_from(batch).expect("32 bits fit").saturating_sub(messages.len());
        self.room.add_permits(unused);
        self.messages.fetch_add(messages.len(), Ordering::Relaxed);
        self.bytes.fetch_add(messages.iter().map(|message| message.body.len()).sum(), Ordering::Relaxed);
        let queue_offsets = messages.iter().map(|message| message.queue_offset).collect();
        self.note(Note::Delivered { queue_offsets, next_offset }).await?;
        let mut messages = messages.into_iter();
        while messages.len() > 0 {
            let gone = |_| ClientError::ShutDown { what: "consumer" };
            let places = deliveries.reserve_many(messages.len().min(TOGETHER_MAX)).await.map_err(gone)?;
            for (place, mut message) in places.zip(messages.by_ref()) {
                message.topic = original_topic(&self.queue.topic, &message);
                let message = Received::new(message, self.queue.clone());
                place.send(Ok(Delivery::new(message, Settle::Lane(self.clone()))));
            }
        }
        Ok(())
    }

    /// Waits as long as the failure asks for; tells the application of refusals that will not pass by themselves.
    async fn rest_after(
        &self,
        error: ClientError,
        deliveries: &mpsc::Sender<Result<Delivery, ClientError>>,
    ) -> Result<(), ClientError> {
        tracing::debug!(queue = %self.queue, %error, "pull failed");
        self.client.hub.routes.doubt(&self.queue.topic);
        let pause = match error.code() {
            Some(ResponseCode::FLOW_CONTROL | ResponseCode::SYSTEM_BUSY) => FLOW_CONTROL_PAUSE,
            _ => PAUSE,
        };
        if error.is_lasting() {
            deliveries.send(Err(error)).await.map_err(|_| ClientError::ShutDown { what: "consumer" })?;
        }
        sleep(pause).await;
        Ok(())
    }
}
