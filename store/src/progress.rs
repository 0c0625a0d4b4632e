//! `Progress`: how far a long walk over the log is, told now and then.
//!
//! Invariants:
//! - to the log of a start a short walk tells nothing, a long one some twenty times: it stays readable;
//! - who draws a bar hears of every percent, as an event of the level `debug`.

use std::ops::Range;

/// Least bytes between two reports to the log: some seconds of reading.
const STEP_MIN_BYTES: u64 = 1 << 30;
/// Most reports of one walk to the log.
const REPORTS_MAX: u64 = 20;
/// Most reports of one walk.
const PERCENTS: u64 = 100;

/// A walk over a part of the log.
#[derive(Debug)]
pub(crate) struct Progress {
    log: Range<u64>,
    /// Of reports to the log.
    seldom: Steps,
    /// Of reports to a bar.
    often: Steps,
}

/// From how much to how much something is told.
#[derive(Debug)]
struct Steps {
    step: u64,
    next: u64,
}

/// What is to be told.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    percent: u64,
    is_for_log: bool,
}

impl Steps {
    fn over(log: &Range<u64>, reports_max: u64, min_bytes: u64) -> Steps {
        let len = log.end.saturating_sub(log.start);
        let step = len.div_ceil(reports_max).max(min_bytes);
        Steps { next: log.start.saturating_add(step), step }
    }

    fn is_due(&mut self, log_offset: u64) -> bool {
        let is_due = log_offset >= self.next;
        if is_due {
            self.next = log_offset.saturating_add(self.step);
        }
        is_due
    }
}

impl Progress {
    /// A walk that begins.
    pub(crate) fn over(log: Range<u64>) -> Progress {
        let seldom = Steps::over(&log, REPORTS_MAX, STEP_MIN_BYTES);
        Progress { seldom, often: Steps::over(&log, PERCENTS, 1), log }
    }

    /// Tells how far the walk is when it is at `log_offset`, if it is time to.
    pub(crate) fn tell(&mut self, log_offset: u64, what: &str) {
        let to = self.log.end;
        match self.at(log_offset) {
            None => {}
            Some(Told { percent, is_for_log: true }) => tracing::info!(percent, log_offset, to, "{what}"),
            Some(Told { percent, is_for_log: false }) => tracing::debug!(percent, log_offset, to, "{what}"),
        }
    }

    fn at(&mut self, log_offset: u64) -> Option<Told> {
        let (is_for_log, is_for_bar) = (self.seldom.is_due(log_offset), self.often.is_due(log_offset));
        if !is_for_log && !is_for_bar {
            return None;
        }
        let (done, all) =
            (log_offset.saturating_sub(self.log.start), self.log.end.saturating_sub(self.log.start));
        Some(Told { percent: done.saturating_mul(100) / all.max(1), is_for_log })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The percents that are told while records of this length are read: to the log, and to a bar.
    fn told(log: Range<u64>, record_bytes: u64) -> (Vec<u64>, Vec<u64>) {
        let mut progress = Progress::over(log.clone());
        let record_bytes = usize::try_from(record_bytes).expect("a record is short");
        let all: Vec<_> =
            log.step_by(record_bytes).filter_map(|log_offset| progress.at(log_offset)).collect();
        let to_log = all.iter().filter(|told| told.is_for_log).map(|told| told.percent).collect();
        (to_log, all.iter().map(|told| told.percent).collect())
    }

    #[test]
    fn a_long_walk_tells_the_log_how_far_it_is_and_a_short_one_nothing() {
        assert_eq!(told(5..STEP_MIN_BYTES, 1 << 20).0, [0_u64; 0]);
        assert_eq!(told(0..4 * STEP_MIN_BYTES, 1 << 20).0, [25, 50, 75]);
        let very_long = told(7 << 30..507 << 30, 4 << 20).0;
        assert_eq!((very_long.len(), very_long[0], very_long[18]), (19, 5, 95));
    }

    #[test]
    fn a_bar_hears_of_every_percent_however_short_the_walk_is() {
        let percents: Vec<u64> = (1..100).collect();
        assert_eq!(told(0..100_000, 100).1, percents);
        assert_eq!(told(0..100 << 30, 1 << 20).1, percents);
        assert_eq!(told(0..4, 1).1, [25, 50, 75]);
        assert_eq!(told(7..7, 1).1, [0_u64; 0]);
    }
}
