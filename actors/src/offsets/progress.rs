//! How far each group has read each queue (RocketMQ: `ConsumerOffsetManager`).
//!
//! Invariants:
//! - a stored offset is the *next* queue offset to consume;
//! - while a reset is pending it is what a question answers, and commits are left aside until the reset is
//!   handed to a pull or a pop;
//! - progress goes back only where something asked for it: a reset, a pull from further back (a consumer that seeks),
//!   the broker's own answer that an offset does not exist or lies at a time that a member asked for, a pull consumer
//!   or a tool that sets it. A commit that
//!   merely comes late, from a push consumer whose queue another has taken over, is left aside;
//! - the version moves with every 500th commit and with every reset, so that slaves notice.
//!
//! Deliberately absent: any check against the queue's own limits. A pull beyond them is told where to go on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use troupemq_codec::Text;

use super::shared_map::SharedMap;

/// Commits after which the version of the table moves (RocketMQ: `consumerOffsetUpdateVersionStep`).
pub const VERSION_STEP: u64 = 500;

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// Stored; the value is the offset that it replaced.
    Stored {
        /// Offset known before, `None` for the first commit of the queue.
        before: Option<i64>,
    },
    /// It is behind what is stored, and nothing asked for that: it does not count.
    Backward {
        /// What stays stored.
        before: i64,
    },
    /// A reset is pending: the commit is from before it and does not count.
    Reset,
    /// The table holds as many queues as it may, and this is none of them.
    Full {
        /// So many.
        queues_max: usize,
    },
}

#[derive(Debug, Default, Clone)]
struct QueueProgress {
    committed: Option<i64>,
    /// Last offset handed out by a pull; kept in memory only.
    pulled: Option<i64>,
    reset: Option<i64>,
    /// The group was sent back; kept in memory only.
    sent_back: Option<SentBack>,
}

/// A way back that commits may take.
#[derive(Debug, Clone, Copy)]
struct SentBack {
    /// As far back as this.
    to: i64,
    /// Until progress is here again; after a reset until the group pulls again: clients commit what they held for some
    /// seconds more before they commit where they were sent.
    until: Option<i64>,
}

/// Progress of the queues of one topic, for one group.
type Queues = BTreeMap<i32, QueueProgress>;

/// Progress of one group, by topic.
type Topics = SharedMap<Queues>;

/// The progress of all groups as it was at one moment; taking it copies nothing of it.
#[derive(Debug, Clone)]
pub struct Snapshot(SharedMap<Topics>);

impl Snapshot {
    /// Every stored offset as (group, topic, queue id, next offset), for the table on disk.
    pub fn stored(&self) -> impl Iterator<Item = (&Text, &Text, i32, i64)> {
        self.0.iter().flat_map(|(group, topics)| {
            topics.iter().flat_map(move |(topic, queues)| {
                queues.iter().filter_map(move |(id, queue)| Some((group, topic, *id, queue.committed?)))
            })
        })
    }
}

/// Committed offsets, pending resets and pulled offsets of all groups.
#[derive(Debug)]
pub struct Progress {
    groups: SharedMap<Topics>,
    queue_count: usize,
    queues_max: usize,
    commits: u64,
    versions: u64,
    is_changed: bool,
}

impl Progress {
    /// A table that keeps the progress of so many queues; a commit for one more is refused.
    pub fn with_room_for(queues_max: usize) -> Progress {
        Progress {
            groups: SharedMap::default(),
            queue_count: 0,
            queues_max,
            commits: 0,
            versions: 0,
            is_changed: false,
        }
    }

    /// The same table with another room. What it holds already stays.
    pub fn limited_to(self, queues_max: usize) -> Progress {
        Progress { queues_max, ..self }
    }

    /// How many queues it may hold.
    pub fn queues_max(&self) -> usize {
        self.queues_max
    }

    /// Whether a commit for this queue finds room.
    pub fn has_room_for(&self, group: &str, topic: &str, queue_id: i32) -> bool {
        !self.is_full() || self.queue(group, topic, queue_id).is_some()
    }

