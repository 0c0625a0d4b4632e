//! A member of a group: which queues are its own, how far it has come in each.
//!
//! Invariants:
//! - one task owns the assignment and all progress; everything reaches it as an event, or as a note of a lane, whose
//!   notes are counted in their order before anything else is done to its progress;
//! - progress of a queue is committed before the queue is given away, and, in order, nothing of it is at work then;
//! - an event of an assignment that has ended changes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use troupemq_codec::Text;
use troupemq_codec::request::{ConsumerRunningInfo, ProcessQueueInfo};
use troupemq_codec::topic::MessageQueue;

use super::asked::Asked;
use super::lane::{Lane, Note};
use super::offset_file::OffsetFile;
use super::{Delivery, Settings, Settle, StartAt, Subscription, locks, share};
use crate::client::error::ClientError;
use crate::client::hub::asked_to_end;
use crate::client::message::Received;
use crate::client::progress::Progress;
use crate::client::pull::PullRequest;
use crate::client::queue::Queue;
use crate::client::trace::collector::Tracer;
use crate::client::{Client, epoch_ms};

/// How often the shares are computed without a reason.
const REBALANCE: Duration = Duration::from_secs(20);
/// How soon they are computed again when it could not be done.
const REBALANCE_AGAIN: Duration = Duration::from_secs(1);
/// How often progress is committed, and messages that could not be sent back come again.
const COMMIT: Duration = Duration::from_secs(5);
/// How long the end waits, in order, for what is at work; the leases of what then still is end by themselves.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// How often it looks.
const LAST_LOOK: Duration = Duration::from_millis(10);
/// Events taken at once.
const EVENTS_TAKEN_MAX: usize = 256;

/// What happened in a lane or to one of its messages.
#[derive(Debug)]
pub(crate) enum Event {
    /// There are notes of a lane.
    Noted { lane: Arc<Lane> },
    /// The application dropped a message without a word.
    Dropped { lane: Arc<Lane>, message: Box<Received> },
    /// The broker moved the queue's offsets.
    Moved { lane: Arc<Lane>, next_offset: i64 },
}

/// The state of the member's task.
pub(crate) struct Member {
    client: Client,
    settings: Settings,
    deliveries: mpsc::Sender<Result<Delivery, ClientError>>,
    events: mpsc::Sender<Event>,
    tracer: Option<Tracer>,
    lanes: BTreeMap<Queue, Assigned>,
    last_lane: u64,
    /// The progress of a broadcast.
    file: OffsetFile,
    begun_ms: i64,
}

struct Assigned {
    lane: Arc<Lane>,
    progress: Progress,
    /// What the lane has noted and is not counted yet.
    notes: mpsc::UnboundedReceiver<Note>,
    /// Messages that could not be sent back: they keep their room until they come again.
    kept: VecDeque<Box<Received>>,
    task: AbortHandle,
    /// In order: when the lease of the queue was last taken or renewed.
    leased_at: Instant,
}

impl Drop for Assigned {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Member {
    pub(crate) fn new(
        client: Client,
        settings: Settings,
        deliveries: mpsc::Sender<Result<Delivery, ClientError>>,
        (events, tracer): (mpsc::Sender<Event>, Option<Tracer>),
    ) -> Member {
        let file = OffsetFile::open(settings.offset_file.clone());
        let (lanes, begun_ms) = (BTreeMap::new(), epoch_ms());
        Member { client, settings, deliveries, events, tracer, lanes, last_lane: 0, file, begun_ms }
    }

    /// Tells the brokers of the topics that there is a new member.
    pub(crate) async fn join(&self) {
        for subscription in &self.settings.subscriptions {
            // The brokers of a topic can be told of its members only when they are known; a topic may come later.
            let _ = self.client.hub.route(&subscription.topic).await;
        }
        self.client.hub.heartbeat().await;
    }

    /// Works until the stream is closed or dropped, or the client ends.
    pub(crate) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Event>,
        mut questions: mpsc::Receiver<Asked>,
        changed: Arc<Notify>,
    ) {
        let deliveries = self.deliveries.clone();
        let mut closing = self.client.hub.closing();
        let mut commits = interval(COMMIT);
        commits.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leases = interval(locks::RENEW);
        leases.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rebalance_at = Instant::now();
        let mut taken = Vec::with_capacity(EVENTS_TAKEN_MAX);
        loop {
            tokio::select! {
                biased;
                () = deliveries.closed() => break,
                () = asked_to_end(&mut closing) => break,
                _ = inbox.recv_many(&mut taken, EVENTS_TAKEN_MAX) => {
                    for event in taken.drain(..) {
                        self.on_event(event).await;
                    }
                }
                () = changed.notified() => rebalance_at = self.rebalance().await,
                () = sleep_until(rebalance_at) => rebalance_at = self.rebalance().await,
                _ = commits.tick() => {
                    self.hand_out_kept();
                    self.commit_all().await;
                }
                _ = leases.tick(), if self.settings.in_order => self.renew_leases().await,
                Some(asked) = questions.recv() => self.on_asked(asked).await,
            }
        }
        self.end_work().await;
        // What was acknowledged before the end still counts.
        inbox.close();
        while let Some(event) = inbox.recv().await {
            self.on_event(event).await;
        }
        self.commit_all().await;
        if self.settings.in_order {
            let idle = self.lanes.iter().filter(|(_, assigned)| !assigned.lane.is_at_work());
            let held: Vec<_> = idle.map(|(queue, _)| queue.clone()).collect();
            locks::unlock(&self.client, &self.settings.group, &held).await;
        }
        self.lanes.clear();
        self.client.hub.remove_consumer(&self.settings.group).await;
    }

