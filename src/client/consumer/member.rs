//! A member of a group: which queues are its own, how far it has come in each.
//!
//! Invariants:
//! - one task owns the assignment and all progress; everything reaches it as an event, or as a note of a lane, whose
//!   notes are counted in their order before anything else is done to its progress;
//! - progress of a queue is committed before the queue is given away, and, in order, nothing of it is at work then;
//! - an event of an assignment that has ended changes nothing;
//! - commits and leases come before events, however many there are, and neither waits for a broker that is silent;
//! - the end takes some seconds at most, whoever is silent.
//!
//! Contents: `assigned` one queue, `jobs` what is asked of brokers beside, `told` the answers to what brokers ask.

mod assigned;
mod jobs;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use troupemq_codec::topic::RETRY_PREFIX;

use super::asked::Asked;
use super::lane::Lane;
use super::offset_file::OffsetFile;
use super::{Delivery, Settings, Settle, StartAt, Subscription, locks, share};
use crate::client::error::ClientError;
use crate::client::hub::{FAREWELL, asked_to_end};
use crate::client::message::Received;
use crate::client::progress::Progress;
use crate::client::pull::PullRequest;
use crate::client::queue::Queue;
use crate::client::trace::collector::Tracer;
use crate::client::{Client, epoch_ms};
use assigned::Assigned;
use jobs::Jobs;

/// How often the shares are computed without a reason.
const REBALANCE: Duration = Duration::from_secs(20);
/// How soon they are computed again when it could not be done.
const REBALANCE_AGAIN: Duration = Duration::from_secs(1);
/// How long the shares wait until the brokers have heard of this member: one that is silent is not waited for.
const HEARD: Duration = Duration::from_secs(1);
/// How often progress is committed, and messages that could not be sent back come again.
const COMMIT: Duration = Duration::from_secs(5);
/// How long the last commits of queues may take; and how long the end waits, in order, for what is at work: the leases
/// of what then still is end by themselves.
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
    Dropped { lane: Arc<Lane>, message: Received },
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
    jobs: Jobs,
    /// In order: queues whose lease was asked for and not given back.
    leased: BTreeSet<Queue>,
    is_leaving: bool,
    /// The progress of a broadcast.
    file: OffsetFile,
    begun_ms: i64,
}

impl Member {
    pub(crate) fn new(
        client: Client,
        settings: Settings,
        deliveries: mpsc::Sender<Result<Delivery, ClientError>>,
        (events, tracer): (mpsc::Sender<Event>, Option<Tracer>),
        file: OffsetFile,
    ) -> Member {
        Member {
            client,
            settings,
            deliveries,
            events,
            tracer,
            lanes: BTreeMap::new(),
            last_lane: 0,
            jobs: Jobs::default(),
            leased: BTreeSet::new(),
            is_leaving: false,
            file,
            begun_ms: epoch_ms(),
        }
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
        questions: mpsc::Receiver<Asked>,
        changed: Arc<Notify>,
    ) {
        let deliveries = self.deliveries.clone();
        let mut closing = self.client.hub.closing();
        tokio::select! {
            biased;
            () = deliveries.closed() => {}
            () = asked_to_end(&mut closing) => {}
            // Whatever it waits for is given up half way.
            () = self.work(&mut inbox, questions, changed) => {}
        }
        self.leave(inbox).await;
    }

    async fn work(
        &mut self,
        inbox: &mut mpsc::Receiver<Event>,
        mut questions: mpsc::Receiver<Asked>,
        changed: Arc<Notify>,
    ) {
        let mut commits = interval(COMMIT);
        commits.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leases = interval(locks::RENEW);
        leases.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rebalance_at = Instant::now();
        let mut taken = Vec::with_capacity(EVENTS_TAKEN_MAX);
        loop {
            // What there may be much of comes last.
            tokio::select! {
                biased;
                _ = commits.tick() => {
                    self.hand_out_kept();
                    self.begin_commits();
                    self.save_file().await;
                }
                _ = leases.tick(), if self.settings.leases() => self.renew_leases().await,
                () = changed.notified() => rebalance_at = self.rebalance().await,
                () = sleep_until(rebalance_at) => rebalance_at = self.rebalance().await,
                Some(asked) = questions.recv() => self.on_asked(asked),
                Some(done) = self.jobs.next() => self.on_done(done),
                _ = inbox.recv_many(&mut taken, EVENTS_TAKEN_MAX) => {
                    taken.drain(..).for_each(|event| self.on_event(event));
                }
            }
        }
    }

    /// Leaves the group, in some seconds at most: what could not be committed by then comes again.
    async fn leave(mut self, mut inbox: mpsc::Receiver<Event>) {
        self.is_leaving = true;
        self.end_work().await;
        // What was acknowledged before the end still counts.
        inbox.close();
        while let Some(event) = inbox.recv().await {
            self.on_event(event);
        }
        self.commit_now(self.lanes.keys().cloned().collect()).await;
        self.save_file().await;
        let is_at_work = |queue: &Queue| self.lanes.get(queue).is_some_and(Assigned::is_at_work);
        let held: Vec<_> = self.leased.iter().filter(|queue| !is_at_work(queue)).cloned().collect();
        self.unlock(&held).await;
        self.lanes.clear();
        self.client.hub.remove_consumer(&self.settings.group).await;
    }