    /// Whether it takes no further queue.
    pub fn is_full(&self) -> bool {
        self.queue_count >= self.queues_max
    }

    /// Stores the next offset to consume.
    pub fn commit(&mut self, group: &Text, topic: &Text, queue_id: i32, queue_offset: i64) -> Committed {
        let Some(queue) = self.queue_mut(group, topic, queue_id) else {
            return Committed::Full { queues_max: self.queues_max };
        };
        if queue.reset.is_some() {
            return Committed::Reset;
        }
        let may_go_back = queue.sent_back.is_some_and(|back| back.to <= queue_offset);
        if let Some(before) = queue.committed.filter(|before| queue_offset < *before && !may_go_back) {
            return Committed::Backward { before };
        }
        queue.sent_back = queue.sent_back.filter(|back| back.until.is_none_or(|until| queue_offset < until));
        let before = queue.committed.replace(queue_offset);
        self.commits += 1;
        self.is_changed = true;
        if self.commits.is_multiple_of(VERSION_STEP) {
            self.versions += 1;
        }
        Committed::Stored { before }
    }

    /// Lets commits of the queue go back as far as `to`, until they are where they are now.
    pub fn send_back(&mut self, group: &str, topic: &str, queue_id: i32, to: i64) {
        if let Some(queue) = self.known_mut(group, topic, queue_id) {
            queue.send_back(to);
        }
    }

    /// Where the group goes on: the pending reset, else the stored offset.
    #[must_use]
    pub fn query(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        let queue = self.queue(group, topic, queue_id)?;
        queue.reset.or(queue.committed)
    }

    /// Stored offsets of a group in a topic, by queue id; pending resets count.
    #[must_use]
    pub fn of_topic(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        self.queues(group, topic)
            .into_iter()
            .flatten()
            .filter_map(|(id, queue)| Some((*id, queue.reset.or(queue.committed)?)))
            .collect()
    }

    /// Notes how far a pull from `from` has handed out messages, for the lag that administrators see. One from further
    /// back than the stored offset lets commits go back too. Of pulls that merely go on it need not be told.
    pub fn note_pulled(
        &mut self,
        group: &Text,
        topic: &Text,
        queue_id: i32,
        (from, next_offset): (i64, i64),
    ) {
        if let Some(queue) = self.queue_mut(group, topic, queue_id) {
            queue.pulled = Some(next_offset);
            queue.sent_back = queue.sent_back.filter(|back| back.until.is_some());
            queue.send_back(from.min(next_offset));
        }
    }

    /// Offset up to which messages were handed out, as of the last pull that did not merely go on; none since a reset.
    #[must_use]
    pub fn pulled(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        self.queue(group, topic, queue_id)?.pulled
    }

    /// Asks that the group go on at `queue_offset` with its next pull or pop; the last request wins. Tells whether
    /// the table had room for it.
    pub fn reset(&mut self, group: &Text, topic: &Text, queue_id: i32, queue_offset: i64) -> bool {
        let Some(queue) = self.queue_mut(group, topic, queue_id) else { return false };
        queue.reset = Some(queue_offset);
        queue.committed = Some(queue_offset);
        queue.pulled = None;
        queue.sent_back = None;
        self.versions += 1;
        self.is_changed = true;
        true
    }

    /// Takes the pending reset: the caller hands it to the client, and commits count again, those back to it too.
    pub fn take_reset(&mut self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        let queue = self.known_mut(group, topic, queue_id)?;
        let taken = queue.reset.take()?;
        queue.sent_back = Some(SentBack { to: taken, until: None });
        Some(taken)
    }

    /// Whether a reset waits for a pull of the group from any queue of the topic; pulls ask only while one does.
    #[must_use]
    pub fn has_reset(&self, group: &str, topic: &str) -> bool {
        self.queues(group, topic).is_some_and(|queues| queues.values().any(|queue| queue.reset.is_some()))
    }

