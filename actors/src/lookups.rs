//! `Lookups`: where single old messages are read, by their place or by their key.
//!
//! Invariants:
//! - what is not in memory of the log, the index or a queue is read on a thread that may wait, never on an arbiter;
//! - a bounded number run at a time, so that no tool takes all threads that may wait;
//! - the number of those that wait is bounded; one more is refused.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use troupemq_codec::ResponseCode;
use troupemq_store::{Cold, ConsumeQueue, LogReader, StoreError, Unit};

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

    /// Runs a search of the store on a thread that may wait.
    ///
    /// # Errors
    /// If too many wait already, or the disk cannot read what is searched.
    pub async fn search<T: Send + 'static>(
        &self,
        search: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let unreadable = |error: StoreError| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string());
        self.run(search).await?.map_err(unreadable)
    }

    /// The unit that holds the message with this offset.
    ///
    /// # Errors
    /// If it is not in memory and too many look-ups wait already, or the disk cannot read it.
    pub async fn unit(&self, queue: &Arc<ConsumeQueue>, queue_offset: i64) -> Result<Option<Unit>, Refusal> {
        match queue.read_now(queue_offset, 1) {
            Ok(units) => Ok(units.first().copied()),
            Err(Cold) => {
                let queue = queue.clone();
                self.search(move || queue.read_unit(queue_offset)).await
            }
        }
    }

    /// The whole record that begins at `log_offset`; none if no record begins there.
    ///
    /// # Errors
    /// If too many look-ups wait already, or the disk cannot read it.
    pub async fn record(&self, log: &LogReader, log_offset: u64) -> Result<Option<Bytes>, Refusal> {
        match query::record_now(log, log_offset) {
            Ok(record) => Ok(record),
            Err(Cold) => {
                let log = log.clone();
                self.search(move || query::fetch_record(&log, log_offset)).await
            }
        }
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