    fn on_event(&mut self, event: Event) {
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
                // Of who leaves, the next owner of the queue gets it.
                let is_over = self.is_leaving || self.deliveries.is_closed();
                if !is_over && self.assigned(&lane).is_some() {
                    self.jobs.send_back(lane, message);
                }
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
                place.send(Ok(Delivery::new(message, Settle::Lane(assigned.lane.clone()))));
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
            while self.lanes.values().any(Assigned::is_at_work) {
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
        // A broker that takes longer is told by the client's own task.
        let _ = timeout(HEARD, self.client.hub.heartbeat()).await;
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
        let given_away =
            of_topic.filter(|queue| !own.contains(queue) || !self.is_current(queue)).cloned().collect();
        self.give_away(given_away, again).await;
        let own = self.leased(own, again).await;
        let mut asked = JoinSet::new();
        for queue in own {
            if self.lanes.contains_key(&queue) {
                continue;
            }
            match self.file.get(&queue).filter(|_| self.settings.broadcast) {
                Some(queue_offset) => self.begin(subscription, queue, Progress::resumed(queue_offset)),
                None => drop(asked.spawn(start_of(self.client.clone(), self.settings.clone(), queue))),
            }
        }
        while let Some(told) = asked.join_next().await {
            match told {
                Ok((queue, Ok(progress))) => self.begin(subscription, queue, progress),
                Ok((queue, Err(error))) => {
                    tracing::debug!(%queue, %error, "queue not begun");
                    *again = REBALANCE_AGAIN;
                }
                Err(error) => tracing::error!(%error, "a question was cut off"),
            }
        }
    }

    /// Gives queues to other members: what is done with is committed, and nothing of them is at work.
    async fn give_away(&mut self, mut queues: BTreeSet<Queue>, again: &mut Duration) {
        if self.settings.in_order {
            queues.retain(|queue| {
                let is_left = self.is_left_at_work(queue);
                if is_left {
                    *again = REBALANCE_AGAIN;
                }
                !is_left
            });
        }
        if queues.is_empty() {
            return;
        }
        tracing::debug!(?queues, "queues given away");
        // Nothing of them is handed out any more, so that the last commit says all.
        queues.iter().filter_map(|queue| self.lanes.get(queue)).for_each(Assigned::leave);
        self.commit_now(queues.clone()).await;
        let leased: Vec<_> = queues.iter().filter(|queue| self.leased.contains(queue)).cloned().collect();
        self.unlock(&leased).await;
        for queue in queues {
            self.lanes.remove(&queue);
            self.leased.remove(&queue);
        }
    }

    fn is_current(&self, queue: &Queue) -> bool {
        self.lanes.get(queue).is_some_and(|assigned| assigned.lane.is_current())
    }

    /// Nothing of the queue is begun any more; tells whether something of it is still at work.
    fn is_left_at_work(&self, queue: &Queue) -> bool {
        let Some(assigned) = self.lanes.get(queue) else { return false };
        assigned.leave();
        assigned.is_at_work()
    }

    /// Of the queues, those that may be begun: in order, the ones that nobody else holds.
    async fn leased(&mut self, mut own: Vec<Queue>, again: &mut Duration) -> Vec<Queue> {
        if !self.settings.leases() {
            return own;
        }
        own.retain(|queue| !self.lanes.contains_key(queue));
        self.leased.extend(own.iter().cloned());
        let (held, refused) = locks::lock(&self.client, &self.settings.group, &own).await;
        self.leased.retain(|queue| !refused.contains(queue));
        if held.len() < own.len() {
            *again = REBALANCE_AGAIN;
        }
        held.into_iter().collect()
    }

    /// Gives leases back.
    async fn unlock(&self, queues: &[Queue]) {
        let unlocked = locks::unlock(&self.client, &self.settings.group, queues);
        if timeout(FAREWELL, unlocked).await.is_err() {
            tracing::debug!(group = %self.settings.group, "not all leases given back, they end by themselves");
        }
    }

    /// Renews the leases; a queue whose lease went to another, or would be too old before the next look, is given up.
    async fn renew_leases(&mut self) {
        let queues: Vec<_> = self.lanes.keys().cloned().collect();
        let asked_at = Instant::now();
        let (held, refused) = locks::lock(&self.client, &self.settings.group, &queues).await;
        let next_look = Instant::now() + locks::RENEW;
        for (queue, assigned) in &mut self.lanes {
            if held.contains(queue) {
                assigned.leased_at = asked_at;
            }
        }
        self.leased.retain(|queue| !refused.contains(queue));
        self.lanes.retain(|queue, assigned| {
            let is_kept = !refused.contains(queue) && assigned.leased_at + locks::LEASE > next_look;
            if !is_kept {
                tracing::warn!(%queue, "the lease of the queue is lost");
            }
            is_kept
        });
    }

    fn begin(&mut self, subscription: &Subscription, queue: Queue, progress: Progress) {
        let queue_offset = progress.position();
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
        self.lanes.insert(queue, Assigned::new(lane, progress, (notes, task)));
    }
}

/// Where a group goes on in a queue.
async fn start_of(
    client: Client,
    settings: Settings,
    queue: Queue,
) -> (Queue, Result<Progress, ClientError>) {
    let told = async {
        if !settings.broadcast {
            if let Some(queue_offset) = client.committed(&settings.group, &queue).await? {
                return Ok(Progress::resumed(queue_offset));
            }
            if queue.topic.starts_with(RETRY_PREFIX) {
                return Ok(Progress::new(0));
            }
        }
        let queue_offset = match settings.start {
            StartAt::First => client.min_offset(&queue).await,
            StartAt::Last => client.max_offset(&queue).await,
            StartAt::Time(epoch_ms) => client.offset_at(&queue, epoch_ms).await,
        };
        queue_offset.map(Progress::new)
    };
    let told = told.await;
    (queue, told)
}
