//! How fast the log takes messages of 1 KiB, beside a plain loop that copies and checksums the same bytes and
//! writes them to a file.
//!
//! `cargo bench --bench append` prints one line for each round and the medians. A segment is fresh or recycled. Pages
//! of a fresh one are made while the clock runs, on both sides; those of a recycled one, which all segments of a store
//! are that has come to delete old ones, were made by the thread that prepared it. What pages cost is seen beside:
//! the plain loop into a fresh file, once more into its pages, and without a file.
//!
//! Invariants:
//! - both sides see the same bodies, write batches of the same size and end in a file of the same kind;
//! - the clock runs while the log's own thread works, never while a segment is prepared.

#[path = "ground/said.rs"]
mod said;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use troupemq_codec::message::NewRecord;
use troupemq_store::segment::{Allocate, SegmentWriter};
use troupemq_store::{AppendBatch, Clock, CommitLog, ConsumeQueue, StoreConfig, SystemClock, open};

use said::said;

const BODY_BYTES: usize = 1024;
const BATCH: usize = 64;
const MESSAGES: usize = 400_000;
const ROUNDS: usize = 7;
/// All messages of a round fit into one segment.
const SEGMENT_BYTES: u64 = 512 << 20;
const TOPIC: &str = "BenchmarkTopic01";
const PROPERTIES: &[u8] = b"UNIQ_KEY\x017F00000177EA4E0E2F2A939981A20002\x02WAIT\x01true\x02TAGS\x01TagA\x02";

/// Nanoseconds of a message.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// The plain loop: into fresh pages, into the same again, without a file.
    plain: [f64; 3],
    /// Encoding and appending, and appending alone: into a fresh segment and into a recycled one.
    fresh: [f64; 2],
    recycled: [f64; 2],
}

fn main() {
    let clock = SystemClock::new();
    let bodies: Vec<Vec<u8>> = (0..=255).map(|fill| vec![fill; BODY_BYTES]).collect();
    let mut out = std::io::stdout().lock();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let each = |nanos: u64| nanos as f64 / MESSAGES as f64;
        let plain = plain_loops(&clock, &bodies).map(each);
        let [fresh, recycled] = [false, true].map(|recycled| log(&clock, &bodies, recycled).map(each));
        let round = Round { plain, fresh, recycled };
        said(writeln!(out, "ns/message: {round:.1?}"));
        rounds.push(round);
    }
    let rate = |of: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        1_000.0 / values[ROUNDS / 2]
    };
    let plain = rate(|round| round.plain[0]);
    let whole = rate(|round| round.fresh[0]);
    said(writeln!(
        out,
        "median: encode + append {whole:.2} M/s, append alone {:.2} M/s, {:.0} % of the plain loop; into a recycled \
         segment: both {:.2} M/s, append alone {:.2} M/s; the plain loop {plain:.2} M/s, into pages in memory {:.2} \
         M/s, without a file {:.2} M/s",
        rate(|round| round.fresh[1]),
        100.0 * whole / plain,
        rate(|round| round.recycled[0]),
        rate(|round| round.recycled[1]),
        rate(|round| round.plain[1]),
        rate(|round| round.plain[2]),
    ));
}

/// The plain loop into a new file, into the same file once more, and into none.
fn plain_loops(clock: &SystemClock, bodies: &[Vec<u8>]) -> [u64; 3] {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let segment = || SegmentWriter::create(dir.path(), 0, SEGMENT_BYTES, Allocate::Now).expect("a segment");
    [Some(segment()), Some(segment()), None].map(|segment| plain_loop(clock, bodies, segment))
}

