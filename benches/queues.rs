//! What topics cost that nobody reads: memory and start of a broker that keeps 10,000 topics of 4 queues each.
//!
//! `cargo bench --bench queues` makes a store with one message in each queue, and prints what the first message of a
//! queue takes. Then it starts a broker on it, and one on an empty store, each in a process of its own, and prints a
//! line for each: how long it took until it served, and the memory that was resident then.
//!
//! Invariants:
//! - what is measured has done nothing but start: the store was made by another process.

#[path = "ground/said.rs"]
mod said;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use tokio::task::JoinSet;
use tokio::time::Instant;
use troupemq::{Broker, Message, Queue, Text};
use troupemq_actors::topic::TopicChange;
use troupemq_actors::topics::ChangeTopics;
use troupemq_codec::topic::{PERM_READ, PERM_WRITE, TopicConfig};

use said::said;

const TOPICS: usize = 10_000;
const QUEUES: i32 = 4;
const SENDERS: usize = 64;
const BROKER: &str = "many";
/// The parts: make the store; start on it and stop in order; start on it and be gone at once.
const FILL: &str = "fill";
const STOP: &str = "stop";
const ABORT: &str = "abort";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [FILL, dir, _] => fill(dir).await,
        [STOP, dir, what] => measure(dir, what).await.shutdown().await.expect("a clean end"),
        [ABORT, dir, what] => {
            measure(dir, what).await;
            std::process::abort();
        }
        _ => all(),
    }
}

/// Runs each part in a process of its own.
fn all() {
    let [empty, full] = [(); 2].map(|()| tempfile::tempdir().expect("a folder can be made"));
    run(STOP, empty.path(), "an empty store");
    run(FILL, full.path(), "");
    run(ABORT, full.path(), "10,000 topics of 4 queues");
    run(STOP, full.path(), "the same after a kill");
}

fn run(part: &str, dir: &Path, what: &str) {
    let itself = std::env::current_exe().expect("the program has a file");
    let ended =
        Command::new(itself).arg(part).arg(dir).arg(what).status().expect("the program can be started");
    assert_eq!(ended.success(), part != ABORT, "{part} ended with {ended}");
}

async fn start(dir: impl AsRef<Path>) -> Broker {
    Broker::builder().store_dir(dir.as_ref()).broker_name(BROKER).start().await.expect("a broker starts")
}

/// Starts a broker and says what it took.
async fn measure(dir: &str, what: &str) -> Broker {
    let begun = Instant::now();
    let broker = start(dir).await;
    let (ms, mib) = (begun.elapsed().as_millis(), resident_kib() / 1024);
    say(&format!("{what}: serves after {ms} ms, {mib} MiB resident"));
    broker
}

fn say(line: &str) {
    said(writeln!(std::io::stdout().lock(), "{line}"));
}

fn name(topic: usize) -> Text {
    Text::from(format!("Topic{topic:05}").as_str())
}

/// Makes the topics and puts a message into each queue.
async fn fill(dir: &str) {
    let broker = start(dir).await;
    let change = |topic| TopicChange {
        config: TopicConfig {
            topic_name: name(topic),
            read_queue_nums: QUEUES,
            write_queue_nums: QUEUES,
            perm: PERM_READ | PERM_WRITE,
            ..TopicConfig::default()
        },
        attributes: Text::default(),
    };
    let changes = ChangeTopics((0..TOPICS).map(change).collect());
    let made = broker.topics::<ChangeTopics>().send(changes).await.expect("the broker runs");
    made.expect("the topics are made");
    let begun = Instant::now();
    let producer = broker.producer("bench").start().await.expect("a producer starts");
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let producer = producer.clone();
        senders.spawn(async move {
            for topic in (sender..TOPICS).step_by(SENDERS).map(name) {
                for queue_id in 0..QUEUES {
                    let queue = Queue { topic: topic.clone(), broker_name: Text::from(BROKER), queue_id };
                    producer.send_to(&queue, Message::new(topic.clone(), "x")).await.expect("it is stored");
                }
            }
        });
    }
    senders.join_all().await;
    let each = begun.elapsed().as_micros() / (TOPICS as u128 * u128::from(QUEUES.unsigned_abs()));
    say(&format!(
        "the first message of each of {TOPICS} topics of {QUEUES} queues: {each} us, {SENDERS} at a time"
    ));
    broker.shutdown().await.expect("a clean end");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
