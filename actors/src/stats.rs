//! Counters of a broker, for the runtime information and the metrics.
//!
//! Invariants:
//! - counters only grow; rates are made from two readings by who wants them;
//! - they are raised once per batch or answer, never per message.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a broker has done since it started.
#[derive(Debug, Default)]
pub struct Stats {
    puts: Line,
    put_bytes: Line,
    refused_puts: Line,
    gets: Line,
    get_bytes: Line,
    pulls: Line,
    cold_pulls: Line,
}

/// A counter on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// One reading of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// Messages stored.
    pub puts: u64,
    /// Bytes of stored records.
    pub put_bytes: u64,
    /// Messages refused.
    pub refused_puts: u64,
    /// Messages handed out.
    pub gets: u64,
    /// Bytes handed out.
    pub get_bytes: u64,
    /// Pulls answered.
    pub pulls: u64,
    /// Pulls that waited for the disk.
    pub cold_pulls: u64,
}

impl Stats {
    /// Counts a stored batch.
    pub fn put(&self, messages: usize, bytes: usize) {
        self.puts.add(messages);
        self.put_bytes.add(bytes);
    }

    /// Counts messages that were refused.
    pub fn refused(&self, messages: usize) {
        self.refused_puts.add(messages);
    }

    /// Counts an answered pull.
    pub fn got(&self, messages: usize, bytes: usize) {
        self.pulls.add(1);
        if messages > 0 {
            self.gets.add(messages);
            self.get_bytes.add(bytes);
        }
    }

    /// Counts a pull that must wait for the disk.
    pub fn cold_pull(&self) {
        self.cold_pulls.add(1);
    }

    /// All counters now.
    pub fn read(&self) -> Reading {
        Reading {
            puts: self.puts.value(),
            put_bytes: self.put_bytes.value(),
            refused_puts: self.refused_puts.value(),
            gets: self.gets.value(),
            get_bytes: self.get_bytes.value(),
            pulls: self.pulls.value(),
            cold_pulls: self.cold_pulls.value(),
        }
    }
}

impl Line {
    fn add(&self, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up() {
        let stats = Stats::default();
        stats.put(3, 300);
        stats.put(2, 200);
        stats.refused(1);
        stats.got(4, 400);
        stats.got(0, 0);
        let reading = stats.read();
        assert_eq!((reading.puts, reading.put_bytes, reading.refused_puts), (5, 500, 1));
        assert_eq!((reading.gets, reading.get_bytes, reading.pulls), (4, 400, 2));
    }
}
