//! `Pace`: how many there were, and how many a second lately (RocketMQ: the last TPS of a `PerfCounter`).
//!
//! Invariants:
//! - plain state: time is an argument;
//! - a rate is of whole seconds that are over, [`SPAN_S`] of them; before the start there was nothing.

use std::collections::VecDeque;

/// Seconds over which a rate is told.
const SPAN_S: i64 = 10;

/// A count, and when its last ones came.
#[derive(Debug, Default)]
pub(super) struct Pace {
    total: u64,
    /// How many came in a second (since the epoch), the last one behind.
    seconds: VecDeque<(i64, u64)>,
}

impl Pace {
    /// So many more came.
    pub(super) fn add(&mut self, count: u64, now_ms: i64) {
        let now_s = now_ms.div_euclid(1000);
        self.total += count;
        match self.seconds.back_mut() {
            // A clock that was set back counts as the same second.
            Some((second, so_far)) if *second >= now_s => *so_far += count,
            _ => self.seconds.push_back((now_s, count)),
        }
        while self.seconds.front().is_some_and(|(second, _)| *second < now_s - SPAN_S) {
            self.seconds.pop_front();
        }
    }

    /// How many there were.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many came a second, lately.
    #[expect(clippy::cast_precision_loss, reason = "a rate is told with a few digits")]
    pub(super) fn per_second(&self, now_ms: i64) -> f64 {
        let now_s = now_ms.div_euclid(1000);
        let are_over = |(second, _): &&(i64, u64)| (now_s - SPAN_S..now_s).contains(second);
        let came: u64 = self.seconds.iter().filter(are_over).map(|(_, count)| count).sum();
        came as f64 / SPAN_S as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_ten_seconds_that_are_over() {
        let mut pace = Pace::default();
        for second in 0..30 {
            pace.add(5, second * 1000);
            pace.add(2, second * 1000 + 999);
        }
        let rate = |now_ms| pace.per_second(now_ms);
        assert_eq!([29_999, 30_000, 34_500, 39_999, 40_000].map(rate), [7.0, 7.0, 4.2, 0.7, 0.0]);
        assert_eq!((pace.total(), pace.seconds.len()), (210, 11));
    }

    #[test]
    fn a_clock_that_is_set_back_loses_no_count() {
        let mut pace = Pace::default();
        pace.add(10, 5_000);
        pace.add(30, 1_000);
        assert_eq!((pace.total(), pace.per_second(6_000)), (40, 4.0));
    }
}