/// Copies and checksums the bytes of each record, and writes those of a batch to a file.
fn plain_loop(clock: &SystemClock, bodies: &[Vec<u8>], mut segment: Option<SegmentWriter>) -> u64 {
    let mut head = vec![0_u8; encoded_len() - BODY_BYTES];
    let mut batch = Vec::with_capacity(BATCH * encoded_len());
    let started = clock.nanos();
    for from in (0..MESSAGES).step_by(BATCH) {
        batch.clear();
        for index in from..from + BATCH {
            let body = &bodies[index % bodies.len()];
            let crc = crc32fast::hash(body);
            head[8..12].copy_from_slice(&crc.to_be_bytes());
            batch.extend_from_slice(&head);
            batch.extend_from_slice(body);
        }
        if let Some(segment) = &mut segment {
            segment.write(&batch).expect("the disk takes it");
            segment.publish(segment.position() + batch.len() as u64);
        }
        std::hint::black_box(&batch);
    }
    clock.nanos() - started
}

/// Encodes batches and appends them to one segment; answers the time of both and of appending alone.
fn log(clock: &SystemClock, bodies: &[Vec<u8>], recycled: bool) -> [u64; 2] {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let config = StoreConfig { log_segment_bytes: SEGMENT_BYTES, ..StoreConfig::in_dir(dir.path()) };
    let mut store = open(config, Arc::new(SystemClock::new())).expect("a store");
    let queue = store.queues.open_or_create(TOPIC, 0).expect("a queue");
    let mut batch = AppendBatch::default();
    if recycled {
        wear_out(dir.path());
        fill_segment(&mut store.log, &mut batch, (bodies, &queue));
    }
    let mut append = 0;
    let started = clock.nanos();
    for from in (0..MESSAGES).step_by(BATCH) {
        append += append_batch(&mut store.log, &mut batch, clock, (from, bodies, &queue));
    }
    [clock.nanos() - started, append]
}

/// Appends messages until the first segment is full and the second one stands ready.
fn fill_segment(
    log: &mut CommitLog,
    batch: &mut AppendBatch,
    (bodies, queue): (&[Vec<u8>], &Arc<ConsumeQueue>),
) {
    let clock = SystemClock::new();
    while log.wrote_to() + ((BATCH + 1) * encoded_len()) as u64 <= SEGMENT_BYTES {
        append_batch(log, batch, &clock, (0, bodies, queue));
    }
    while !log.room_for(usize::MAX).1 {
        std::thread::yield_now();
    }
    append_batch(log, batch, &clock, (0, bodies, queue));
    assert!(log.wrote_to() > SEGMENT_BYTES, "the next segment has begun");
}

/// Makes the file of a segment that was used before and is used no more.
fn wear_out(store: &Path) {
    let dir = store.join("recycled");
    std::fs::create_dir_all(&dir).expect("a folder can be made");
    let mut file = std::fs::File::create(dir.join("00000000000000000000")).expect("a file can be made");
    for _ in 0..SEGMENT_BYTES >> 20 {
        file.write_all(&vec![7; 1 << 20]).expect("the disk takes it");
    }
}

/// Encodes a batch and appends it; answers the time that it took to append.
fn append_batch(
    log: &mut CommitLog,
    batch: &mut AppendBatch,
    clock: &SystemClock,
    (from, bodies, queue): (usize, &[Vec<u8>], &Arc<ConsumeQueue>),
) -> u64 {
    batch.clear();
    for index in from..from + BATCH {
        push(batch, &bodies[index % bodies.len()], queue);
    }
    let before = clock.nanos();
    let appended = log.append(batch, 1).expect("the log takes the batch");
    assert_eq!(appended.records, BATCH);
    clock.nanos() - before
}

fn push(batch: &mut AppendBatch, body: &[u8], queue: &Arc<ConsumeQueue>) {
    let start = batch.bytes.len();
    record(body).encode(&mut batch.bytes).expect("the record is short");
    batch.push(start, queue, 1, 0);
}

fn record(body: &[u8]) -> NewRecord<'_> {
    NewRecord { topic: TOPIC, body, properties: &[PROPERTIES], ..NewRecord::PLAIN }
}

fn encoded_len() -> usize {
    let mut bytes = BytesMut::new();
    record(&[0; BODY_BYTES]).encode(&mut bytes).expect("the record is short");
    bytes.len()
}
