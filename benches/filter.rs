//! How fast subscriptions select messages by their stored properties, and pulls by the units of a queue.
//!
//! `cargo bench --bench filter` prints one line for each expression and one for each kind of pull: the median of
//! the rounds.
//!
//! Invariants:
//! - every message of the first part matches, so that no evaluation ends early by luck;
//! - of the messages that are pulled one in a hundred matches, and each pull has the limits of a broker.

#[path = "ground/said.rs"]
mod said;

use std::hint::black_box;
use std::io::Write;

use std::sync::Arc;

use troupemq_actors::BrokerConfig;
use troupemq_actors::pull::check::Selects;
use troupemq_actors::pull::read::{Bounds, Source, read};
use troupemq_codec::filter::{MessageFilter, tags_code};
use troupemq_codec::message::{NewRecord, PropertiesView};
use troupemq_store::{AppendBatch, Clock, ConsumeQueue, LogReader, StoreConfig, SystemClock, open};

use said::said;

const MESSAGES: u32 = 1_000_000;
const ROUNDS: usize = 7;
const PROPERTIES: &[u8] = b"CLUSTER\x01DefaultCluster\x02KEYS\x01order-1\x02MSG_REGION\x01DefaultRegion\x02\
    TAGS\x01TagA\x02TRACE_ON\x01true\x02UNIQ_KEY\x017F0000015B334E0E2F2A939017EE0002\x02WAIT\x01true\x02\
    price\x0130\x02region\x01r1\x02";

fn main() {
    let clock = SystemClock::new();
    let mut out = std::io::stdout().lock();
    let filters = [
        ("TAG", "TagA || TagB"),
        ("SQL92", "price > 20"),
        ("SQL92", "region IN ('r1', 'r2') AND price BETWEEN 5 AND 50"),
    ];
    for (expression_type, expression) in filters {
        let filter =
            MessageFilter::compile(Some(expression_type), expression).expect("the expression compiles");
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| nanos_each(&clock, &filter)).collect();
        rounds.sort_by(f64::total_cmp);
        let median = rounds[ROUNDS / 2];
        let rate = 1000.0 / median;
        said(writeln!(out, "{expression_type} {expression}: {median:.0} ns, {rate:.1} million a second"));
    }
    scans(&clock, &mut out);
}

/// Pulls through a queue in which one message in a hundred is wanted.
fn scans(clock: &SystemClock, out: &mut impl Write) {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let config = StoreConfig { disk_full_percent: 100, ..StoreConfig::in_dir(dir.path()) };
    let mut opened = open(config, Arc::new(SystemClock::new())).expect("a new store");
    let queue = opened.queues.open_or_create("Topic", 0).expect("a queue");
    for first in (0..MESSAGES).step_by(100) {
        let mut batch = hundred(&queue, first);
        let appended = opened.log.append(&mut batch, 1_795_969_000_000).expect("there is room");
        opened.dispatch.dispatch(&batch, &appended).expect("the records follow each other");
    }
    for (expression_type, expression) in [("TAG", "Rare"), ("SQL92", "TAGS = 'Rare'")] {
        let filter =
            MessageFilter::compile(Some(expression_type), expression).expect("the expression compiles");
        let selects = Selects { filter: Arc::new(filter), bits: None };
        let mut rounds: Vec<f64> =
            (0..ROUNDS).map(|_| scan_nanos(clock, (&queue, &opened.reader), &selects)).collect();
        rounds.sort_by(f64::total_cmp);
        let median = rounds[ROUNDS / 2];
        said(writeln!(
            out,
            "pulls by {expression_type}, 1 in 100: {median:.1} ns a unit, {:.1} million units a second",
            1000.0 / median
        ));
    }
}

fn hundred(queue: &Arc<ConsumeQueue>, first: u32) -> AppendBatch {
    let mut batch = AppendBatch::default();
    for number in first..first + 100 {
        let tags = if number % 100 == 50 { "Rare" } else { "Usual" };
        let properties = format!("TAGS\x01{tags}\x02UNIQ_KEY\x017F00000177EA4E0E2F2A9399{number:08X}\x02");
        let start = batch.bytes.len();
        let record = NewRecord {
            topic: "Topic",
            body: &[7; 100],
            properties: &[properties.as_bytes()],
            ..NewRecord::PLAIN
        };
        record.encode(&mut batch.bytes).expect("the record is short");
        batch.push(start, queue, 1, tags_code(tags));
    }
    batch
}

fn scan_nanos(clock: &SystemClock, (units, log): (&ConsumeQueue, &LogReader), selects: &Selects) -> f64 {
    let start = clock.nanos();
    let (mut offset, mut found) = (0, 0);
    while offset < i64::from(MESSAGES) {
        let bounds = Bounds::of(&BrokerConfig::default(), 24 << 30, 0, 32);
        let reading = read(&Source { units, log, selects, bounds }, offset);
        offset = reading.next_offset;
        found += reading.count;
    }
    assert_eq!(found, MESSAGES as usize / 100);
    (clock.nanos() - start) as f64 / f64::from(MESSAGES)
}

fn nanos_each(clock: &SystemClock, filter: &MessageFilter) -> f64 {
    let start = clock.nanos();
    let mut matched = 0_u32;
    for _ in 0..MESSAGES {
        matched += u32::from(black_box(filter).matches(PropertiesView(black_box(PROPERTIES))));
    }
    assert_eq!(matched, MESSAGES);
    (clock.nanos() - start) as f64 / f64::from(MESSAGES)
}
