//! `ConsumerOffsets`: how far each group has read (RocketMQ: `ConsumerOffsetManager`).
//!
//! Invariants:
//! - what was committed is on disk 5 s later at the latest, and at an orderly stop;
//! - whatever the number of queues, the table is laid out for its file, or for a slave, on a thread that may take the
//!   time: only a copy that shares all is taken here;
//! - a reset that is pending is handed to exactly one pull or pop.
//!
//! Contents: `progress` the table, `shared_map` why a copy of it is cheap, `stored` its file, `asked` the ways back of
//! clients' own resets, `pending` what pulls see of resets, `answers` the requests of clients.

pub mod answers;
mod asked;
pub mod pending;
pub mod progress;
mod shared_map;
mod stored;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_codec::Text;
use troupemq_codec::request::ConsumerOffsetTable;
use troupemq_codec::topic::DataVersion;
use troupemq_store::StoreError;
use troupemq_store::tables::{LightOffsetTable, TableFile};

use crate::commit_log::MAILBOX;
use crate::config::NodeClock;
use crate::held::{Held, Waiting, hold};
use crate::net::Refusal;
use crate::pull::Pulled;
use crate::saving::{Saved, Saves, Saving};
use crate::stats::Stats;
use asked::{Asked, WAYS_MAX};
use pending::PendingResets;
use progress::{Committed, Progress};
pub use stored::Moment;
use stored::restored;

/// How often changed offsets are written to disk (RocketMQ: `flushConsumerOffsetInterval`).
const PERSIST_EVERY: Duration = Duration::from_secs(5);
/// How often it is told that commits of pulls are not kept, ms.
const TELL_EVERY_MS: i64 = 60_000;

/// The queue of one topic, as one group reads it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupQueue {
    /// The consumer group.
    pub group: Text,
    /// The topic.
    pub topic: Text,
    /// The queue's number in its topic.
    pub queue_id: i32,
}

// ---- messages

/// Store the next offset to consume. Sent by UPDATE_CONSUMER_OFFSET and by pulls that carry a commit.
#[derive(Debug, Message)]
#[rtype(result = "Committed")]
pub struct CommitOffset {
    /// Whose progress.
    pub of: GroupQueue,
    /// The next offset to consume.
    pub queue_offset: i64,
}

/// Store the next offset to consume, wherever it is. Sent by UPDATE_CONSUMER_OFFSET of a tool.
#[derive(Debug, Message)]
#[rtype(result = "Committed")]
pub struct MoveOffset(pub CommitOffset);

/// Where the group goes on. Sent by QUERY_CONSUMER_OFFSET; `None` when nothing is stored.
#[derive(Debug, Message)]
#[rtype(result = "Option<i64>")]
pub struct QueryOffset(pub GroupQueue);

/// Take the pending reset, if there is one. Sent by pulls whose group has one in their topic.
#[derive(Debug, Message)]
#[rtype(result = "Option<i64>")]
pub struct TakeReset(pub GroupQueue);

/// Whether a commit for this queue would be kept; if not, why. Sent by pulls that commit while the table is full.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), String>")]
pub struct WouldKeep(pub GroupQueue);

/// Go on at these offsets, by queue id. Sent by administration.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct ResetOffsets {
    /// The consumer group.
    pub group: Text,
    /// The topic.
    pub topic: Text,
    /// Next offset by queue id.
    pub queue_offsets: BTreeMap<i32, i64>,
}

/// A member of these groups is about to be told the offset of a queue at a time: it may go back there, whatever it
/// commits before. Sent by SEARCH_OFFSET_BY_TIMESTAMP, and by resets that are told to clients.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskedBack {
    /// The groups that the client reads for.
    pub groups: Vec<Text>,
    /// The topic.
    pub topic: Text,
    /// The queue's number in its topic.
    pub queue_id: i32,
    /// The offset.
    pub to: i64,
}

/// Committed and handed-out offsets of one group in one topic. Sent by administration.
#[derive(Debug, Message)]
#[rtype(result = "BTreeMap<i32, GroupProgress>")]
pub struct TopicProgress {
    /// The consumer group.
    pub group: Text,
    /// The topic.
    pub topic: Text,
    /// Number of queues of the topic; the answer has an entry for each.
    pub queue_count: i32,
}

