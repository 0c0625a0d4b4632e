//! Counters of a broker, for the runtime information and the metrics.
//!
//! Invariants:
//! - counters only grow; rates are made from two readings by who wants them;
//! - they are raised once per batch or answer, never per message.
//!
//! Contents: `rates` keeps readings. What is counted by topic and group stands in `topic`.

pub mod rates;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::net::wire::End;

/// Upper ends, in ms, of the spans by which sends are counted; the last span has none.
pub const SPANS_MS: [u64; 12] = [0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000];

/// What a broker has done since it started.
#[derive(Debug, Default)]
pub struct Stats {
    puts: Line,
    put_bytes: Line,
    refused_puts: Line,
    put_off: Line,
    system_puts: Line,
    gets: Line,
    get_bytes: Line,
    system_gets: Line,
    pulls: Line,
    found_pulls: Line,
    cold_pulls: Line,
    ignored_commits: Line,
    refused_commits: Line,
    connects: AtomicU64,
    closes: AtomicU64,
    idle_ends: AtomicU64,
    failed_ends: AtomicU64,
    consumer_beats: Beats,
    producer_beats: Beats,
    slowest_put_ms: AtomicU64,
    slowest_get_ms: AtomicU64,
    put_spans: [AtomicU64; SPANS_MS.len() + 1],
}

/// Heart-beats, and how long they took together.
#[derive(Debug, Default)]
struct Beats {
    groups: AtomicU64,
    ms: AtomicU64,
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
    /// Deliveries of delayed messages that failed and are tried again, each time.
    pub put_off: u64,
    /// Of the messages stored, those of the system's own topics.
    pub system_puts: u64,
    /// Messages handed out.
    pub gets: u64,
    /// Of the messages handed out, those of the system's own topics.
    pub system_gets: u64,
    /// Bytes handed out.
    pub get_bytes: u64,
    /// Pulls answered.
    pub pulls: u64,
    /// Pulls answered with messages.
    pub found_pulls: u64,
    /// Pulls that waited for the disk.
    pub cold_pulls: u64,
    /// Commits that went back although nothing asked for it.
    pub ignored_commits: u64,
    /// Commits for which the table of offsets had no room.
    pub refused_commits: u64,
    /// Connections that came.
    pub connects: u64,
    /// Connections that ended.
    pub closes: u64,
    /// Of these, those that were silent too long.
    pub idle_ends: u64,
    /// Of these, those that failed or brought what is no frame.
    pub failed_ends: u64,
    /// Consumer groups in heart-beats, and how long those took, in ms.
    pub consumer_beats: (u64, u64),
    /// Producer groups in heart-beats, and how long those took, in ms.
    pub producer_beats: (u64, u64),
    /// The longest a send took, in ms.
    pub slowest_put_ms: u64,
    /// The longest the reading of a pull took, in ms.
    pub slowest_get_ms: u64,
    /// Messages by how long their send took; see `SPANS_MS`.
    pub put_spans: [u64; SPANS_MS.len() + 1],
}

impl Stats {
    /// Counts a stored batch and how long its sends waited, in nanoseconds.
    pub fn put(&self, messages: usize, bytes: usize, nanos: u64) {
        self.puts.add(messages);
        self.put_bytes.add(bytes);
        let ms = nanos / 1_000_000;
        let span = SPANS_MS.iter().position(|end| ms <= *end).unwrap_or(SPANS_MS.len());
        self.put_spans[span].fetch_add(u64::try_from(messages).unwrap_or(0), Ordering::Relaxed);
        if ms > self.slowest_put_ms.load(Ordering::Relaxed) {
            self.slowest_put_ms.fetch_max(ms, Ordering::Relaxed);
        }
    }

    /// Counts a commit that goes back although nothing asked for it.
    pub fn commit_ignored(&self) {
        self.ignored_commits.add(1);
    }

