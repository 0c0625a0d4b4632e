//! Stores in which Java's broker left messages waiting: ours delivers them, at their times and once.
//!
//! Invariants:
//! - what Java had delivered or cancelled does not come.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use troupemq_codec::loose_json::from_loose;
use troupemq_codec::message::Message;
use troupemq_codec::request::{GetTimerMetrics, TimerMetrics};
use troupemq_store::ManualClock;
use troupemq_store::tables::{TableFile, TimerMetricsTable};
use troupemq_store::testing::GoldenStore;

use super::timer_test::{copy, send, wait_for_count};
use crate::node::NodeHandle;
use crate::testing::{Client, request, start_broker_at, until, wait_for};

/// A little after the last message of the set.
const STOPPED_MS: i64 = 1_795_968_453_800;
const HOUR_MS: i64 = 3_600_000;

fn start(dir: &Path, clock: &Arc<ManualClock>) -> NodeHandle {
    start_broker_at(clock, dir, |part| {
        part.config.broker_cluster_name = "GoldCluster".to_owned();
        part.store.delay_levels = "1s 3s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".to_owned();
    })
}

/// Messages that wait in `delivery-clean`: unique id, topic, queue, when it is due.
const WAITING: &[(&str, &str, i32, i64)] = &[
    ("7F000001461B4E0E2F2A93A7359C002A", "GoldDelay", 0, 1_795_968_468_991),
    ("7F000001461B4E0E2F2A93A734DA0005", "%RETRY%cg_retry", 0, 1_795_968_769_964),
    ("7F000001461B4E0E2F2A93A734F3000B", "%RETRY%cg_retry", 0, 1_795_968_769_972),
    ("7F000001461B4E0E2F2A93A7350F0011", "%RETRY%cg_retry", 0, 1_795_968_769_981),
    ("7F000001461B4E0E2F2A93A735290017", "%RETRY%cg_retry", 0, 1_795_968_769_990),
    ("7F000001461B4E0E2F2A93A79CEA009D", "%RETRY%cg_retry", 0, 1_795_968_795_452),
    ("7F000001461B4E0E2F2A93A79CF4009E", "%RETRY%cg_retry", 0, 1_795_968_795_457),
    ("7F000001461B4E0E2F2A93A79CF7009F", "%RETRY%cg_retry", 0, 1_795_968_795_458),
    // A timer of 3600 s, to the millisecond.
    ("7F000001461B4E0E2F2A93A736DE008B", "GoldDelay", 1, 1_795_972_009_311),
    ("7F000001461B4E0E2F2A93A735A1002B", "GoldDelay", 1, 1_795_975_608_995),
    ("7F000001461B4E0E2F2A93A735A4002C", "GoldDelay", 0, 1_795_975_608_999),
    // 47 h; then 60 h and 71 h, stored anew on their way: due when their slot is over.
    ("7F000001461B4E0E2F2A93A736E0008C", "GoldDelay", 0, 1_796_137_609_313),
    ("7F000001461B4E0E2F2A93A736E2008D", "GoldDelay", 1, 1_796_184_410_000),
    ("7F000001461B4E0E2F2A93A736E4008E", "GoldDelay", 0, 1_796_224_010_000),
];

#[test]
fn what_waits_in_a_store_of_java_goes_on_to_its_end() {
    let golden = GoldenStore::unpack("delivery-clean");
    let clock = Arc::new(ManualClock::at(STOPPED_MS));
    let mut node = start(&golden.dir(), &clock);
    let mut ends: BTreeMap<(&str, i32), i64> = BTreeMap::new();
    let killed = tempfile::tempdir().unwrap();
    for (number, (uniq_key, topic, queue_id, due_ms)) in WAITING.iter().enumerate() {
        let queue = node.broker().unwrap().queues.get(topic, *queue_id).expect("Java's queue");
        let end = *ends.entry((topic, *queue_id)).or_insert_with(|| queue.max_offset());
        clock.advance_to(due_ms - 1);
        // A connection that was silent for long is closed.
        let mut client = Client::of(&node);
        assert_eq!(client.pull(topic, *queue_id, end, "*").code, 19, "{uniq_key} is early");
        clock.advance_to(*due_ms);
        let message = wait_for(&mut client, topic, *queue_id, end);
        assert_eq!(message.properties.get("UNIQ_KEY"), Some(*uniq_key));
        assert!(message.store_timestamp_ms >= *due_ms);
        ends.insert((topic, *queue_id), end + 1);
        if number == 9 {
            // Killed with two long timers on their way.
            copy(&golden.dir(), killed.path());
            node.stop_and_wait().expect("a clean stop");
            node = start(killed.path(), &clock);
        }
    }
    // Recalled with the key alone, as before 5.3.2: due two hours ahead, never delivered.
    let mut client = Client::of(&node);
    for queue_id in 0..2 {
        let end = ends[&("GoldDelay", queue_id)];
        (0..end).for_each(|offset| {
            let answer = client.pull("GoldDelay", queue_id, offset, "*");
            let message = Message::decode_all(answer.body).unwrap().remove(0);
            assert_ne!(message.properties.get("UNIQ_KEY"), Some("7F000001461B4E0E2F2A93A736EF0091"));
        });
    }
    node.stop_and_wait().expect("a clean stop");
}