/// How far a group is in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupProgress {
    /// Next offset to consume; `None` when nothing was committed.
    pub committed: Option<i64>,
    /// Offset up to which messages were handed out; `None` when nothing was pulled since a reset.
    pub pulled: Option<i64>,
}

/// Topics in which a group has offsets. Sent by administration.
#[derive(Debug, Message)]
#[rtype(result = "Vec<Text>")]
pub struct TopicsOfGroup(pub Text);

/// Groups that have offsets in a topic. Sent by administration.
#[derive(Debug, Message)]
#[rtype(result = "Vec<Text>")]
pub struct GroupsOfTopic(pub Text);

/// Copy the offsets of one group to another. Sent by CLONE_GROUP_OFFSET.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct CloneGroup {
    /// Where from.
    pub from: Text,
    /// Where to.
    pub to: Text,
    /// Only this topic, or all.
    pub topic: Option<Text>,
}

/// Forget a group or a topic that is deleted. Sent by `Groups` and `Topics`.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum Forget {
    /// All offsets of this group.
    Group(Text),
    /// The offsets of all groups in this topic.
    Topic(Text),
}

/// All offsets as they are now. Sent by slaves.
#[derive(Debug, Message)]
#[rtype(result = "Moment")]
pub struct AllOffsets;

/// Save what changed. Sent by the node when it stops; what is answered is done when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "Waiting<Saved>")]
pub struct SaveOffsets;

// ---- actor

/// Owner of the offsets of all groups.
#[derive(Debug)]
pub struct ConsumerOffsets {
    progress: Progress,
    asked: Asked,
    version: DataVersion,
    file: TableFile<ConsumerOffsetTable>,
    /// The file that a broker with light queues has in Java; all offsets are in it too.
    light: Option<TableFile<LightOffsetTable>>,
    saving: Saving<Held<Saved>>,
    published: Published,
    stats: Arc<Stats>,
    clock: NodeClock,
    not_kept: NotKept,
}

/// What pulls look at before they ask.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Resets that wait for a pull.
    pub resets: PendingResets,
    /// Whether a commit for a queue that is not known yet is refused.
    pub is_full: Arc<AtomicBool>,
}

impl ConsumerOffsets {
    /// The owner of the table that is saved in the file beside it, and of that of light groups where they are.
    pub fn new(
        (file, table): (TableFile<ConsumerOffsetTable>, ConsumerOffsetTable),
        light: Option<(TableFile<LightOffsetTable>, LightOffsetTable)>,
        (published, stats): (Published, Arc<Stats>),
        (clock, queues_max): (NodeClock, usize),
    ) -> ConsumerOffsets {
        let (light, of_light) = light.unzip();
        let (progress, version) = restored(table, of_light.unwrap_or_default());
        let progress = progress.limited_to(queues_max);
        let (saving, not_kept) = (Saving::default(), NotKept::default());
        let asked = Asked::default();
        let offsets = ConsumerOffsets {
            progress,
            asked,
            version,
            file,
            light,
            saving,
            published,
            stats,
            clock,
            not_kept,
        };
        offsets.publish();
        offsets
    }

    fn publish(&self) {
        self.published.is_full.store(self.progress.is_full(), Ordering::Release);
    }

    fn publish_resets(&self, group: &Text, topic: &Text) {
        self.published.resets.note(group, topic, self.progress.has_reset(group, topic));
        self.publish();
    }

    /// A commit that came with a pull is not kept: that is counted, and told once in a while.
    fn not_kept(&mut self, of: &GroupQueue, queue_offset: i64) {
        self.stats.commit_refused();
        let Some(refused) = self.not_kept.note(self.clock.0.now_ms()) else { return };
        let (GroupQueue { group, topic, queue_id }, limit) = (of, self.progress.queues_max());
        tracing::error!(%group, %topic, queue_id, queue_offset, limit, refused,
            "commits of pulls are not kept: the table of offsets is full, consumerOffsetsMax is its limit");
    }

    fn moment(&self) -> Moment {
        let (progress, has_light) = (self.progress.snapshot(), self.light.is_some());
        Moment { progress, version: self.version, has_light }
    }

    fn save_changes(&mut self, context: &mut Context<ConsumerOffsets>) {
        let Some(versions) = self.progress.take_changes() else { return };
        for _ in 0..versions {
            self.version = self.version.next(self.clock.0.now_ms());
        }
        self.saving.changed();
        self.save(context);
    }
}

