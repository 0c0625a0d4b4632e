//! How fast units and index entries are written, and what many queues cost.
//!
//! `cargo bench --bench dispatch` prints the time of a message with and without the index, at first and
//! later, then the time and memory of a million timers and of a start with 40,000 queues.
//!
//! Invariants:
//! - every message has a unique key of its own, as clients send it, and stands in one of 8 queues.

#[path = "ground/said.rs"]
mod said;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use troupemq_codec::message::{NewRecord, fill_holes};
use troupemq_store::commit_log::Appended;
use troupemq_store::consume_queue::Trust;
use troupemq_store::index::Durable;
use troupemq_store::timer::{NewTimer, TimerStore};
use troupemq_store::{
    AppendBatch, Clock, ConsumeQueue, DispatchWriter, QueueTable, StoreConfig, SystemClock, open,
};

use said::said;

const BATCH: usize = 64;
const BATCHES: usize = 10_000;
const QUEUES: usize = 8;
const TOPICS: usize = 10_000;
const TOPIC: &str = "BenchmarkTopic01";
/// What a million timers may take while they wait.
const TIMERS_MAX_KIB: u64 = 200 << 10;

fn main() {
    let clock = SystemClock::new();
    let mut out = std::io::stdout().lock();
    for index_enabled in [false, true] {
        for _ in 0..3 {
            let [fresh, warm] = dispatch(&clock, index_enabled);
            said(writeln!(out, "index {index_enabled}: {fresh:.1} ns/message, later {warm:.1}"));
        }
    }
    if std::env::args().any(|argument| argument == "units") {
        return;
    }
    timers(&clock, &mut out);
    let before = resident_kib();
    let dir = tempfile::tempdir().expect("a folder can be made");
    let config = StoreConfig::in_dir(dir.path());
    let started = clock.nanos();
    let table = QueueTable::load(&config).expect("an empty store");
    for topic in 0..TOPICS {
        for queue in 0..4 {
            table.open_or_create(&format!("Topic{topic:05}"), queue).expect("a queue");
        }
    }
    report(&mut out, "40,000 queues nobody wrote", clock.nanos() - started, before);
    written(&clock, &mut out, dir.path());
}

/// Nanoseconds for a message, in the first and in the second half of the run.
fn dispatch(clock: &SystemClock, index_enabled: bool) -> [f64; 2] {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let config = StoreConfig { index_enabled, ..StoreConfig::in_dir(dir.path()) };
    let table = QueueTable::load(&config).expect("an empty store");
    let queues: Vec<_> = (0..8).map(|id| table.open_or_create(TOPIC, id).expect("a queue")).collect();
    let mut writer = DispatchWriter::open(&config, table, Durable::Everything).expect("a dispatcher");
    let mut log_offset = 0;
    let mut spent = [Vec::with_capacity(BATCHES), Vec::with_capacity(BATCHES)];
    for number in 0..2 * BATCHES {
        let (batch, appended) = batch(&queues, number * BATCH, log_offset);
        log_offset = appended.to;
        let started = clock.nanos();
        writer.dispatch(&batch, &appended).expect("the records follow each other");
        spent[number / BATCHES].push(clock.nanos() - started);
    }
    // The median of the batches: other programs of the machine do not count.
    spent.map(|mut nanos| {
        nanos.sort_unstable();
        nanos[BATCHES / 2] as f64 / BATCH as f64
    })
}

