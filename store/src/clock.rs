//! Time, asked for in one place so that tests can set it.
//!
//! Invariants:
//! - nothing else in the store reads a clock of the system;
//! - `now_ms` may step back with the wall clock, `nanos` never does.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Source of time.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// Nanoseconds since some fixed moment, never going back.
    fn nanos(&self) -> u64;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock whose `nanos` count from now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]
    pub fn new() -> SystemClock {
        SystemClock { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
    nanos: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn at(now_ms: i64) -> ManualClock {
        ManualClock { now_ms: AtomicI64::new(now_ms), nanos: AtomicU64::new(0) }
    }

    /// Moves both clocks on by `ms` milliseconds.
    pub fn advance_ms(&self, ms: u32) {
        self.now_ms.fetch_add(i64::from(ms), Ordering::Relaxed);
        self.nanos.fetch_add(u64::from(ms) * 1_000_000, Ordering::Relaxed);
    }

    /// Moves the clock forward to a time; one that is past already leaves it where it is.
    pub fn advance_to(&self, now_ms: i64) {
        let ahead_ms = now_ms.saturating_sub(self.now_ms.load(Ordering::Relaxed));
        self.advance_ms(u32::try_from(ahead_ms.max(0)).unwrap_or(u32::MAX));
    }

    /// Sets the wall clock alone, also back.
    pub fn turn_to_ms(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::at(1_000);
        clock.advance_ms(5);
        clock.turn_to_ms(10);
        assert_eq!((clock.now_ms(), clock.nanos()), (10, 5_000_000));
    }

    #[test]
    fn the_system_clock_shows_a_time_after_this_was_written() {
        let clock = SystemClock::new();
        assert!(clock.now_ms() > 1_700_000_000_000);
        assert!(clock.nanos() <= clock.nanos());
    }
}