impl Saves for ConsumerOffsets {
    fn saving(&mut self) -> &mut Saving<Held<Saved>> {
        &mut self.saving
    }

    fn writer(&self) -> impl FnOnce() -> Result<(), StoreError> + Send + use<> {
        let (file, light, moment) = (self.file.clone(), self.light.clone(), self.moment());
        move || moment.save(&file, light.as_ref())
    }
}

impl Actor for ConsumerOffsets {
    type Context = Context<ConsumerOffsets>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
        context.run_interval(PERSIST_EVERY, ConsumerOffsets::save_changes);
    }
}

impl Handler<CommitOffset> for ConsumerOffsets {
    type Result = MessageResult<CommitOffset>;

    fn handle(
        &mut self,
        CommitOffset { of, queue_offset }: CommitOffset,
        _: &mut Self::Context,
    ) -> Self::Result {
        let mut committed = self.progress.commit(&of.group, &of.topic, of.queue_id, queue_offset);
        if matches!(committed, Committed::Backward { .. })
            && self.asked.take(&of, queue_offset, self.clock.0.now_ms())
        {
            self.progress.send_back(&of.group, &of.topic, of.queue_id, queue_offset);
            committed = self.progress.commit(&of.group, &of.topic, of.queue_id, queue_offset);
        }
        if let Committed::Stored { before: Some(before) } = committed
            && before > queue_offset
        {
            tracing::info!(group = %of.group, topic = %of.topic, queue_id = of.queue_id, before, queue_offset,
                "a group goes back");
        }
        self.publish();
        MessageResult(committed)
    }
}

impl Handler<MoveOffset> for ConsumerOffsets {
    type Result = MessageResult<MoveOffset>;

    fn handle(&mut self, MoveOffset(commit): MoveOffset, context: &mut Self::Context) -> Self::Result {
        let CommitOffset { of, queue_offset } = &commit;
        self.progress.send_back(&of.group, &of.topic, of.queue_id, *queue_offset);
        MessageResult(self.handle(commit, context).0)
    }
}

impl Handler<QueryOffset> for ConsumerOffsets {
    type Result = Option<i64>;

    fn handle(&mut self, QueryOffset(of): QueryOffset, _: &mut Self::Context) -> Option<i64> {
        self.progress.query(&of.group, &of.topic, of.queue_id)
    }
}

impl Handler<Pulled> for ConsumerOffsets {
    type Result = ();

    fn handle(&mut self, pulled: Pulled, _: &mut Self::Context) {
        let Pulled { group, topic, queue_id, from, next_offset, commit_offset } = pulled;
        self.progress.note_pulled(&group, &topic, queue_id, (from, next_offset));
        let Some(queue_offset) = commit_offset else { return };
        let committed = self.progress.commit(&group, &topic, queue_id, queue_offset);
        let of = GroupQueue { group, topic, queue_id };
        match committed {
            Committed::Backward { before } => {
                self.stats.commit_ignored();
                answers::tell_ignored(&of, before, queue_offset);
            }
            Committed::Full { .. } => self.not_kept(&of, queue_offset),
            Committed::Stored { .. } | Committed::Reset => {}
        }
        self.publish();
    }
}

impl Handler<TakeReset> for ConsumerOffsets {
    type Result = Option<i64>;

    fn handle(&mut self, TakeReset(of): TakeReset, _: &mut Self::Context) -> Option<i64> {
        let taken = self.progress.take_reset(&of.group, &of.topic, of.queue_id);
        self.publish_resets(&of.group, &of.topic);
        taken
    }
}

impl Handler<WouldKeep> for ConsumerOffsets {
    type Result = Result<(), String>;

    fn handle(&mut self, WouldKeep(of): WouldKeep, _: &mut Self::Context) -> Self::Result {
        match self.progress.has_room_for(&of.group, &of.topic, of.queue_id) {
            true => Ok(()),
            false => Err(answers::full(&of.group, &of.topic, self.progress.queues_max()).remark),
        }
    }
}

impl Handler<ResetOffsets> for ConsumerOffsets {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, reset: ResetOffsets, _: &mut Self::Context) -> Self::Result {
        let mut had_room = true;
        for (queue_id, queue_offset) in reset.queue_offsets {
            had_room &= self.progress.reset(&reset.group, &reset.topic, queue_id, queue_offset);
        }
        self.publish_resets(&reset.group, &reset.topic);
        if had_room {
            Ok(())
        } else {
            Err(answers::full(&reset.group, &reset.topic, self.progress.queues_max()))
        }
    }
}

