//! What a member has asked of brokers beside its own work: commits of its progress, messages it sends back.
//!
//! Invariants:
//! - at most one commit of a queue is under way, whichever assignment of it, so that none overtakes another;
//! - what was asked is known by itself, not by its task: one that is cut off is not done, and holds up nothing;
//! - at most [`RETURNS_MAX`] messages are sent back at a time; those that wait for it keep their room in their lane, so
//!   that they are bounded like all that are out.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::pending;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};
use tokio::time::timeout;
use troupemq_codec::Text;

use super::{LAST_WAIT, Member};
use crate::client::Client;
use crate::client::consumer::lane::Lane;
use crate::client::error::ClientError;
use crate::client::message::Received;
use crate::client::queue::Queue;

/// Messages that are sent back at a time.
const RETURNS_MAX: usize = 16;

/// What was asked.
#[derive(Debug)]
pub(super) enum Job {
    /// To commit progress of an assignment of a queue.
    Commit { queue: Queue, lane: u64, queue_offset: i64 },
    /// To take a message back.
    Return { lane: Arc<Lane>, message: Received },
}

/// What was asked, and how it went.
type Done = (Job, Result<(), ClientError>);

/// What is under way. It ends with this.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    tasks: JoinSet<Result<(), ClientError>>,
    /// What the tasks do.
    asked: HashMap<Id, Job>,
    /// Queues whose progress is being committed.
    committing: BTreeSet<Queue>,
    /// Messages that are being sent back.
    returns: usize,
    /// Messages that wait for that.
    returning: VecDeque<(Arc<Lane>, Received)>,
}

impl Jobs {
    /// Has a message sent back.
    pub(super) fn send_back(&mut self, lane: Arc<Lane>, message: Received) {
        self.returning.push_back((lane, message));
        self.begin_returns();
    }

    fn begin_returns(&mut self) {
        while self.returns < RETURNS_MAX
            && let Some((lane, message)) = self.returning.pop_front()
        {
            self.returns += 1;
            let (by, returned) = (lane.clone(), message.clone());
            let task = self.tasks.spawn(async move { by.send_back(&returned, 0).await });
            self.asked.insert(task.id(), Job::Return { lane, message });
        }
    }

    /// Has progress committed; none of its queue may be under way.
    fn commit(&mut self, (client, group): (Client, Text), queue: Queue, (lane, queue_offset): (u64, i64)) {
        self.committing.insert(queue.clone());
        let committed = queue.clone();
        let task = self.tasks.spawn(async move { client.commit(&group, &committed, queue_offset).await });
        self.asked.insert(task.id(), Job::Commit { queue, lane, queue_offset });
    }

    /// The next that is done; waits while nothing is under way. What was cut off counts as not done.
    pub(super) async fn next(&mut self) -> Option<Done> {
        let (id, told) = match self.tasks.join_next_with_id().await {
            None => pending().await,
            Some(Ok(done)) => done,
            Some(Err(error)) => {
                tracing::error!(%error, "what was asked of a broker was cut off");
                (error.id(), Err(ClientError::ShutDown { what: "task" }))
            }
        };
        let job = self.asked.remove(&id)?;
        match &job {
            Job::Commit { queue, .. } => drop(self.committing.remove(queue)),
            Job::Return { .. } => {
                self.returns -= 1;
                self.begin_returns();
            }
        }
        Some((job, told))
    }
}

impl Member {
    pub(super) fn on_done(&mut self, (job, told): Done) {
        match (job, told) {
            (Job::Commit { queue, lane, queue_offset }, Ok(())) => {
                let assigned = self.lanes.get_mut(&queue).filter(|assigned| assigned.lane.id == lane);
                if let Some(assigned) = assigned {
                    assigned.progress.committed(queue_offset);
                }
            }
            (Job::Commit { queue, queue_offset, .. }, Err(error)) => {
                tracing::debug!(%queue, queue_offset, %error, "progress not committed");
            }
            (Job::Return { lane, message }, Ok(())) => {
                self.settled(&lane, message.queue_offset(), message.body().len());
            }
            (Job::Return { lane, message }, Err(error)) => {
                tracing::warn!(queue = %lane.queue, %error, "message not sent back, it comes again");
                lane.keep(message);
            }
        }
    }

    /// Has all progress committed that is news.
    pub(super) fn begin_commits(&mut self) {
        for queue in self.lanes.keys().cloned().collect::<Vec<_>>() {
            self.begin_commit(&queue);
        }
    }

    /// Has the progress of a queue committed if it is news; false while another commit of it is under way, also one of
    /// an earlier assignment.
    pub(super) fn begin_commit(&mut self, queue: &Queue) -> bool {
        let Some(assigned) = self.lanes.get_mut(queue) else { return true };
        assigned.count_notes();
        if self.settings.broadcast {
            return true;
        }
        if self.jobs.committing.contains(queue) {
            return false;
        }
        if let Some(queue_offset) = assigned.progress.to_commit() {
            let (lane, whose) = (assigned.lane.id, (self.client.clone(), self.settings.group.clone()));
            self.jobs.commit(whose, queue.clone(), (lane, queue_offset));
        }
        true
    }

    /// Commits the progress of queues and waits until it is, all of them together no longer than [`LAST_WAIT`].
    pub(super) async fn commit_now(&mut self, queues: BTreeSet<Queue>) {
        let mut left = queues.clone();
        let committed = async {
            loop {
                left.retain(|queue| !self.begin_commit(queue));
                let is_committing = |queue: &Queue| self.jobs.committing.contains(queue);
                if left.is_empty() && !queues.iter().any(is_committing) {
                    return;
                }
                if let Some(done) = self.jobs.next().await {
                    self.on_done(done);
                }
            }
        };
        if timeout(LAST_WAIT, committed).await.is_err() {
            let group = &self.settings.group;
            tracing::warn!(%group, within = ?LAST_WAIT, "not all progress is committed, messages come again");
        }
    }

    /// Writes down how far a broadcast has come, if that is news.
    pub(super) async fn save_file(&mut self) {
        if !self.settings.broadcast {
            return;
        }
        let mut is_news = false;
        for (queue, assigned) in &self.lanes {
            is_news |= self.file.set(queue, assigned.progress.position());
        }
        if is_news && let Err(error) = self.file.save().await {
            tracing::warn!(%error, "offsets not saved");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_commit_that_is_cut_off_is_not_done_and_the_next_may_begin() {
        let mut jobs = Jobs::default();
        let queue = Queue { topic: "t".into(), broker_name: "b".into(), queue_id: 0 };
        let task = jobs.tasks.spawn(pending());
        jobs.committing.insert(queue.clone());
        jobs.asked.insert(task.id(), Job::Commit { queue, lane: 1, queue_offset: 7 });
        task.abort();
        let (job, told) = jobs.next().await.expect("it is known what was cut off");
        assert!(matches!(job, Job::Commit { queue_offset: 7, .. }), "{job:?}");
        told.expect_err("nobody knows whether the broker has it");
        assert!(jobs.committing.is_empty() && jobs.asked.is_empty());
    }
}