    /// Topics in which the group has stored offsets; what it only pulled does not count.
    #[must_use]
    pub fn topics_of(&self, group: &str) -> Vec<Text> {
        let topics = self.groups.get(group).into_iter().flat_map(SharedMap::iter);
        topics.filter(|(_, queues)| has_stored(queues)).map(|(topic, _)| topic.clone()).collect()
    }

    /// Groups that have stored offsets in the topic; those that only pulled do not count.
    #[must_use]
    pub fn groups_of(&self, topic: &str) -> Vec<Text> {
        self.groups
            .iter()
            .filter(|(_, topics)| topics.get(topic).is_some_and(has_stored))
            .map(|(group, _)| group.clone())
            .collect()
    }

    /// Copies the stored offsets of one group to another, for one topic or for all (CLONE_GROUP_OFFSET). Tells
    /// whether the table had room for all of them.
    pub fn clone_group(&mut self, from: &str, to: &Text, topic: Option<&str>) -> bool {
        let topics: Vec<(Text, BTreeMap<i32, i64>)> = self
            .topics_of(from)
            .into_iter()
            .filter(|name| topic.is_none_or(|wanted| wanted == name.as_str()))
            .map(|name| (name.clone(), self.of_topic(from, &name)))
            .collect();
        let mut had_room = true;
        for (name, queues) in topics {
            for (queue_id, queue_offset) in queues {
                self.send_back(to, &name, queue_id, queue_offset);
                let committed = self.commit(to, &name, queue_id, queue_offset);
                had_room &= !matches!(committed, Committed::Full { .. });
            }
        }
        had_room
    }

    /// Forgets a group, after its deletion.
    pub fn remove_group(&mut self, group: &str) {
        if let Some(topics) = self.groups.remove(group) {
            topics.iter().for_each(|(_, queues)| self.forget(queues));
        }
    }

    /// Forgets a topic in every group, after its deletion.
    pub fn remove_topic(&mut self, topic: &str) {
        let of_topic = self.groups.iter().filter(|(_, topics)| topics.get(topic).is_some());
        let groups: Vec<Text> = of_topic.map(|(group, _)| group.clone()).collect();
        for group in groups {
            let Some(topics) = self.groups.get_mut(&group) else { continue };
            let removed = topics.remove(topic);
            if topics.is_empty() {
                self.groups.remove(&group);
            }
            removed.iter().for_each(|queues| self.forget(queues));
        }
    }

    fn forget(&mut self, removed: &Queues) {
        self.queue_count -= removed.len();
        self.is_changed = true;
    }

    /// What there is now, for who needs all of it and may take the time for that.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.groups.clone())
    }

    /// Whether something changed since the last call, and by how many versions.
    pub fn take_changes(&mut self) -> Option<u64> {
        let versions = std::mem::take(&mut self.versions);
        std::mem::take(&mut self.is_changed).then_some(versions)
    }

    fn queues(&self, group: &str, topic: &str) -> Option<&Queues> {
        self.groups.get(group)?.get(topic)
    }

    fn queue(&self, group: &str, topic: &str, queue_id: i32) -> Option<&QueueProgress> {
        self.queues(group, topic)?.get(&queue_id)
    }

    fn known_mut(&mut self, group: &str, topic: &str, queue_id: i32) -> Option<&mut QueueProgress> {
        self.groups.get_mut(group)?.get_mut(topic)?.get_mut(&queue_id)
    }

    /// The progress of a queue, which gets some if there is room.
    fn queue_mut(&mut self, group: &Text, topic: &Text, queue_id: i32) -> Option<&mut QueueProgress> {
        if self.is_full() {
            return self.known_mut(group, topic, queue_id);
        }
        let queues = self.groups.get_or_default(group).get_or_default(topic);
        Some(match queues.entry(queue_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                self.queue_count += 1;
                place.insert(QueueProgress::default())
            }
        })
    }
}

impl QueueProgress {
    fn send_back(&mut self, to: i64) {
        let Some(committed) = self.committed.filter(|committed| to < *committed) else { return };
        let known = self.sent_back.unwrap_or(SentBack { to, until: Some(committed) });
        let until = known.until.map(|until| until.max(committed));
        self.sent_back = Some(SentBack { to: known.to.min(to), until });
    }
}

