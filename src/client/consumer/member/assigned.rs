//! One queue of a member.
//!
//! Invariants:
//! - it is given away at the latest when it is dropped; what its lane notes later changes nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use troupemq_codec::request::ProcessQueueInfo;

use crate::client::consumer::lane::{Lane, Note};
use crate::client::message::Received;
use crate::client::progress::Progress;

/// A queue that is this member's.
pub(super) struct Assigned {
    pub(super) lane: Arc<Lane>,
    pub(super) progress: Progress,
    /// What the lane has noted and is not counted yet.
    notes: mpsc::UnboundedReceiver<Note>,
    /// Messages that could not be sent back: they keep their room until they come again.
    pub(super) kept: VecDeque<Received>,
    task: AbortHandle,
    /// In order: when the lease of the queue was last taken or renewed.
    pub(super) leased_at: Instant,
}

impl Drop for Assigned {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Assigned {
    /// A queue that is pulled from now on, by a task that notes what becomes of its messages.
    pub(super) fn new(
        lane: Arc<Lane>,
        progress: Progress,
        (notes, task): (mpsc::UnboundedReceiver<Note>, AbortHandle),
    ) -> Assigned {
        let (kept, leased_at) = (VecDeque::new(), Instant::now());
        Assigned { lane, progress, notes, kept, task, leased_at }
    }

    /// Counts what the lane has noted; there is room for what is done with.
    pub(super) fn count_notes(&mut self) {
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
                Note::AllDone { queue_offsets, bytes } => {
                    queue_offsets.iter().for_each(|queue_offset| self.progress.settled(*queue_offset));
                    messages += queue_offsets.len();
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
    pub(super) fn leave(&self) {
        self.lane.give_away();
        self.task.abort();
    }

    /// Whether something of the queue is with the application.
    pub(super) fn is_at_work(&self) -> bool {
        self.lane.is_at_work()
    }

    /// Tells the lane how far its messages are done with.
    pub(super) fn tell_position(&self) {
        self.lane.moved_to(self.progress.position());
    }

    pub(super) fn info(&self) -> ProcessQueueInfo {
        let (messages, bytes) = self.lane.out();
        ProcessQueueInfo {
            cached_msg_count: i32::try_from(messages).unwrap_or(i32::MAX),
            cached_msg_size_in_mi_b: i32::try_from(bytes >> 20).unwrap_or(i32::MAX),
            commit_offset: self.progress.position(),
            ..Default::default()
        }
    }
}