/// `config/timermetrics`, once its version has gone beyond this one.
fn metrics_behind(dir: &Path, counter: i64) -> TimerMetricsTable {
    let mut table = TimerMetricsTable::default();
    until("the file is written again", || {
        table = TableFile::open(dir).expect("a whole file, whenever it is read").1;
        table.data_version.counter > counter
    });
    table
}

/// 4.4: written while the broker runs, and when it stops; ours goes on with Java's, and with its own.
#[test]
fn the_numbers_of_timers_that_java_left_are_gone_on_with_while_the_broker_runs() {
    let golden = GoldenStore::unpack("delivery-clean");
    let clock = Arc::new(ManualClock::at(STOPPED_MS));
    let java = TableFile::<TimerMetricsTable>::open(&golden.dir()).unwrap().1;
    assert!(java.timing_count.contains_key("GoldDelay"), "{java:?}");
    let waiting = |client: &mut Client| {
        let answer = client.call(request::<GetTimerMetrics>(&Default::default()));
        let told: TimerMetrics = from_loose(&answer.body).unwrap();
        told.timing_count.into_iter().map(|(topic, count)| (topic, count.count)).collect::<BTreeMap<_, _>>()
    };
    let counts = |table: &TimerMetricsTable| {
        table
            .timing_count
            .iter()
            .map(|(topic, metric)| (topic.clone(), metric.count))
            .collect::<BTreeMap<_, _>>()
    };
    let mut node = start(&golden.dir(), &clock);
    let mut counter = java.data_version.counter;
    for round in 0..2_i64 {
        let mut client = Client::of(&node);
        for at in 0..3 {
            send(&mut client, "More", ("TIMER_DELAY_SEC", 7200), &format!("{round} {at}"));
        }
        let all = 3 * (round + 1);
        until("all are entered", || waiting(&mut client).get("More") == Some(&all));
        clock.advance_ms(30_000);
        let table = metrics_behind(&golden.dir(), counter);
        assert_eq!(counts(&table), waiting(&mut client), "while it runs");
        node.stop_and_wait().expect("a clean stop");
        let stopped = TableFile::<TimerMetricsTable>::open(&golden.dir()).unwrap().1;
        assert_eq!(counts(&stopped), counts(&table), "and when it has stopped");
        counter = stopped.data_version.counter;
        node = start(&golden.dir(), &clock);
    }
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn what_was_recalled_at_a_broker_of_java_never_comes() {
    let golden = GoldenStore::unpack("recall");
    let clock = Arc::new(ManualClock::at(1_795_968_381_000));
    let node = start(&golden.dir(), &clock);
    for hours in [2, 30, 59, 61] {
        clock.advance_to(1_795_968_381_000 + hours * HOUR_MS);
        let mut client = Client::of(&node);
        send(&mut client, "Tick", ("TIMER_DELAY_MS", 1), "tick");
        clock.advance_ms(1);
        let ticks = node.broker().unwrap().queues.get("Tick", 0).map_or(0, |queue| queue.max_offset());
        wait_for_count(&mut client, "Tick", ticks + 1);
    }
    let ends = [0, 1].map(|queue_id| {
        node.broker().unwrap().queues.get("GoldRecall", queue_id).map_or(0, |queue| queue.max_offset())
    });
    assert_eq!(ends, [0, 1], "one was delivered by Java, the three others were recalled");
    node.stop_and_wait().expect("a clean stop");
}