    async fn on_event(&mut self, event: Event) {
        match event {
            Event::Noted { lane } => {
                self.assigned(&lane);
            }
            Event::Moved { lane, next_offset } => {
                if let Some(assigned) = self.assigned(&lane) {
                    assigned.progress.restart(next_offset);
                    assigned.tell_position();
                }
            }
            Event::Dropped { lane, message } => {
                let still_wanted = !self.deliveries.is_closed() && self.assigned(&lane).is_some();
                if !still_wanted {
                    return;
                }
                // Of a broadcast there is nobody to give it back to.
                if !self.settings.broadcast
                    && let Err(error) = lane.send_back(&message, 0).await
                {
                    tracing::warn!(queue = %lane.queue, %error, "message not sent back, it comes again");
                    return lane.keep(*message);
                }
                self.settled(&lane, message.queue_offset(), message.body().len());
            }
        }
    }

    fn settled(&mut self, lane: &Lane, queue_offset: i64, bytes: usize) {
        lane.make_room(1, bytes);
        if let Some(assigned) = self.assigned(lane) {
            assigned.progress.settled(queue_offset);
            assigned.tell_position();
        }
    }

    /// Lets what could not be sent back come again, as much as the stream takes.
    fn hand_out_kept(&mut self) {
        for assigned in self.lanes.values_mut().filter(|assigned| assigned.lane.is_current()) {
            assigned.count_notes();
            while let Ok(place) = self.deliveries.try_reserve() {
                let Some(message) = assigned.kept.pop_front() else { break };
                place.send(Ok(Delivery::new(*message, Settle::Lane(assigned.lane.clone()))));
            }
        }
    }

    /// In order: begins nothing any more and waits for what is at work.
    async fn end_work(&self) {
        if !self.settings.in_order {
            return;
        }
        self.lanes.values().for_each(Assigned::leave);
        let ended = async {
            while self.lanes.values().any(|assigned| assigned.lane.is_at_work()) {
                sleep(LAST_LOOK).await;
            }
        };
        if timeout(LAST_WAIT, ended).await.is_err() {
            tracing::warn!(group = %self.settings.group, "messages are still at work, their queues stay locked");
        }
    }

    /// The queue of a lane, all notes counted, if the lane still has it.
    fn assigned(&mut self, lane: &Lane) -> Option<&mut Assigned> {
        let assigned = self.lanes.get_mut(&*lane.queue).filter(|assigned| assigned.lane.id == lane.id)?;
        assigned.count_notes();
        Some(assigned)
    }

    /// Takes up and gives away queues; returns when to look again.
    async fn rebalance(&mut self) -> Instant {
        self.client.hub.heartbeat().await;
        let mut again = REBALANCE;
        for subscription in self.settings.subscriptions.clone() {
            match share::own(&self.client, &self.settings, &subscription.topic).await {
                Ok(own) => self.take_over(&subscription, own, &mut again).await,
                Err(error) => {
                    tracing::debug!(topic = %subscription.topic, %error, "queues not shared out");
                    again = REBALANCE_AGAIN;
                    if error.is_lasting() {
                        again = REBALANCE;
                        // A stream that is full has something to read already.
                        let _ = self.deliveries.try_send(Err(error));
                    }
                }
            }
        }
        Instant::now() + again
    }

    async fn take_over(&mut self, subscription: &Subscription, own: Vec<Queue>, again: &mut Duration) {
        let of_topic = self.lanes.keys().filter(|queue| queue.topic == subscription.topic);
        let given_away: Vec<_> =
            of_topic.filter(|queue| !own.contains(queue) || !self.is_current(queue)).cloned().collect();
        for queue in given_away {
            if self.settings.in_order && self.is_left_at_work(&queue) {
                *again = REBALANCE_AGAIN;
                continue;
            }
            tracing::debug!(%queue, "queue given away");
            self.commit(&queue).await;
            self.lanes.remove(&queue);
            if self.settings.in_order {
                locks::unlock(&self.client, &self.settings.group, &[queue]).await;
            }
        }
        let own = self.leased(own, again).await;
        for queue in own {
            if self.lanes.contains_key(&queue) {
                continue;
            }
            match self.start_offset(&queue).await {
                Ok(queue_offset) => self.begin(subscription, queue, queue_offset),
                Err(error) => {
                    tracing::debug!(%queue, %error, "queue not begun");
                    *again = REBALANCE_AGAIN;
                }
            }
        }
    }

