//! Credits: how many bytes of requests the node takes in before it says no.
//!
//! Invariants:
//! - the bytes of all credits that live never exceed the limit, save that one request larger than the whole
//!   limit is let in when nothing else is (so that a small limit slows a node and does not close it);
//! - a credit gives its bytes back when it is dropped, on whatever thread that happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The node-wide purse of bytes in flight; cheap to clone.
#[derive(Debug, Clone)]
pub struct Credits(Arc<Purse>);

#[derive(Debug)]
struct Purse {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

/// Some bytes taken from the purse; dropping it returns them.
#[derive(Debug)]
pub struct Credit {
    purse: Arc<Purse>,
    bytes: usize,
}

/// The purse is empty: who asks is answered SYSTEM_BUSY with these figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "[OVERLOAD]system busy, start flow control for a while: {used_bytes} of {limit_bytes} bytes of requests in flight"
)]
pub struct Exhausted {
    /// Bytes in flight when the request came.
    pub used_bytes: usize,
    /// The most that may be in flight.
    pub limit_bytes: usize,
}

impl Credits {
    /// A purse of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Credits {
        Credits(Arc::new(Purse { limit_bytes, used_bytes: AtomicUsize::new(0) }))
    }

    /// Takes `bytes`, or says how full the purse is.
    pub fn take(&self, bytes: usize) -> Result<Credit, Exhausted> {
        let purse = &self.0;
        let before = purse.used_bytes.fetch_add(bytes, Ordering::AcqRel);
        if before > 0 && before.saturating_add(bytes) > purse.limit_bytes {
            purse.used_bytes.fetch_sub(bytes, Ordering::AcqRel);
            return Err(Exhausted { used_bytes: before, limit_bytes: purse.limit_bytes });
        }
        Ok(Credit { purse: purse.clone(), bytes })
    }

    /// Bytes in flight now.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.load(Ordering::Acquire)
    }

    /// The most that may be in flight.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.purse.used_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
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

    #[test]
    fn one_request_larger_than_the_purse_passes_alone() {
        let credits = Credits::new(10);
        let large = credits.take(1000).expect("nothing else is in flight");
        assert!(credits.take(1).is_err());
        drop(large);
        assert!(credits.take(1).is_ok());
    }
}