/// A batch as the log leaves it.
fn batch(queues: &[Arc<ConsumeQueue>], first: usize, log_offset: u64) -> (AppendBatch, Appended) {
    let mut batch = AppendBatch::default();
    for number in first..first + BATCH {
        let properties = format!(
            "UNIQ_KEY\x017F00000177EA4E0E2F2A9399{number:08X}\x02WAIT\x01true\x02TAGS\x01TagA\x02\
             CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
        );
        let start = batch.bytes.len();
        let record = NewRecord {
            topic: TOPIC,
            body: &[7; 100],
            properties: &[properties.as_bytes()],
            ..NewRecord::PLAIN
        };
        record.encode(&mut batch.bytes).expect("the record is short");
        batch.push(start, &queues[number % QUEUES], 1, 2_598_919);
    }
    for (index, record) in batch.records.iter_mut().enumerate() {
        record.log_offset = log_offset + u64::from(record.start);
        record.queue_offset = ((first + index) / QUEUES) as i64;
        let bytes = &mut batch.bytes[record.start as usize..record.end()];
        fill_holes(bytes, record.queue_offset, record.log_offset as i64, 1_795_969_000_000);
    }
    let (to, records) = (log_offset + batch.bytes.len() as u64, batch.records.len());
    (batch, Appended { from: log_offset, to, records, refused: None })
}

/// Enters a million timers of the next hour, and takes them.
fn timers(clock: &SystemClock, out: &mut impl Write) {
    const TIMERS: i64 = 1_000_000;
    let now_ms = 1_795_969_000_000;
    let dir = tempfile::tempdir().expect("a folder can be made");
    let config = StoreConfig::in_dir(dir.path());
    let store = open(config.clone(), Arc::new(SystemClock::new())).expect("a store");
    let before = resident_kib();
    let mut timers = TimerStore::open(&config, &store.queues, &store.reader, now_ms).expect("timers");
    let started = clock.nanos();
    for number in 0..TIMERS {
        let due_ms = now_ms + 1_000 + number * 7_919 % 3_600_000;
        let log_offset = number.unsigned_abs() * 300;
        let timer = NewTimer {
            queue_offset: number,
            log_offset,
            size: 300,
            stored_ms: now_ms,
            due_ms,
            is_delete: false,
            topic_hash: 1,
        };
        timers.put(&timer, now_ms).expect("the timer log takes it");
    }
    let put = clock.nanos() - started;
    let waiting_kib = report(out, "1,000,000 timers wait", put, before);
    assert!(
        waiting_kib < TIMERS_MAX_KIB,
        "{waiting_kib} KiB for timers that wait, {TIMERS_MAX_KIB} are the limit"
    );
    let started = clock.nanos();
    timers.flusher().flush(&timers.checkpoint()).expect("the disk takes it");
    report(out, "the same after a flush", clock.nanos() - started, before);
    let started = clock.nanos();
    let mut taken = 0;
    while let Some(slot_ms) = timers.next_due(now_ms + 4_000_000).expect("the disk reads") {
        taken += timers.units(slot_ms).expect("the disk reads").len();
        timers.delivered(slot_ms);
    }
    report(out, &format!("{taken} timers taken"), clock.nanos() - started, before);
}

/// Writes one unit to each of 40,000 queues and starts with them.
fn written(clock: &SystemClock, out: &mut impl Write, dir: &Path) {
    let unit = [0_u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 1];
    for topic in 0..TOPICS {
        for queue in 0..4 {
            let folder = dir.join(format!("consumequeue/Topic{topic:05}/{queue}"));
            std::fs::create_dir_all(&folder).expect("a folder can be made");
            let path = folder.join("00000000000000000000");
            let file = std::fs::File::create(path).expect("a file can be made");
            (&file).write_all(&unit).expect("a unit can be written");
            file.set_len(6_000_000).expect("the file can be sized");
        }
    }
    for trust in [Trust::Clean, Trust::Unclean] {
        let before = resident_kib();
        let started = clock.nanos();
        let table = QueueTable::load(&StoreConfig::in_dir(dir)).expect("the queues are sound");
        table.recover(trust).expect("the queues can be read");
        table.correct_min(0).expect("the queues can be read");
        report(out, &format!("start with 40,000 written queues, {trust:?}"), clock.nanos() - started, before);
    }
}

/// Says what was done; how much more memory there is in use than before.
fn report(out: &mut impl Write, what: &str, nanos: u64, before_kib: u64) -> u64 {
    let (ms, kib) = (nanos / 1_000_000, resident_kib().saturating_sub(before_kib));
    said(writeln!(out, "{what}: {ms} ms, {kib} KiB"));
    kib
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