    fn is_current(&self, queue: &Queue) -> bool {
        self.lanes.get(queue).is_some_and(|assigned| assigned.lane.is_current())
    }

    /// Nothing of the queue is begun any more; tells whether something of it is still at work.
    fn is_left_at_work(&self, queue: &Queue) -> bool {
        let Some(assigned) = self.lanes.get(queue) else { return false };
        assigned.leave();
        assigned.lane.is_at_work()
    }

    /// Of the queues, those that may be begun: in order, the ones that nobody else holds.
    async fn leased(&self, mut own: Vec<Queue>, again: &mut Duration) -> Vec<Queue> {
        if !self.settings.in_order {
            return own;
        }
        own.retain(|queue| !self.lanes.contains_key(queue));
        let (held, _) = locks::lock(&self.client, &self.settings.group, &own).await;
        if held.len() < own.len() {
            *again = REBALANCE_AGAIN;
        }
        held.into_iter().collect()
    }

    /// Renews the leases; a queue whose lease went to another, or is too old, is given up.
    async fn renew_leases(&mut self) {
        let queues: Vec<_> = self.lanes.keys().cloned().collect();
        let (held, refused) = locks::lock(&self.client, &self.settings.group, &queues).await;
        let now = Instant::now();
        for (queue, assigned) in &mut self.lanes {
            if held.contains(queue) {
                assigned.leased_at = now;
            }
        }
        self.lanes.retain(|queue, assigned| {
            let is_kept = !refused.contains(queue) && assigned.leased_at + locks::LEASE > now;
            if !is_kept {
                tracing::warn!(%queue, "the lease of the queue is lost");
            }
            is_kept
        });
    }

    /// Answers what brokers ask.
    async fn on_asked(&mut self, asked: Asked) {
        match asked {
            // Whoever asked may have gone meanwhile.
            Asked::RunningInfo(reply) => drop(reply.send(self.running_info())),
            Asked::Status(topic, reply) => drop(reply.send(self.status(&topic))),
            Asked::Reset(offsets) => {
                for (at, queue_offset) in offsets {
                    let queue = Queue { topic: at.topic, broker_name: at.broker_name, queue_id: at.queue_id };
                    if let Some(assigned) = self.lanes.remove(&queue) {
                        tracing::info!(%queue, queue_offset, "offset reset");
                        drop(assigned);
                        let committed = self.client.commit(&self.settings.group, &queue, queue_offset).await;
                        if let Err(error) = committed {
                            tracing::warn!(%queue, %error, "reset not committed");
                        }
                        self.resume(queue, queue_offset);
                    }
                }
            }
            Asked::Directly(message, tool) => {
                let queue = Queue {
                    topic: message.topic.clone(),
                    broker_name: Text::default(),
                    queue_id: message.queue_id,
                };
                let message = Received::new(*message, Arc::new(queue));
                let delivery = Delivery::new(message, Settle::Tool(tool));
                // A full stream refuses: the tool hears that nothing was returned.
                drop(self.deliveries.try_send(Ok(delivery)));
            }
        }
    }

    /// Begins a queue anew at an offset.
    fn resume(&mut self, queue: Queue, queue_offset: i64) {
        let of_topic = |subscription: &&Subscription| subscription.topic == queue.topic;
        if let Some(subscription) = self.settings.subscriptions.iter().find(of_topic).cloned() {
            self.begin(&subscription, queue, queue_offset);
        }
    }

    fn status(&self, topic: &str) -> BTreeMap<MessageQueue, i64> {
        let of_topic = self.lanes.iter().filter(|(queue, _)| topic.is_empty() || queue.topic == topic);
        of_topic.map(|(queue, assigned)| (queue.into(), assigned.progress.position())).collect()
    }

    fn running_info(&self) -> ConsumerRunningInfo {
        let properties = [
            ("PROP_CLIENT_VERSION", "V5_3_1".to_owned()),
            ("PROP_CONSUMEORDERLY", self.settings.in_order.to_string()),
            ("PROP_CONSUMER_START_TIMESTAMP", self.begun_ms.to_string()),
            ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY".to_owned()),
        ];
        let heartbeat = self.settings.to_heartbeat();
        ConsumerRunningInfo {
            pulled_queues: self
                .lanes
                .iter()
                .map(|(queue, assigned)| (queue.into(), assigned.info()))
                .collect(),
            properties: properties.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            subscription_set: heartbeat.subscription_data_set.into_iter().collect(),
            ..Default::default()
        }
    }

