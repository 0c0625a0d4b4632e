//! Credits: how many bytes of requests the node takes in before it says no.
//!
//! Invariants:
//! - the bytes of all credits that live never exceed the limit, save that one request larger than the whole
//!   limit is let in when nothing else is (so that a small limit slows a node and does not close it);
//! - a credit gives its bytes back when it is dropped, on whatever thread that happens;
//! - who waits for bytes is told of each credit that is given back, and of none while nobody waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The node-wide purse of bytes in flight; cheap to clone.
#[derive(Debug, Clone)]
pub struct Credits(Arc<Purse>);

#[derive(Debug)]
struct Purse {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    waiting: AtomicUsize,
    given_back: Notify,
}

/// One who waits for bytes.
struct Waiting<'a>(&'a Purse);

/// Some bytes taken from the purse; dropping it returns them.
#[derive(Debug)]
pub struct Credit {
    purse: Arc<Purse>,
    bytes: usize,
}

/// The purse is empty: who asks is answered SYSTEM_BUSY with these figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{used_bytes} of {limit_bytes} bytes of requests in flight")]
pub struct Exhausted {
    /// Bytes in flight when the request came.
    pub used_bytes: usize,
    /// The most that may be in flight.
    pub limit_bytes: usize,
}

impl Credits {
    /// A purse of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Credits {
        let (used_bytes, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Credits(Arc::new(Purse { limit_bytes, used_bytes, waiting, given_back: Notify::new() }))
    }

    /// Takes `bytes`, or says how full the purse is.
    pub fn take(&self, bytes: usize) -> Result<Credit, Exhausted> {
        let purse = &self.0;
        let with = |used: usize| {
            let sum = used.saturating_add(bytes);
            (used == 0 || sum <= purse.limit_bytes).then_some(sum)
        };
        match purse.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, with) {
            Ok(_) => Ok(Credit { purse: purse.clone(), bytes }),
            Err(used_bytes) => Err(Exhausted { used_bytes, limit_bytes: purse.limit_bytes }),
        }
    }

    /// Takes `bytes` as soon as the purse has them.
    pub async fn take_later(&self, bytes: usize) -> Credit {
        let waiting = Waiting::at(&self.0);
        loop {
            let given_back = waiting.0.given_back.notified();
            if let Ok(credit) = self.take(bytes) {
                return credit;
            }
            given_back.await;
        }
    }

    /// Bytes in flight now.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.load(Ordering::Acquire)
    }

    /// Who waits for bytes now.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// The most that may be in flight.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }
}

impl Waiting<'_> {
    fn at(purse: &Purse) -> Waiting<'_> {
        purse.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(purse)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.purse.used_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        // In one order with the steps of who waits: either it sees the bytes, or is seen here.
        if self.purse.waiting.load(Ordering::SeqCst) > 0 {
            self.purse.given_back.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_purse_refuses_and_says_how_full_it_is() {
        let credits = Credits::new(100);
        let first = credits.take(60).expect("fits");
        assert_eq!(credits.take(50).expect_err("too much"), Exhausted { used_bytes: 60, limit_bytes: 100 });
        assert_eq!(credits.used_bytes(), 60);
        drop(first);
        assert_eq!(credits.used_bytes(), 0);
        assert!(credits.take(100).is_ok());
    }

    /// A notice that is lost would leave a thread waiting for ever.
    #[test]
    fn who_waits_for_bytes_gets_them_when_others_give_theirs_back() {
        const TAKERS: usize = 4;
        let credits = Credits::new(100);
        let takers: Vec<_> = (0..TAKERS)
            .map(|taker| {
                let credits = credits.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    for _ in 0..5_000 {
                        drop(runtime.block_on(credits.take_later(60 + taker)));
                    }
                })
            })
            .collect();
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!((credits.used_bytes(), credits.waiting()), (0, 0));
    }

    #[test]
    fn one_request_larger_than_the_purse_passes_alone() {
        let credits = Credits::new(10);
        let large = credits.take(1000).expect("nothing else is in flight");
        assert!(credits.take(1).is_err());
        drop(large);
        assert!(credits.take(1).is_ok());
    }
}
