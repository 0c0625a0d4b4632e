//! `Progress`: how far a long walk over the log is, told now and then.
//!
//! Invariants:
//! - a short walk tells nothing, a long one some twenty times: the log of a start stays readable.

use std::ops::Range;

/// Least bytes between two reports: some seconds of reading.
const STEP_MIN_BYTES: u64 = 1 << 30;
/// Most reports of one walk.
const REPORTS_MAX: u64 = 20;

/// A walk over a part of the log.
#[derive(Debug)]
pub(crate) struct Progress {
    log: Range<u64>,
    step: u64,
    next: u64,
}

impl Progress {
    /// A walk that begins.
    pub(crate) fn over(log: Range<u64>) -> Progress {
        let len = log.end.saturating_sub(log.start);
        let step = len.div_ceil(REPORTS_MAX).max(STEP_MIN_BYTES);
        Progress { next: log.start.saturating_add(step), step, log }
    }

    /// What is to be told when the walk is at `log_offset`: the part that is done, in percent.
    pub(crate) fn at(&mut self, log_offset: u64) -> Option<u64> {
        if log_offset < self.next {
            return None;
        }
        self.next = log_offset.saturating_add(self.step);
        let (done, all) =
            (log_offset.saturating_sub(self.log.start), self.log.end.saturating_sub(self.log.start));
        Some(done.saturating_mul(100) / all.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(log: Range<u64>, record_bytes: u64) -> Vec<u64> {
        let mut progress = Progress::over(log.clone());
        let record_bytes = usize::try_from(record_bytes).expect("a record is short");
        log.step_by(record_bytes).filter_map(|log_offset| progress.at(log_offset)).collect()
    }

    #[test]
    fn a_long_walk_tells_how_far_it_is_and_a_short_one_nothing() {
        assert_eq!(told(5..STEP_MIN_BYTES, 1 << 20), [0_u64; 0]);
        assert_eq!(told(0..4 * STEP_MIN_BYTES, 1 << 20), [25, 50, 75]);
        let very_long = told(7 << 30..507 << 30, 4 << 20);
        assert_eq!((very_long.len(), very_long[0], very_long[18]), (19, 5, 95));
    }
}
