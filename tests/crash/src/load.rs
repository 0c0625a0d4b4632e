//! What clients do while the broker is killed: send, send in batches, also in those that stay one record, send for
//! later by level and by time, take some of that back, decide transactions or not, read and commit, make topics and
//! groups, delete topics, have old messages deleted.
//!
//! Invariants:
//! - what is told of was acknowledged; nothing is told twice;
//! - what is to be judged though it may never be acknowledged is told of before it is sent;
//! - everything ends with the tasks, which are aborted when the broker is gone.
//!
//! Contents: `light` messages that are in light queues too, `again` those that come again or are given up, `decided`
//! transactions, `gone` topics that are deleted.

pub(crate) mod again;
mod decided;
pub(crate) mod gone;
pub(crate) mod light;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::sleep;
use troupemq::{Client, Message, PullRequest, Queue, SendReceipt, SendStatus};
use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::topic::TopicConfig;
use troupemq_store::{Clock, SystemClock};

use crate::chance::Chance;
use crate::model::{Event, Place, Timer, body};
use crate::wire::Wire;

/// Topics of plain messages.
pub(crate) const TOPICS: [&str; 3] = ["CrashA", "CrashB", "CrashC"];
/// Topic of batches that stay one record.
pub(crate) const INNER: &str = "CrashInner";
/// Queues of that topic.
const INNER_QUEUES: i32 = 2;
/// Topic of messages that wait.
pub(crate) const LATER: &str = "CrashLater";
/// Topic of transactions.
pub(crate) const DECIDED: &str = "CrashDecided";
/// Group that reads and commits.
pub(crate) const GROUP: &str = "crash-readers";
/// Messages of a batch.
const BATCH: u64 = 5;
/// How old a segment is made that is to be deleted.
const AGED: Duration = Duration::from_secs(100 * 3600);

/// What all tasks share.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) client: Client,
    pub(crate) broker: SocketAddr,
    pub(crate) numbers: Arc<AtomicU64>,
    pub(crate) events: UnboundedSender<Event>,
    /// Folder of the log, if old segments are to be deleted.
    pub(crate) ages: Option<PathBuf>,
    /// Whether queues may have holes, which readers pass over.
    pub(crate) has_holes: bool,
    /// Whether messages may name light queues.
    pub(crate) is_light: bool,
}