    fn begin(&mut self, subscription: &Subscription, queue: Queue, queue_offset: i64) {
        tracing::debug!(%queue, queue_offset, "queue taken up");
        self.last_lane += 1;
        let (client, events) = (self.client.clone(), self.events.clone());
        let (noting, notes) = mpsc::unbounded_channel();
        let told = (events, noting, self.tracer.clone());
        let from = (queue.clone(), queue_offset);
        let lane = Arc::new(Lane::new(self.last_lane, from, client, &self.settings, told));
        let wanted = PullRequest {
            group: self.settings.group.clone(),
            queue_offset,
            messages_max: self.settings.batch_max,
            expression: subscription.expression.clone(),
            expression_type: subscription.expression_type,
            expression_version: subscription.version,
            hold: self.settings.hold,
            broker_id: 0,
        };
        let pulling = lane.clone().run(subscription.clone(), wanted, self.deliveries.clone());
        let task = tokio::spawn(pulling).abort_handle();
        let (progress, leased_at) = (Progress::new(queue_offset), Instant::now());
        self.lanes.insert(queue, Assigned { lane, progress, notes, kept: VecDeque::new(), task, leased_at });
    }

    async fn start_offset(&self, queue: &Queue) -> Result<i64, ClientError> {
        if self.settings.broadcast {
            if let Some(queue_offset) = self.file.get(queue) {
                return Ok(queue_offset);
            }
        } else {
            if let Some(queue_offset) = self.client.committed(&self.settings.group, queue).await? {
                return Ok(queue_offset);
            }
            if queue.topic.starts_with(super::RETRY_PREFIX) {
                return Ok(0);
            }
        }
        match self.settings.start {
            StartAt::First => self.client.min_offset(queue).await,
            StartAt::Last => self.client.max_offset(queue).await,
            StartAt::Time(epoch_ms) => self.client.offset_at(queue, epoch_ms).await,
        }
    }

    async fn commit_all(&mut self) {
        let queues: Vec<_> = self.lanes.keys().cloned().collect();
        let mut is_news = false;
        self.lanes.values_mut().for_each(Assigned::count_notes);
        for queue in queues {
            is_news |= self.note(&queue);
            self.commit(&queue).await;
        }
        if is_news && let Err(error) = self.file.save().await {
            tracing::warn!(%error, "offsets not saved");
        }
    }

    /// Notes how far a broadcast has come in a queue; tells whether that is news.
    fn note(&mut self, queue: &Queue) -> bool {
        let assigned = self.lanes.get(queue).filter(|_| self.settings.broadcast);
        assigned.is_some_and(|assigned| self.file.set(queue, assigned.progress.position()))
    }

    async fn commit(&mut self, queue: &Queue) {
        if self.settings.broadcast {
            return;
        }
        let Some(assigned) = self.lanes.get_mut(queue) else { return };
        assigned.count_notes();
        let Some(queue_offset) = assigned.progress.to_commit() else { return };
        match self.client.commit(&self.settings.group, queue, queue_offset).await {
            Ok(()) => assigned.progress.committed(queue_offset),
            Err(error) => tracing::debug!(%queue, queue_offset, %error, "progress not committed"),
        }
    }
}

impl Assigned {
    /// Counts what the lane has noted; there is room for what is done with.
    fn count_notes(&mut self) {
        self.lane.begin_look();
        let (mut messages, mut room) = (0, 0);
        while let Ok(note) = self.notes.try_recv() {
            match note {
                Note::Delivered { queue_offsets, next_offset } => {
                    self.progress.delivered(queue_offsets, next_offset);
                }
                Note::Done { queue_offset, bytes } => {
                    self.progress.settled(queue_offset);
                    messages += 1;
                    room += bytes;
                }
                Note::Kept(message) => self.kept.push_back(message),
            }
        }
        if messages > 0 {
            self.lane.make_room(messages, room);
        }
        self.tell_position();
    }

    /// Begins nothing of the queue any more.
    fn leave(&self) {
        self.lane.give_away();
        self.task.abort();
    }

    /// Tells the lane how far its messages are done with.
    fn tell_position(&self) {
        self.lane.moved_to(self.progress.position());
    }

    fn info(&self) -> ProcessQueueInfo {
        let (messages, bytes) = self.lane.out();
        ProcessQueueInfo {
            cached_msg_count: i32::try_from(messages).unwrap_or(i32::MAX),
            cached_msg_size_in_mi_b: i32::try_from(bytes >> 20).unwrap_or(i32::MAX),
            commit_offset: self.progress.position(),
            ..Default::default()
        }
    }
}
