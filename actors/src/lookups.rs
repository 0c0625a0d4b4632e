//! `Lookups`: where single old messages are read, by their place or by their key.
//!
//! Invariants:
//! - a page of the log or of the index that is not in memory is first touched on a thread that may wait, never on an
//!   arbiter;
//! - a bounded number run at a time, so that no tool takes all threads that may wait;
//! - the number of those that wait is bounded; one more is refused.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use troupemq_codec::ResponseCode;
use troupemq_store::LogReader;

use crate::net::Refusal;
use crate::query;

/// Look-ups that run at a time.
const AT_ONCE: usize = 4;
/// Look-ups that run and wait.
const TAKEN_MAX: usize = 1024;

/// Runs look-ups; clones share the bounds.
#[derive(Debug, Clone)]
pub struct Lookups {
    taken: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl Default for Lookups {
    fn default() -> Lookups {
        Lookups { taken: Arc::new(Semaphore::new(TAKEN_MAX)), running: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Lookups {
    /// Runs `look` on a thread that may wait.
    ///
    /// # Errors
    /// If too many wait already: the arbiters must go on.
    pub async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let Ok(_taken) = self.taken.try_acquire() else { return Err(full()) };
        // Neither is ever closed.
        let running =
            self.running.clone().acquire_owned().await.map_err(|_| Refusal::gone("the look-ups"))?;
        let looked = actix_rt::task::spawn_blocking(move || {
            // Who asked may be gone: the place is free when the thread is.
            let _running = running;
            look()
        });
        looked.await.map_err(|_| Refusal::gone("the look-up"))
    }

    /// The whole record that begins at `log_offset`; none if no record begins there.
    ///
    /// # Errors
    /// If too many look-ups wait already, or the disk cannot read it.
    pub async fn record(&self, log: &LogReader, log_offset: u64) -> Result<Option<Bytes>, Refusal> {
        let log = log.clone();
        let read = match query::is_near(&log, log_offset) {
            true => query::near_record(&log, log_offset),
            false => self.run(move || query::fetch_record(&log, log_offset)).await?,
        };
        read.map_err(|error| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string()))
    }
}

fn full() -> Refusal {
    Refusal::busy(format_args!("{TAKEN_MAX} look-ups of messages wait, {AT_ONCE} are served at a time"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[actix_rt::test]
    async fn a_bounded_number_runs_and_waits_and_one_more_is_refused() {
        let lookups = Lookups::default();
        let may_end = Arc::new(AtomicBool::new(false));
        let look = |number| {
            let (lookups, may_end) = (lookups.clone(), may_end.clone());
            let look = move || {
                while !may_end.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                number
            };
            actix::spawn(async move { lookups.run(look).await })
        };
        let asked: Vec<_> = (0..TAKEN_MAX).map(look).collect();
        while lookups.taken.available_permits() > 0 || lookups.running.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = lookups.run(|| ()).await.expect_err("one too many");
        assert_eq!(refused.code, ResponseCode::SYSTEM_BUSY);
        assert!(refused.remark.contains("1024 look-ups of messages wait, 4 are served at a time"));
        may_end.store(true, Ordering::Relaxed);
        for (number, asked) in asked.into_iter().enumerate() {
            assert_eq!(asked.await.expect("it ends"), Ok(number));
        }
        assert_eq!(lookups.run(|| 7).await, Ok(7));
    }
}