impl Load {
    /// Starts the tasks; they end when the set is dropped.
    pub(crate) fn start(&self, chance: &mut Chance) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for _ in 0..6 {
            tasks.spawn(self.clone().send(chance.fork()));
        }
        tasks.spawn(self.clone().send_batches(chance.fork()));
        tasks.spawn(self.clone().send_inner(chance.fork()));
        tasks.spawn(self.clone().make_topics(chance.fork()));
        tasks.spawn(self.clone().send_timers(chance.fork()));
        tasks.spawn(self.clone().send_later(chance.fork()));
        for _ in 0..2 {
            tasks.spawn(self.clone().decide(chance.fork()));
        }
        tasks.spawn(self.clone().send_back(chance.fork()));
        tasks.spawn(self.clone().form_groups(chance.fork()));
        tasks.spawn(self.clone().delete_topics(chance.fork()));
        if self.is_light {
            tasks.spawn(self.clone().send_light(chance.fork()));
            tasks.spawn(self.clone().read_light());
        }
        for topic in TOPICS.into_iter().chain([INNER]) {
            tasks.spawn(self.clone().read(topic));
        }
        if let Some(log) = self.ages.clone() {
            tasks.spawn(self.clone().delete_old(log));
        }
        tasks
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Who is told may have ended already: then nobody asks any more.
    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    async fn send(self, mut chance: Chance) {
        let Ok(producer) = self.client.producer("crash").retries(0).start().await else { return };
        loop {
            let number = self.number();
            let waited = !chance.once_in(4);
            let message = Message::new(*chance.one_of(&TOPICS), body(number));
            let message = message.key(&format!("k{number}")).wait_stored(waited);
            let topic = message.topic().to_owned();
            match producer.send(message).await {
                Ok(receipt) => self.stored(&topic, &receipt, number, waited),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
            sleep(Duration::from_micros(chance.below(3_000))).await;
        }
    }

    async fn send_batches(self, mut chance: Chance) {
        let Ok(producer) = self.client.producer("crash").retries(0).start().await else { return };
        loop {
            let first = self.numbers.fetch_add(BATCH, Ordering::Relaxed);
            let topic = *chance.one_of(&TOPICS);
            let message = |number| Message::new(topic, body(number)).key(&format!("k{number}"));
            let batch: Vec<_> = (first..first + BATCH).map(message).collect();
            match producer.send_batch(&batch).await {
                Ok(receipt) => self.stored(topic, &receipt, first, true),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
            sleep(Duration::from_millis(2 + chance.below(20))).await;
        }
    }

    /// Tells of the messages that a receipt speaks of.
    fn stored(&self, topic: &str, receipt: &SendReceipt, first: u64, waited: bool) {
        if receipt.status != SendStatus::Stored {
            return;
        }
        for (index, log_offset) in (0..).zip(log_offsets(&receipt.offset_id)) {
            let place = Place {
                queue_id: receipt.queue.queue_id,
                queue_offset: receipt.queue_offset + index,
                log_offset,
                number: first + index.unsigned_abs(),
                batch: None,
                waited,
            };
            self.tell(Event::Stored(topic.to_owned(), place));
        }
    }

    /// Sends batches that stay one record, and single messages between them.
    async fn send_inner(self, mut chance: Chance) {
        while !self.has_inner().await {
            sleep(Duration::from_millis(5)).await;
        }
        let Some(mut wire) = Wire::connect(self.broker).await else { return };
        loop {
            let count = 1 + chance.below(7);
            let first = self.numbers.fetch_add(count, Ordering::Relaxed);
            let queue_id = i32::from(chance.once_in(2));
            let sent = match chance.once_in(5) {
                true => wire.send_one(INNER, queue_id, first).await,
                false => wire.send_inner(INNER, queue_id, first..first + count).await,
            };
            match sent {
                Some(place) => self.tell(Event::Stored(INNER.to_owned(), place)),
                None => match Wire::connect(self.broker).await {
                    Some(again) => wire = again,
                    None => return,
                },
            }
            sleep(Duration::from_millis(1 + chance.below(8))).await;
        }
    }

    /// Whether the topic of inner batches is there; makes it if not.
    async fn has_inner(&self) -> bool {
        let admin = self.client.admin();
        let configs = admin.topic_configs(INNER).await.unwrap_or_default();
        let is_batch = |config: &TopicConfig| config.attributes.iter().any(|(_, value)| value == "BatchCQ");
        if configs.values().any(is_batch) {
            self.tell(Event::Made(INNER.to_owned()));
            return true;
        }
        let attributes = [("+queue.type".into(), "BatchCQ".into())].into();
        let config = TopicConfig {
            topic_name: INNER.into(),
            read_queue_nums: INNER_QUEUES,
            write_queue_nums: INNER_QUEUES,
            attributes,
            ..TopicConfig::default()
        };
        // Whether it was made is seen when it is asked for again.
        let _ = admin.save_topic(&config).await;
        false
    }

    async fn send_later(self, mut chance: Chance) {
        let Ok(producer) = self.client.producer("crash").retries(0).start().await else { return };
        loop {
            let number = self.number();
            let level = 1 + u8::try_from(chance.below(3)).expect("there are three levels");
            let mut message = Message::new(LATER, body(number)).delay_level(level);
            if self.is_light && chance.once_in(3) {
                message = self.name_light(number, message, &mut chance);
            }
            match producer.send(message).await {
                Ok(receipt) if receipt.status == SendStatus::Stored => {
                    let log_offset = log_offsets(&receipt.offset_id).next().unwrap_or(0);
                    self.tell(Event::Waits { number, log_offset });
                }
                _ => sleep(Duration::from_millis(5)).await,
            }
            sleep(Duration::from_millis(5 + chance.below(20))).await;
        }
    }

    async fn send_timers(self, mut chance: Chance) {
        let Ok(producer) = self.client.producer("crash").retries(0).start().await else { return };
        loop {
            let number = self.number();
            let is_recalled = chance.once_in(4);
            let soonest_ms = if is_recalled { 2_500 } else { 100 };
            let ahead_ms = i64::try_from(soonest_ms + chance.below(4_000)).expect("a few seconds");
            let due_ms = SystemClock::new().now_ms() + ahead_ms;
            match producer.send(Message::new(LATER, body(number)).deliver_at(due_ms)).await {
                Ok(SendReceipt { recall_handle: Some(handle), .. }) if is_recalled => {
                    // Without an answer it may come or not.
                    if producer.recall(LATER, &handle).await.is_ok() {
                        self.tell(Event::Recalled { number });
                    }
                }
                Ok(receipt) if receipt.status == SendStatus::Stored && !is_recalled => {
                    if let Some(log_offset) = log_offsets(&receipt.offset_id).next() {
                        self.tell(Event::Timed { number, timer: Timer { log_offset, due_ms } });
                    }
                }
                _ => sleep(Duration::from_millis(5)).await,
            }
            sleep(Duration::from_millis(2 + chance.below(10))).await;
        }
    }

    async fn form_groups(self, mut chance: Chance) {
        loop {
            sleep(Duration::from_millis(50 + chance.below(400))).await;
            let group_name = format!("crash-formed{}", self.number());
            let group = SubscriptionGroupConfig {
                group_name: group_name.as_str().into(),
                retry_max_times: 7,
                ..SubscriptionGroupConfig::default()
            };
            if self.client.admin().save_group(&group).await.is_ok() {
                self.tell(Event::Formed(group_name));
            }
        }
    }

    async fn make_topics(self, mut chance: Chance) {
        loop {
            sleep(Duration::from_millis(50 + chance.below(400))).await;
            let topic = format!("CrashMade{}", self.number());
            let queues = 1 + i32::try_from(chance.below(8)).expect("a few queues");
            if self.client.create_topic(&topic, queues).await.is_ok() {
                self.tell(Event::Made(topic));
            }
        }
    }

    /// Reads the queues of a topic from where the group stands, and commits.
    async fn read(self, topic: &'static str) {
        let mut next: std::collections::BTreeMap<Queue, i64> = std::collections::BTreeMap::new();
        loop {
            let queues = self.client.queues(topic).await.unwrap_or_default();
            for queue in queues {
                if self.read_some(&queue, &mut next).await.is_none() {
                    next.remove(&queue);
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn read_some(
        &self,
        queue: &Queue,
        next: &mut std::collections::BTreeMap<Queue, i64>,
    ) -> Option<()> {
        let from = match next.get(queue) {
            Some(from) => *from,
            None => self.client.committed(GROUP, queue).await.ok()?.unwrap_or(0),
        };
        let pulled = self.client.pull(queue, &PullRequest::from(GROUP, from)).await.ok()?;
        for message in &pulled.messages {
            if crate::model::number_of(&message.body).map(body).as_deref() != Some(&message.body[..]) {
                let at = message.queue_offset;
                self.tell(Event::Wrong(format!("{queue:?} has a damaged message at {at}: {message:?}")));
            }
        }
        let mut offsets: Vec<i64> = pulled.messages.iter().map(|message| message.queue_offset).collect();
        offsets.push(pulled.next_offset);
        // The batch that holds the first one may begin in front of it.
        let begins_behind = offsets.first().filter(|first| **first > from);
        let next_to = || offsets.windows(2).find(|pair| pair[1] != pair[0] + 1).map(|pair| &pair[1]);
        let jump_to = begins_behind.or_else(next_to).copied();
        let jump_to = jump_to.filter(|_| offsets.len() > 1 && !self.has_holes);
        if let Some(to) = jump_to
            && !self.expires_to(queue, to).await
        {
            self.tell(Event::Wrong(format!("{queue:?}: a pull from {from} gave {offsets:?}")));
        }
        self.client.commit(GROUP, queue, pulled.next_offset).await.ok()?;
        let key = (queue.topic.to_string(), queue.queue_id);
        let at_ms = SystemClock::new().now_ms();
        self.tell(Event::Committed { queue: key, queue_offset: pulled.next_offset, at_ms });
        next.insert(queue.clone(), pulled.next_offset);
        Some(())
    }

    /// Whether a queue begins at this offset or behind it, or soon does: what is in front may have been deleted while
    /// it was read. A broker that dies meanwhile has said nothing.
    async fn expires_to(&self, queue: &Queue, queue_offset: i64) -> bool {
        for _ in 0..50 {
            match self.client.min_offset(queue).await {
                Ok(min) if min < queue_offset && self.ages.is_some() => {
                    sleep(Duration::from_millis(100)).await
                }
                Ok(min) => return min >= queue_offset,
                Err(_) => return true,
            }
        }
        false
    }

    /// Makes all segments but the last two old, and has the broker delete them.
    async fn delete_old(self, log: PathBuf) {
        let Some(mut wire) = Wire::connect(self.broker).await else { return };
        loop {
            sleep(Duration::from_millis(150)).await;
            let mut files: Vec<PathBuf> = std::fs::read_dir(&log)
                .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
                .unwrap_or_default();
            files.sort();
            files.truncate(files.len().saturating_sub(2));
            let now_ms = SystemClock::new().now_ms().unsigned_abs();
            let then = UNIX_EPOCH + Duration::from_millis(now_ms) - AGED;
            for file in files {
                // The broker may be quicker.
                let _ = std::fs::File::open(file).and_then(|file| file.set_modified(then));
            }
            if wire.clean().await.is_none() {
                return;
            }
        }
    }
}

/// The log offsets in the ids of a receipt: the last sixteen hexadecimal digits of each.
pub(crate) fn log_offsets(ids: &str) -> impl Iterator<Item = u64> {
    let offset = |id: &str| u64::from_str_radix(id.get(id.len().checked_sub(16)?..)?, 16).ok();
    ids.split(',').filter_map(offset)
}
