//! What a log pays for pages of memory: stores to a mapped file beside writes to it.
//!
//! `cargo bench --bench pages` prints the processor time of a message of 1.2 KiB for batches of several sizes,
//! into a file whose pages are not in memory yet, and once more into the same pages. The time is that of this
//! thread alone, so a busy machine does not count.
//!
//! Invariants:
//! - both ways end with the same bytes in a file of the same kind, all blocks allocated beforehand.

#[path = "ground/said.rs"]
mod said;

use std::io::Write;

use troupemq_store::segment::{Allocate, SegmentWriter};

use said::said;

const FILE_BYTES: u64 = 256 << 20;
const MESSAGE_BYTES: usize = 1229;
const ROUNDS: usize = 5;

fn main() {
    let mut out = std::io::stdout().lock();
    for messages in [1, 16, 64, 256] {
        let batch = vec![7_u8; messages * MESSAGE_BYTES];
        for way in [Way::Map, Way::Write] {
            let mut rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| round(way, &batch)).collect();
            rounds.sort_by(|one, other| one[0].total_cmp(&other[0]));
            let [fresh, again] = rounds[ROUNDS / 2];
            said(writeln!(
                out,
                "batches of {messages:3}, {way:?}: {fresh:.0} ns a message in fresh pages, {again:.0} ns again"
            ));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    /// Stores to the mapped file.
    Map,
    /// `pwrite`.
    Write,
}

/// Nanoseconds of a message in fresh pages and in those that are in memory.
fn round(way: Way, batch: &[u8]) -> [f64; 2] {
    let dir = tempfile::tempdir().expect("a folder can be made");
    [0, 1].map(|_| {
        let mut segment = SegmentWriter::create(dir.path(), 0, FILE_BYTES, Allocate::Now).expect("a segment");
        let before = processor_nanos();
        let mut messages = 0;
        while segment.remaining() > batch.len() {
            match way {
                Way::Map => segment.append(batch).expect("the disk takes it"),
                Way::Write => {
                    segment.write(batch).expect("the disk takes it");
                    segment.publish(segment.position() + batch.len() as u64);
                }
            }
            messages += batch.len() / MESSAGE_BYTES;
        }
        (processor_nanos() - before) as f64 / messages as f64
    })
}

/// Processor time of this thread.
fn processor_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the system counts");
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("the first figure is the time run")
}
