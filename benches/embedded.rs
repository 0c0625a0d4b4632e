//! How fast a broker within the program is: its start and stop, sends one by one and in batches, and a consumer.
//!
//! `cargo bench --bench embedded` prints the medians; `-- PART` those of one part: start, batches, one-by-one, in-turn
//! or consumer. Bodies have 64 bytes in batches and one by one, 1 KiB where it says so. "One by one" means one request
//! for each message, `SENDERS` of them under way at a time; "in turn" is a single sender that waits for each answer
//! before it sends again, which measures the way between two threads.
//! Rates are given by wall clock and by processor time of the whole process, the broker included. Free on all
//! processors that time holds what processors that share a core take from each other, and what waking a thread on
//! another one takes; what one processor does is told by `taskset -c 0` before the bench, whose lines say so then.
//!
//! Invariants:
//! - every message is acknowledged before the clock is read.

#[path = "ground/measure.rs"]
mod measure;
#[path = "ground/processors.rs"]
mod processors;
#[path = "ground/roomy.rs"]
mod roomy;
#[path = "ground/senders.rs"]
mod senders;

use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;
use troupemq::{Broker, Client, Message, Producer};

use measure::{Spent, say};
use senders::SENDERS;

const BATCH: usize = 256;
const MESSAGES: usize = 1_000_000;
const ROUNDS: usize = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let only = std::env::args().skip(1).find(|argument| argument != "--bench");
    let is_wanted = |part: &str| only.as_ref().is_none_or(|only| only == part);
    if is_wanted("start") {
        start_and_stop().await;
    }
    for bytes in [64, 1024] {
        let count = MESSAGES * 64 / bytes.max(64) * if bytes > 64 { 4 } else { 1 };
        if is_wanted("batches") {
            batches(bytes, count * 4).await;
        }
        if is_wanted("one-by-one") {
            one_by_one(bytes, count / 2).await;
        }
    }
    if is_wanted("in-turn") {
        in_turn(50_000).await;
    }
    if is_wanted("consumer") {
        consumer(MESSAGES).await;
    }
}

async fn start_and_stop() {
    let mut taken = Vec::new();
    for _ in 0..2 * ROUNDS + 1 {
        let begun = Instant::now();
        let broker = Broker::builder().temporary().start().await.expect("a broker starts");
        let started = begun.elapsed();
        let producer = broker.producer("p").start().await.expect("a producer starts");
        producer.send(Message::new("t", "x")).await.expect("a message is stored");
        let begun = Instant::now();
        broker.shutdown().await.expect("a clean end");
        taken.push((started, begun.elapsed()));
    }
    let middle = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1000.0
    };
    let started = middle(taken.iter().map(|(started, _)| *started).collect());
    let stopped = middle(taken.iter().map(|(_, stopped)| *stopped).collect());
    say(&format!("start {started:.1} ms, shutdown {stopped:.1} ms{}", processors::kept()));
}

/// Runs a round some times and says how fast the middle one was.
async fn rounds(what: &str, count: usize, round: impl AsyncFn(&Client)) {
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let broker = roomy::start(4).await;
        let (begun, before) = (Instant::now(), Spent::now());
        round(broker.client()).await;
        let (wall, spent) = (begun.elapsed().as_secs_f64(), Spent::now() - before);
        rates.push((count as f64 / wall, spent));
        broker.shutdown().await.expect("a clean end");
    }
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (by_wall, spent) = rates[ROUNDS / 2];
    let micros = |seconds: f64| seconds * 1e6 / count as f64;
    say(&format!(
        "{what}{}: {:.0} k/s, {:.0} k/s for each core used; {:.2} us a message: {:.2} of the program's thread, {:.2} \
         of the broker's; {:.2} of all that in the kernel",
        processors::kept(),
        by_wall / 1000.0,
        1000.0 / micros(spent.all),
        micros(spent.all),
        micros(spent.here),
        micros(spent.all - spent.here),
        micros(spent.kernel)
    ));
}

async fn producer(client: &Client) -> Producer {
    client.producer("bench").start().await.expect("a producer starts")
}

async fn batches(bytes: usize, count: usize) {
    let body = Bytes::from(vec![b'x'; bytes]);
    rounds(&format!("batches of {BATCH}, {bytes} bytes each"), count, async |client| {
        let producer = producer(client).await;
        let messages: Vec<_> = (0..BATCH).map(|_| Message::new("bench", body.clone())).collect();
        let mut senders = JoinSet::new();
        for _ in 0..4 {
            let (producer, messages) = (producer.clone(), messages.clone());
            senders.spawn(async move {
                for _ in 0..count / BATCH / 4 {
                    producer.send_batch(&messages).await.expect("a batch is stored");
                }
            });
        }
        senders.join_all().await;
    })
    .await;
}

async fn one_by_one(bytes: usize, count: usize) {
    let body = Bytes::from(vec![b'x'; bytes]);
    rounds(&format!("one by one, {SENDERS} at a time, {bytes} bytes"), count, async |client| {
        let body = body.clone();
        let message = move || Message::new("bench", body.clone());
        senders::send(&producer(client).await, count, message).await;
    })
    .await;
}

async fn in_turn(count: usize) {
    rounds("one by one, each after the answer to the last, 64 bytes", count, async |client| {
        let producer = producer(client).await;
        for _ in 0..count {
            producer.send(Message::new("bench", vec![b'x'; 64])).await.expect("a message is stored");
        }
    })
    .await;
}

async fn consumer(count: usize) {
    rounds("batches of 256 sent, consumed and acknowledged, 64 bytes each", count, async |client| {
        let producer = producer(client).await;
        let messages: Vec<_> = (0..BATCH).map(|_| Message::new("bench", vec![b'x'; 64])).collect();
        for _ in 0..count / BATCH {
            producer.send_batch(&messages).await.expect("a batch is stored");
        }
        let consumer = client.consumer("reader").subscribe("bench", "*").from_first().batch_max(256);
        let mut deliveries = consumer.stream().await.expect("a consumer starts");
        for _ in 0..count / BATCH * BATCH {
            let delivery = deliveries.next().await.expect("the stream goes on").expect("nothing is refused");
            delivery.ack().await.expect("the consumer runs");
        }
    })
    .await;
}
