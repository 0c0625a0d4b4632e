//! What is heard of a server: when it last said something, and who has waited in vain since.
//!
//! The moment is kept for all answers that come together: who gets one need not look at the clock for it.
//!
//! Invariants:
//! - whoever gives up counts until the server says something;
//! - the moment of an answer that was given out is that of its coming, or that of a later one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// What is heard of the server of a connection.
#[derive(Debug)]
pub(crate) struct Heard {
    /// When the connection was made.
    since: Instant,
    /// When the server last said something: µs from there.
    at_us: AtomicU64,
    /// Callers that gave up since.
    in_vain: AtomicUsize,
}

impl Heard {
    /// Nothing yet.
    pub(super) fn new() -> Heard {
        Heard { since: Instant::now(), at_us: AtomicU64::new(0), in_vain: AtomicUsize::new(0) }
    }

    /// The server says something.
    pub(crate) fn note(&self) {
        let us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.at_us.store(us, Ordering::Relaxed);
        self.in_vain.store(0, Ordering::Relaxed);
    }

    /// Somebody gives up.
    pub(super) fn miss(&self) {
        self.in_vain.fetch_add(1, Ordering::Relaxed);
    }

    /// When the server last said something.
    pub(crate) fn at(&self) -> Instant {
        self.since + Duration::from_micros(self.at_us.load(Ordering::Relaxed))
    }

    /// Who gave up since.
    pub(super) fn in_vain(&self) -> usize {
        self.in_vain.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_counts_until_the_server_says_something() {
        let (heard, begun) = (Heard::new(), Instant::now());
        heard.miss();
        heard.miss();
        advance(Duration::from_secs(3)).await;
        assert_eq!((heard.in_vain(), heard.at()), (2, begun));
        heard.note();
        advance(Duration::from_secs(1)).await;
        assert_eq!((heard.in_vain(), heard.at()), (0, begun + Duration::from_secs(3)));
    }
}