    /// Counts a connection.
    pub fn connected(&self) {
        self.connects.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection, and why it came.
    pub fn disconnected(&self, end: &End) {
        self.closes.fetch_add(1, Ordering::Relaxed);
        match end {
            End::Idle => _ = self.idle_ends.fetch_add(1, Ordering::Relaxed),
            End::Garbage(_) | End::Socket(_) => _ = self.failed_ends.fetch_add(1, Ordering::Relaxed),
            End::ByPeer | End::ByUs | End::SlowReader => {}
        }
    }

    /// Counts a heart-beat with so many groups of consumers and of producers, which took so long.
    pub fn beat(&self, consumers: usize, producers: usize, ms: u64) {
        self.consumer_beats.add(consumers, ms);
        self.producer_beats.add(producers, ms);
    }

    /// Counts a commit for which the table of offsets has no room.
    pub fn commit_refused(&self) {
        self.refused_commits.add(1);
    }

    /// Counts messages that were refused.
    pub fn refused(&self, messages: usize) {
        self.refused_puts.add(messages);
    }

    /// Counts messages that could not be delivered from their delay yet.
    pub fn put_off(&self, messages: usize) {
        self.put_off.add(messages);
    }

    /// Counts an answered pull.
    pub fn got(&self, messages: usize, bytes: usize) {
        self.pulls.add(1);
        if messages > 0 {
            self.found_pulls.add(1);
            self.gets.add(messages);
            self.get_bytes.add(bytes);
        }
    }

    /// Counts stored messages of a topic of the system's own; they are counted among all too.
    pub fn system_put(&self, messages: usize) {
        self.system_puts.add(messages);
    }

    /// Counts messages of such a topic that were handed out.
    pub fn system_got(&self, messages: usize) {
        self.system_gets.add(messages);
    }

    /// Counts a pull that must wait for the disk.
    pub fn cold_pull(&self) {
        self.cold_pulls.add(1);
    }

    /// Notes how long the reading of a pull took, in nanoseconds.
    pub fn read_took(&self, nanos: u64) {
        let ms = nanos / 1_000_000;
        if ms > self.slowest_get_ms.load(Ordering::Relaxed) {
            self.slowest_get_ms.fetch_max(ms, Ordering::Relaxed);
        }
    }

    /// All counters now.
    pub fn read(&self) -> Reading {
        Reading {
            puts: self.puts.value(),
            put_bytes: self.put_bytes.value(),
            refused_puts: self.refused_puts.value(),
            put_off: self.put_off.value(),
            system_puts: self.system_puts.value(),
            gets: self.gets.value(),
            system_gets: self.system_gets.value(),
            get_bytes: self.get_bytes.value(),
            pulls: self.pulls.value(),
            found_pulls: self.found_pulls.value(),
            cold_pulls: self.cold_pulls.value(),
            ignored_commits: self.ignored_commits.value(),
            refused_commits: self.refused_commits.value(),
            connects: self.connects.load(Ordering::Relaxed),
            closes: self.closes.load(Ordering::Relaxed),
            idle_ends: self.idle_ends.load(Ordering::Relaxed),
            failed_ends: self.failed_ends.load(Ordering::Relaxed),
            consumer_beats: self.consumer_beats.value(),
            producer_beats: self.producer_beats.value(),
            slowest_put_ms: self.slowest_put_ms.load(Ordering::Relaxed),
            slowest_get_ms: self.slowest_get_ms.load(Ordering::Relaxed),
            put_spans: std::array::from_fn(|span| self.put_spans[span].load(Ordering::Relaxed)),
        }
    }
}

impl Beats {
    fn add(&self, groups: usize, ms: u64) {
        if groups > 0 {
            self.groups.fetch_add(u64::try_from(groups).unwrap_or(u64::MAX), Ordering::Relaxed);
            self.ms.fetch_add(ms, Ordering::Relaxed);
        }
    }

    fn value(&self) -> (u64, u64) {
        (self.groups.load(Ordering::Relaxed), self.ms.load(Ordering::Relaxed))
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
        stats.put(3, 300, 900_000);
        stats.put(2, 200, 30_000_000);
        stats.refused(1);
        stats.got(4, 400);
        stats.got(0, 0);
        let reading = stats.read();
        assert_eq!((reading.puts, reading.put_bytes, reading.refused_puts), (5, 500, 1));
        assert_eq!((reading.gets, reading.get_bytes, reading.pulls, reading.found_pulls), (4, 400, 2, 1));
        assert_eq!(reading.put_spans[..3], [3, 0, 2]);
        assert_eq!(reading.slowest_put_ms, 30);
    }
}
