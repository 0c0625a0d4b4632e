//! How far a group has come in one queue, when messages are settled in any order.
//!
//! Invariants:
//! - what may be committed never passes a message that is not settled;
//! - it never goes back but by [`Progress::restart`];
//! - what the broker told is not committed again: an earlier owner of the queue may have come further meanwhile, with a
//!   commit that was late.

use std::collections::VecDeque;

/// Delivered and settled messages of one queue.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Delivered messages in order of their offsets, from the first that is not settled on.
    delivered: VecDeque<(i64, bool)>,
    /// Where the next pull begins.
    next_offset: i64,
    /// What was committed last.
    committed: Option<i64>,
}

impl Progress {
    /// Nothing delivered yet.
    pub(crate) fn new(next_offset: i64) -> Progress {
        Progress { delivered: VecDeque::new(), next_offset, committed: None }
    }

    /// Nothing delivered yet, and the broker knows that the group is there.
    pub(crate) fn resumed(next_offset: i64) -> Progress {
        Progress { committed: Some(next_offset), ..Progress::new(next_offset) }
    }

    /// Messages were handed out; the next pull begins at `next_offset`.
    pub(crate) fn delivered(&mut self, queue_offsets: impl IntoIterator<Item = i64>, next_offset: i64) {
        self.delivered.extend(queue_offsets.into_iter().map(|queue_offset| (queue_offset, false)));
        self.next_offset = next_offset;
    }

    /// A message is done with; unknown ones, from before a restart, are passed over.
    pub(crate) fn settled(&mut self, queue_offset: i64) {
        let Ok(at) = self.delivered.binary_search_by_key(&queue_offset, |(offset, _)| *offset) else {
            return;
        };
        self.delivered[at].1 = true;
        while self.delivered.front().is_some_and(|(_, is_settled)| *is_settled) {
            self.delivered.pop_front();
        }
    }

    /// The broker moved the queue: goes on from there and forgets what was handed out.
    pub(crate) fn restart(&mut self, next_offset: i64) {
        *self = Progress::new(next_offset);
    }

    /// The first offset that is not done with.
    pub(crate) fn position(&self) -> i64 {
        self.delivered.front().map_or(self.next_offset, |(queue_offset, _)| *queue_offset)
    }

    /// What is to be committed, if that is news.
    pub(crate) fn to_commit(&self) -> Option<i64> {
        let queue_offset = self.position();
        (self.committed != Some(queue_offset)).then_some(queue_offset)
    }

    /// The broker has taken this.
    pub(crate) fn committed(&mut self, queue_offset: i64) {
        self.committed = Some(queue_offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_waits_for_the_first_message_that_is_not_settled() {
        let mut progress = Progress::new(10);
        progress.delivered([10, 12, 13], 20);
        assert_eq!(progress.to_commit(), Some(10));
        progress.settled(12);
        assert_eq!(progress.to_commit(), Some(10));
        progress.settled(10);
        assert_eq!(progress.to_commit(), Some(13));
        progress.settled(13);
        progress.settled(13);
        assert_eq!(progress.to_commit(), Some(20));
    }

    #[test]
    fn nothing_is_committed_twice() {
        let mut progress = Progress::new(3);
        progress.committed(3);
        assert_eq!(progress.to_commit(), None);
        progress.delivered([], 7);
        assert_eq!(progress.to_commit(), Some(7));
    }

    #[test]
    fn where_the_broker_said_to_go_on_is_no_news_to_it() {
        let mut progress = Progress::resumed(7);
        assert_eq!((progress.position(), progress.to_commit()), (7, None));
        progress.delivered([7], 8);
        assert_eq!(progress.to_commit(), None);
        progress.settled(7);
        assert_eq!(progress.to_commit(), Some(8));
    }

    #[test]
    fn a_restart_forgets_what_was_handed_out() {
        let mut progress = Progress::new(0);
        progress.delivered([0, 1], 2);
        progress.restart(100);
        progress.settled(0);
        assert_eq!(progress.to_commit(), Some(100));
    }
}
