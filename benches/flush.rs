//! What the disk gives: groups of messages of 1.2 KiB, each one `pwrite` and one `fdatasync`, on blocks that were
//! written before.
//!
//! `cargo bench --bench flush` prints groups of 1, 8, 32 and 256: messages a second, and the median and the 99th
//! percentile of a group's time. `benches/compare` sets synchronous flush beside it.
//!
//! Invariants:
//! - the file's length and blocks do not change while the clock runs.

#[path = "ground/said.rs"]
mod said;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use troupemq_store::{Clock, SystemClock};

use said::said;

const MESSAGE_BYTES: usize = 1229;
const FILE_BYTES: usize = 512 << 20;
const STEP_BYTES: usize = 1 << 20;
const NANOS: u64 = 2_000_000_000;

fn main() {
    let clock = SystemClock::new();
    let mut out = std::io::stdout().lock();
    for messages in [1, 8, 32, 256] {
        let mut groups = groups(&clock, &vec![7; messages * MESSAGE_BYTES]);
        let rate = (messages * groups.len()) as f64 * 1e9 / groups.iter().sum::<u64>() as f64;
        groups.sort_unstable();
        let [median, late] = [groups.len() / 2, groups.len() * 99 / 100].map(|at| groups[at] / 1000);
        said(writeln!(out, "groups of {messages}: {rate:.0} messages/s, p50 {median} us, p99 {late} us"));
    }
}

/// How long each group took, in nanoseconds.
fn groups(clock: &SystemClock, group: &[u8]) -> Vec<u64> {
    let mut file: File = tempfile::tempfile().expect("a file can be made");
    for _ in 0..FILE_BYTES / STEP_BYTES {
        file.write_all(&vec![0; STEP_BYTES]).expect("the disk takes it");
    }
    file.sync_all().expect("the disk takes it");
    let began = clock.nanos();
    let mut took = Vec::new();
    let mut at = 0;
    while clock.nanos() - began < NANOS {
        let before = clock.nanos();
        file.write_all_at(group, at).expect("the disk takes it");
        file.sync_data().expect("the disk takes it");
        took.push(clock.nanos() - before);
        at = (at + group.len() as u64) % (FILE_BYTES - group.len()) as u64;
    }
    took
}
