//! Sends that take long, told with the time that each stage took.
//!
//! Invariants:
//! - one that took half a second or more is told; of many at once one in a second, with the number of the others;
//! - a batch is looked at the clock for three times, a message never.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

/// From when on a send counts as slow, in ns: half a second is longer than any flush of a healthy disk.
const SLOW_NANOS: u64 = 500_000_000;
/// At most one is told in this time, in ns.
const TELL_EVERY_NANOS: u64 = 1_000_000_000;

/// When a batch reached its stages, in monotonic nanoseconds; 0 for one that it did not reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// It was handed to the log.
    pub began: u64,
    /// It was in the log.
    pub written: u64,
    /// Consumers could see it.
    pub visible: u64,
}

/// Where a slow send spent its time, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowSend {
    /// Altogether.
    pub total_ms: u64,
    /// Until it was in the log: for its turn, for a segment, for the write.
    pub log_ms: u64,
    /// Until its units were in their queues.
    pub queues_ms: u64,
    /// Until the disk had it, where that was waited for, and it was answered.
    pub flush_ms: u64,
}

/// The slow sends of one broker.
#[derive(Debug, Default)]
pub struct SlowSends {
    told_at: AtomicU64,
    untold: AtomicU64,
    last: ArcSwapOption<SlowSend>,
}

impl Stages {
    /// Where the time went if it was long; a stage that was not reached has none.
    fn slow(&self, ended: u64) -> Option<SlowSend> {
        let nanos = ended.saturating_sub(self.began);
        if nanos < SLOW_NANOS {
            return None;
        }
        let ms = |from: u64, to: u64| if from == 0 { 0 } else { to.saturating_sub(from) / 1_000_000 };
        let or_end = |at: u64| if at == 0 { ended } else { at };
        Some(SlowSend {
            total_ms: nanos / 1_000_000,
            log_ms: or_end(self.written).saturating_sub(self.began) / 1_000_000,
            queues_ms: ms(self.written, or_end(self.visible)),
            flush_ms: ms(self.visible, ended),
        })
    }
}

impl SlowSends {
    /// Notes a batch of `peer` that was answered, and tells it if it took long.
    pub(crate) fn note(&self, stages: &Stages, ended: u64, peer: SocketAddr) {
        let Some(slow) = stages.slow(ended) else { return };
        let Some(untold) = self.tells(slow, ended) else { return };
        let SlowSend { total_ms, log_ms, queues_ms, flush_ms } = slow;
        tracing::warn!(%peer, total_ms, log_ms, queues_ms, flush_ms, untold, "a send took long");
    }

    /// The last one that took long.
    pub fn last(&self) -> Option<SlowSend> {
        self.last.load().as_deref().copied()
    }

    /// If this one is to be told: how many were not since the last that was.
    fn tells(&self, slow: SlowSend, now: u64) -> Option<u64> {
        self.last.store(Some(slow.into()));
        let told_at = self.told_at.load(Ordering::Relaxed);
        let is_due = told_at == 0 || now.saturating_sub(told_at) >= TELL_EVERY_NANOS;
        // Of several arbiters that come at once one tells.
        let takes = || self.told_at.compare_exchange(told_at, now, Ordering::Relaxed, Ordering::Relaxed);
        if is_due && takes().is_ok() {
            return Some(self.untold.swap(0, Ordering::Relaxed));
        }
        self.untold.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_slow_send_is_told_with_the_time_of_each_stage_that_it_reached() {
        let stages = Stages { began: 10 * MS, written: 40 * MS, visible: 100 * MS };
        assert_eq!(stages.slow(509 * MS), None);
        let slow = SlowSend { total_ms: 500, log_ms: 30, queues_ms: 60, flush_ms: 410 };
        assert_eq!(stages.slow(510 * MS), Some(slow));
        let held = Stages { written: 0, visible: 0, ..stages };
        let slow = SlowSend { total_ms: 600, log_ms: 600, queues_ms: 0, flush_ms: 0 };
        assert_eq!(held.slow(610 * MS), Some(slow), "it never came into the log");
    }

    #[test]
    fn of_many_slow_sends_one_in_a_second_is_told_with_the_number_of_the_others() {
        let sends = SlowSends::default();
        let slow = SlowSend { total_ms: 500, log_ms: 1, queues_ms: 2, flush_ms: 3 };
        let told: Vec<_> = [1, 2, 1_000, 1_001, 1_002].map(|ms| sends.tells(slow, ms * MS)).into();
        assert_eq!(told, [Some(0), None, None, Some(2), None]);
        assert_eq!(sends.last(), Some(slow));
    }
}