fn has_stored(queues: &Queues) -> bool {
    queues.values().any(|queue| queue.committed.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text::from(text)
    }

    #[test]
    fn the_last_commit_is_what_a_question_answers_and_a_late_one_does_not_count() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        assert_eq!(progress.query("g", "t", 0), None);
        assert_eq!(progress.commit(&group, &topic, 0, 7), Committed::Stored { before: None });
        assert_eq!(progress.commit(&group, &topic, 0, 3), Committed::Backward { before: 7 });
        assert_eq!(progress.query("g", "t", 0), Some(7));
        assert_eq!(progress.commit(&group, &topic, 0, 7), Committed::Stored { before: Some(7) });
        assert_eq!(progress.query("g", "t", 1), None);
    }

    #[test]
    fn a_consumer_that_seeks_back_commits_from_there_until_it_is_where_it_was() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        progress.commit(&group, &topic, 0, 70);
        progress.note_pulled(&group, &topic, 0, (20, 52));
        assert_eq!(progress.commit(&group, &topic, 0, 19), Committed::Backward { before: 70 });
        assert_eq!(progress.commit(&group, &topic, 0, 25), Committed::Stored { before: Some(70) });
        progress.note_pulled(&group, &topic, 0, (52, 84));
        assert_eq!(progress.commit(&group, &topic, 0, 22), Committed::Stored { before: Some(25) });
        assert_eq!(progress.commit(&group, &topic, 0, 71), Committed::Stored { before: Some(22) });
        assert_eq!(progress.commit(&group, &topic, 0, 30), Committed::Backward { before: 71 });
    }

    #[test]
    fn a_pull_beyond_the_end_is_told_the_end_and_may_be_committed_there() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        progress.commit(&group, &topic, 0, 500);
        progress.note_pulled(&group, &topic, 0, (500, 100));
        assert_eq!(progress.commit(&group, &topic, 0, 100), Committed::Stored { before: Some(500) });
    }

    #[test]
    fn a_pending_reset_answers_questions_and_keeps_commits_away_until_it_is_taken() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        progress.commit(&group, &topic, 0, 90);
        progress.reset(&group, &topic, 0, 50);
        progress.reset(&group, &topic, 0, 10);
        assert!(
            progress.has_reset("g", "t") && !progress.has_reset("g", "u") && !progress.has_reset("h", "t")
        );
        assert_eq!(progress.query("g", "t", 0), Some(10));
        assert_eq!(progress.commit(&group, &topic, 0, 91), Committed::Reset);
        assert_eq!(progress.take_reset("g", "t", 0), Some(10));
        assert_eq!(progress.take_reset("g", "t", 0), None);
        assert!(!progress.has_reset("g", "t"));
        assert_eq!(progress.commit(&group, &topic, 0, 11), Committed::Stored { before: Some(10) });
    }

    #[test]
    fn a_client_that_still_commits_what_it_held_comes_back_to_where_a_reset_sent_it() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        progress.commit(&group, &topic, 0, 20);
        progress.reset(&group, &topic, 0, 3);
        assert_eq!(progress.take_reset("g", "t", 0), Some(3));
        assert_eq!(progress.commit(&group, &topic, 0, 20), Committed::Stored { before: Some(3) });
        assert_eq!(progress.commit(&group, &topic, 0, 2), Committed::Backward { before: 20 });
        assert_eq!(progress.commit(&group, &topic, 0, 3), Committed::Stored { before: Some(20) });
        progress.note_pulled(&group, &topic, 0, (3, 20));
        assert_eq!(progress.commit(&group, &topic, 0, 9), Committed::Stored { before: Some(3) });
        assert_eq!(progress.commit(&group, &topic, 0, 8), Committed::Backward { before: 9 });
    }

    #[test]
    fn what_was_pulled_is_known_until_a_reset() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        progress.note_pulled(&group, &topic, 0, (0, 32));
        assert_eq!(progress.pulled("g", "t", 0), Some(32));
        progress.commit(&group, &topic, 0, 40);
        assert_eq!(progress.pulled("g", "t", 0), Some(32));
        assert!(progress.of_topic("g", "t") == BTreeMap::from([(0, 40)]));
        progress.reset(&group, &topic, 0, 7);
        assert_eq!(progress.pulled("g", "t", 0), None);
    }

    #[test]
    fn a_group_that_only_pulled_has_no_progress_in_the_topic() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        progress.note_pulled(&group, &topic, 0, (0, 32));
        assert_eq!((progress.topics_of("g"), progress.groups_of("t")), (vec![], vec![]));
        progress.commit(&group, &topic, 0, 0);
        assert_eq!((progress.topics_of("g"), progress.groups_of("t")), (vec![topic], vec![group]));
    }

    #[test]
    fn the_version_moves_with_every_500th_commit() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        for queue_offset in 0..499 {
            progress.commit(&group, &topic, 0, queue_offset);
        }
        assert_eq!(progress.take_changes(), Some(0));
        assert_eq!(progress.take_changes(), None);
        progress.commit(&group, &topic, 0, 499);
        assert_eq!(progress.take_changes(), Some(1));
    }

    #[test]
    fn a_removed_topic_or_group_takes_its_resets_along() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        progress.reset(&group, &topic, 0, 1);
        progress.commit(&group, &text("other"), 0, 5);
        progress.remove_topic("t");
        assert_eq!((progress.has_reset("g", "t"), progress.topics_of("g")), (false, vec![text("other")]));
        progress.remove_group("g");
        assert_eq!(progress.snapshot().stored().count(), 0);
        assert_eq!(progress.groups_of("other"), Vec::<Text>::new());
    }

    #[test]
    fn a_clone_copies_stored_offsets_of_the_wanted_topic_only() {
        let (mut progress, group) = (Progress::with_room_for(1000), text("g"));
        progress.commit(&group, &text("t"), 3, 30);
        progress.commit(&group, &text("u"), 0, 1);
        progress.clone_group("g", &text("copy"), Some("t"));
        assert_eq!(progress.topics_of("copy"), vec![text("t")]);
        assert_eq!(progress.query("copy", "t", 3), Some(30));
    }

    #[test]
    fn a_full_table_refuses_queues_it_does_not_know_and_moves_those_it_has() {
        let (mut progress, group, topic) = (Progress::with_room_for(2), text("g"), text("t"));
        progress.commit(&group, &topic, 0, 7);
        progress.note_pulled(&group, &topic, 1, (0, 5));
        assert_eq!(progress.commit(&group, &topic, 2, 1), Committed::Full { queues_max: 2 });
        assert!(!progress.reset(&group, &topic, 2, 1) && !progress.clone_group("g", &text("copy"), None));
        progress.note_pulled(&group, &topic, 2, (0, 5));
        assert_eq!((progress.query("g", "t", 2), progress.pulled("g", "t", 2)), (None, None));
        assert_eq!((progress.has_reset("g", "t"), progress.topics_of("copy")), (false, vec![]));
        assert_eq!(progress.commit(&group, &topic, 0, 8), Committed::Stored { before: Some(7) });
        assert!(progress.reset(&group, &topic, 1, 4));
        progress.remove_topic("t");
        assert_eq!(
            progress.commit(&group, &text("u"), 2, 1),
            Committed::Stored { before: None },
            "room again"
        );
    }

    #[test]
    fn stored_lists_committed_offsets_and_leaves_pulled_ones_out() {
        let (mut progress, group, topic) = (Progress::with_room_for(1000), text("g"), text("t"));
        progress.note_pulled(&group, &topic, 1, (0, 5));
        progress.commit(&group, &topic, 0, 9);
        let snapshot = progress.snapshot();
        let stored: Vec<_> = snapshot.stored().map(|(g, t, id, at)| (g.clone(), t.clone(), id, at)).collect();
        assert_eq!(stored, vec![(group, topic, 0, 9)]);
    }
}
