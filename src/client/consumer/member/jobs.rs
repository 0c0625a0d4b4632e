//! What a member has asked of brokers beside its own work: commits of its progress, messages it sends back.
//!
//! Invariants:
//! - at most one commit of a queue is under way, so that none overtakes another;
//! - at most [`RETURNS_MAX`] messages are sent back at a time; those that wait for it keep their room in their lane, so
//!   that they are bounded like all that are out.

use std::collections::{BTreeSet, VecDeque};
use std::future::pending;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{LAST_WAIT, Member};
use crate::client::consumer::lane::Lane;
use crate::client::error::ClientError;
use crate::client::message::Received;
use crate::client::queue::Queue;

/// Messages that are sent back at a time.
const RETURNS_MAX: usize = 16;

/// What was asked, and how it went.
#[derive(Debug)]
pub(super) enum Done {
    /// Progress of an assignment of a queue was committed.
    Committed { queue: Queue, lane: u64, queue_offset: i64, told: Result<(), ClientError> },
    /// A message was sent back.
    SentBack { lane: Arc<Lane>, message: Box<Received>, told: Result<(), ClientError> },
}

/// What is under way. It ends with this.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    tasks: JoinSet<Done>,
    /// Messages that are being sent back.
    returns: usize,
    /// Messages that wait for that.
    returning: VecDeque<(Arc<Lane>, Box<Received>)>,
}

impl Jobs {
    /// Has a message sent back.
    pub(super) fn send_back(&mut self, lane: Arc<Lane>, message: Box<Received>) {
        self.returning.push_back((lane, message));
        self.begin_returns();
    }

    fn begin_returns(&mut self) {
        while self.returns < RETURNS_MAX
            && let Some((lane, message)) = self.returning.pop_front()
        {
            self.returns += 1;
            self.tasks.spawn(async move {
                let told = lane.send_back(&message, 0).await;
                Done::SentBack { lane, message, told }
            });
        }
    }

    /// The next that is done; waits while nothing is under way.
    pub(super) async fn next(&mut self) -> Option<Done> {
        let done = match self.tasks.join_next().await {
            None => pending().await,
            Some(Ok(done)) => done,
            Some(Err(error)) => {
                tracing::error!(%error, "what was asked of a broker was cut off");
                return None;
            }
        };
        if matches!(done, Done::SentBack { .. }) {
            self.returns -= 1;
            self.begin_returns();
        }
        Some(done)
    }
}

impl Member {
    pub(super) fn on_done(&mut self, done: Done) {
        match done {
            Done::Committed { queue, lane, queue_offset, told } => {
                let assigned = self.lanes.get_mut(&queue).filter(|assigned| assigned.lane.id == lane);
                let Some(assigned) = assigned else { return };
                assigned.is_committing = false;
                match told {
                    Ok(()) => assigned.progress.committed(queue_offset),
                    Err(error) => tracing::debug!(%queue, queue_offset, %error, "progress not committed"),
                }
            }
            Done::SentBack { lane, message, told: Ok(()) } => {
                self.settled(&lane, message.queue_offset(), message.body().len());
            }
            Done::SentBack { lane, message, told: Err(error) } => {
                tracing::warn!(queue = %lane.queue, %error, "message not sent back, it comes again");
                lane.keep(*message);
            }
        }
    }

    /// Has all progress committed that is news.
    pub(super) fn begin_commits(&mut self) {
        for queue in self.lanes.keys().cloned().collect::<Vec<_>>() {
            self.begin_commit(&queue);
        }
    }

    /// Has the progress of a queue committed if it is news; false while another commit of it is under way.
    fn begin_commit(&mut self, queue: &Queue) -> bool {
        let Some(assigned) = self.lanes.get_mut(queue) else { return true };
        assigned.count_notes();
        if self.settings.broadcast {
            return true;
        }
        if assigned.is_committing {
            return false;
        }
        let Some(queue_offset) = assigned.progress.to_commit() else { return true };
        assigned.is_committing = true;
        let (client, group) = (self.client.clone(), self.settings.group.clone());
        let (queue, lane) = (queue.clone(), assigned.lane.id);
        self.jobs.tasks.spawn(async move {
            let told = client.commit(&group, &queue, queue_offset).await;
            Done::Committed { queue, lane, queue_offset, told }
        });
        true
    }

    /// Commits the progress of queues and waits until it is, all of them together no longer than [`LAST_WAIT`].
    pub(super) async fn commit_now(&mut self, queues: BTreeSet<Queue>) {
        let mut left = queues.clone();
        let committed = async {
            loop {
                left.retain(|queue| !self.begin_commit(queue));
                let is_committing = |queue| self.lanes.get(queue).is_some_and(|queue| queue.is_committing);
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
