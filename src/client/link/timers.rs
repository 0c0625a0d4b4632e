//! Limits of time for many short waits: a timer that was not needed serves the next.
//!
//! To enter a timer and to take it out again are two visits to the timers of the runtime for each wait; to put off one
//! that is there is none.
//!
//! Invariants:
//! - who waits is woken at his limit at the latest, whatever the timer served for before;
//! - no more than [`SPARE_MAX`] are kept, and each goes off once at most where nobody waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// Timers that are kept.
const SPARE_MAX: usize = 512;

#[expect(
    clippy::disallowed_types,
    reason = "held for a push or a pop, instead of the lock of the runtime's timers"
)]
type Lock<T> = std::sync::Mutex<T>;

/// Timers of one runtime.
#[derive(Debug, Default)]
pub(super) struct Timers(Lock<Vec<Pin<Box<Sleep>>>>);

/// A timer while somebody waits.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    timers: &'a Timers,
    /// Always there until it is given back.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Timers {
    /// A timer for a moment. The present runtime is that of the timers.
    pub(super) fn lend(&self, limit: Instant) -> Lent<'_> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let timer = match spare {
            Some(mut spare) => {
                spare.as_mut().reset(limit);
                spare
            }
            None => Box::pin(sleep_until(limit)),
        };
        Lent { timers: self, timer: Some(timer) }
    }
}

impl Lent<'_> {
    /// Whether the moment has come; who asks is woken when it does.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().map_or(Poll::Pending, |timer| timer.as_mut().poll(context))
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut spare = self.timers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.extend(self.timer.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn spare(timers: &Timers) -> usize {
        timers.0.lock().expect("nobody panicked").len()
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_limit_whatever_its_timer_served_for() {
        let (timers, begun) = (Timers::default(), Instant::now());
        let mut passed = Duration::ZERO;
        for (seconds, is_over_before) in
            [(3, true), (1, false), (60, true), (2, false), (2, false), (1, true), (3, false)]
        {
            let limit = Duration::from_secs(seconds);
            let mut lent = timers.lend(Instant::now() + limit);
            let work = if is_over_before { Duration::from_millis(500) } else { limit * 2 };
            let came = timeout(work, poll_fn(|context| lent.poll(context))).await;
            assert_eq!(came.is_err(), is_over_before, "{seconds} s");
            drop(lent);
            passed += work.min(limit);
            assert_eq!((begun.elapsed(), spare(&timers)), (passed, 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timers_that_are_kept_are_few() {
        let (timers, limit) = (Timers::default(), Instant::now() + Duration::from_secs(1));
        let lent: Vec<_> = (0..2 * SPARE_MAX).map(|_| timers.lend(limit)).collect();
        drop(lent);
        assert_eq!(spare(&timers), SPARE_MAX);
    }
}