impl Handler<AskedBack> for ConsumerOffsets {
    type Result = ();

    fn handle(&mut self, AskedBack { groups, topic, queue_id, to }: AskedBack, _: &mut Self::Context) {
        let now_ms = self.clock.0.now_ms();
        for group in groups {
            let of = GroupQueue { group, topic: topic.clone(), queue_id };
            if !self.asked.note(of, to, now_ms) {
                tracing::warn!(%topic, queue_id, limit = WAYS_MAX, "too many clients reset their offsets at once");
            }
        }
    }
}

impl Handler<TopicProgress> for ConsumerOffsets {
    type Result = MessageResult<TopicProgress>;

    fn handle(&mut self, asked: TopicProgress, _: &mut Self::Context) -> Self::Result {
        let of_queue = |queue_id| GroupProgress {
            committed: self.progress.query(&asked.group, &asked.topic, queue_id),
            pulled: self.progress.pulled(&asked.group, &asked.topic, queue_id),
        };
        MessageResult((0..asked.queue_count).map(|queue_id| (queue_id, of_queue(queue_id))).collect())
    }
}

impl Handler<TopicsOfGroup> for ConsumerOffsets {
    type Result = Vec<Text>;

    fn handle(&mut self, TopicsOfGroup(group): TopicsOfGroup, _: &mut Self::Context) -> Vec<Text> {
        self.progress.topics_of(&group)
    }
}

impl Handler<GroupsOfTopic> for ConsumerOffsets {
    type Result = Vec<Text>;

    fn handle(&mut self, GroupsOfTopic(topic): GroupsOfTopic, _: &mut Self::Context) -> Vec<Text> {
        self.progress.groups_of(&topic)
    }
}

impl Handler<CloneGroup> for ConsumerOffsets {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, CloneGroup { from, to, topic }: CloneGroup, _: &mut Self::Context) -> Self::Result {
        let had_room = self.progress.clone_group(&from, &to, topic.as_deref());
        self.publish();
        let max = self.progress.queues_max();
        if had_room { Ok(()) } else { Err(answers::full(&to, topic.as_deref().unwrap_or("*"), max)) }
    }
}

impl Handler<Forget> for ConsumerOffsets {
    type Result = ();

    fn handle(&mut self, forget: Forget, _: &mut Self::Context) {
        match forget {
            Forget::Group(group) => {
                self.progress.remove_group(&group);
                self.published.resets.forget_group(&group);
            }
            Forget::Topic(topic) => {
                self.progress.remove_topic(&topic);
                self.published.resets.forget_topic(&topic);
            }
        }
        self.publish();
    }
}

impl Handler<AllOffsets> for ConsumerOffsets {
    type Result = MessageResult<AllOffsets>;

    fn handle(&mut self, _: AllOffsets, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.moment())
    }
}

impl Handler<SaveOffsets> for ConsumerOffsets {
    type Result = MessageResult<SaveOffsets>;

    fn handle(&mut self, _: SaveOffsets, context: &mut Self::Context) -> Self::Result {
        let (held, waiting) = hold();
        self.saving.changed_for(held);
        self.save_changes(context);
        self.save(context);
        MessageResult(waiting)
    }
}

// ---- state

/// Commits of pulls that were not kept: told at most once in [`TELL_EVERY_MS`].
#[derive(Debug, Default)]
struct NotKept {
    told_ms: Option<i64>,
    since: u64,
}

impl NotKept {
    /// Notes one; how many there are since the last time it was told, if it is to be told now.
    fn note(&mut self, now_ms: i64) -> Option<u64> {
        self.since += 1;
        if self.told_ms.is_some_and(|told_ms| now_ms.saturating_sub(told_ms) < TELL_EVERY_MS) {
            return None;
        }
        self.told_ms = Some(now_ms);
        Some(std::mem::take(&mut self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_that_are_not_kept_are_told_once_a_minute_with_their_number() {
        let mut not_kept = NotKept::default();
        let told: Vec<_> = [5, 6, 60_004, 60_005, 60_006].map(|now_ms| not_kept.note(now_ms)).into();
        assert_eq!(told, [Some(1), None, None, Some(3), None]);
    }
}
