//! How fast the log takes messages of 1 KiB, beside a plain loop that copies and checksums the same bytes and
//! writes them to a file.
//!
//! `cargo bench --bench append` prints one line for each round and the medians. Pages of the file are made
//! while the clock runs, on both sides. What they cost is seen beside: the same plain loop into pages that are in
//! memory, and without a file.
//!
//! Invariants:
//! - both sides see the same bodies, write batches of the same size and end in a file of the same kind.

use std::io::Write;
use std::sync::Arc;

use bytes::BytesMut;
use troupemq_codec::message::NewRecord;
use troupemq_store::segment::{Allocate, SegmentWriter};
use troupemq_store::{AppendBatch, Clock, ConsumeQueue, StoreConfig, SystemClock, open};

const BODY_BYTES: usize = 1024;
const BATCH: usize = 64;
const MESSAGES: usize = 400_000;
const ROUNDS: usize = 7;
const TOPIC: &str = "BenchmarkTopic01";
const PROPERTIES: &[u8] = b"UNIQ_KEY\x017F00000177EA4E0E2F2A939981A20002\x02WAIT\x01true\x02TAGS\x01TagA\x02";

fn main() {
    let clock = SystemClock::new();
    let bodies: Vec<Vec<u8>> = (0..=255).map(|fill| vec![fill; BODY_BYTES]).collect();
    let mut out = std::io::stdout().lock();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let [plain, again, bare] = plain_loops(&clock, &bodies);
        let (whole, append) = log(&clock, &bodies);
        let rates = [plain, whole, append, again, bare].map(|nanos| nanos as f64 / MESSAGES as f64);
        writeln!(
            out,
            "ns/message: plain loop {:.1}, encode + append {:.1}, append alone {:.1}; plain loop into pages in memory \
             {:.1}, without a file {:.1}",
            rates[0], rates[1], rates[2], rates[3], rates[4]
        )
        .expect("the terminal takes a line");
        rounds.push(rates);
    }
    let median = |index: usize| {
        let mut values: Vec<f64> = rounds.iter().map(|rates| rates[index]).collect();
        values.sort_by(f64::total_cmp);
        values[ROUNDS / 2]
    };
    let [plain, whole, append, again, bare] = [0, 1, 2, 3, 4].map(median);
    writeln!(
        out,
        "median: encode + append {:.2} M/s, append alone {:.2} M/s, {:.0} % of the plain loop; the plain loop \
         {:.2} M/s, into pages in memory {:.2} M/s, without a file {:.2} M/s",
        1_000.0 / whole,
        1_000.0 / append,
        100.0 * plain / whole,
        1_000.0 / plain,
        1_000.0 / again,
        1_000.0 / bare
    )
    .expect("the terminal takes a line");
}

/// The plain loop into a new file, into the same file once more, and into none.
fn plain_loops(clock: &SystemClock, bodies: &[Vec<u8>]) -> [u64; 3] {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let segment = || SegmentWriter::create(dir.path(), 0, 1 << 30, Allocate::Now).expect("a segment");
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

/// Encodes batches and appends them; answers the time of both and of appending alone.
fn log(clock: &SystemClock, bodies: &[Vec<u8>]) -> (u64, u64) {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let mut store = open(StoreConfig::in_dir(dir.path()), Arc::new(SystemClock::new())).expect("a store");
    let queue = store.queues.open_or_create(TOPIC, 0).expect("a queue");
    let mut batch = AppendBatch::default();
    let mut append = 0;
    let started = clock.nanos();
    for from in (0..MESSAGES).step_by(BATCH) {
        batch.clear();
        for index in from..from + BATCH {
            push(&mut batch, &bodies[index % bodies.len()], &queue);
        }
        let before = clock.nanos();
        let appended = store.log.append(&mut batch, 1).expect("the log takes the batch");
        append += clock.nanos() - before;
        assert_eq!(appended.records, BATCH);
    }
    (clock.nanos() - started, append)
}

fn push(batch: &mut AppendBatch, body: &[u8], queue: &Arc<ConsumeQueue>) {
    let start = batch.bytes.len();
    record(body).encode(&mut batch.bytes).expect("the record is short");
    batch.push(start, Arc::clone(queue), 1, 0);
}

fn record(body: &[u8]) -> NewRecord<'_> {
    NewRecord { topic: TOPIC, body, properties: &[PROPERTIES], ..NewRecord::PLAIN }
}

fn encoded_len() -> usize {
    let mut bytes = BytesMut::new();
    record(&[0; BODY_BYTES]).encode(&mut bytes).expect("the record is short");
    bytes.len()
}
