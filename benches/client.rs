//! What the client costs: sends through one connection with many under way, and a push consumer.
//!
//! `cargo bench --bench client -- send NAME_SERVERS [MESSAGES]` sends bodies of 1 KiB one by one, `SENDERS` at a time;
//! `-- consume NAME_SERVERS [MESSAGES]` sends them in batches first, then calls a function for each. The server is
//! another process (`benches/reference.rs`, or a broker), so the processor time is that of the client alone; it has
//! one thread. `taskset -c 0` before it keeps it to one processor, and the lines say so.
//!
//! Invariants:
//! - every message is acknowledged by the server before the clock is read.

#[path = "ground/measure.rs"]
mod measure;
#[path = "ground/processors.rs"]
mod processors;
#[path = "ground/senders.rs"]
mod senders;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use troupemq::{Client, Message, Outcome, Producer};

use measure::{Spent, say};
use senders::SENDERS;

const BATCH: usize = 64;
const MESSAGES: usize = 1_000_000;
const BODY_BYTES: usize = 1024;
const ROUNDS: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(what), Some(names)) = (arguments.next(), arguments.next()) else { return };
    let count = arguments.next().map_or(MESSAGES, |count| count.parse().expect("a number of messages"));
    let client = Client::builder().name_servers(&names).connect().await.expect("the server listens");
    match what.as_str() {
        "send" => send(&client, count).await,
        "consume" => consume(&client, count).await,
        other => panic!("{other} is neither send nor consume"),
    }
}

/// Runs a round some times and says how fast the one in the middle was.
async fn rounds(what: &str, count: usize, round: impl AsyncFn(usize)) {
    let mut rates = Vec::new();
    for n in 0..ROUNDS {
        let (begun, before) = (Instant::now(), Spent::now());
        round(n).await;
        let (wall, spent) = (begun.elapsed().as_secs_f64(), Spent::now() - before);
        rates.push((count as f64 / spent.all, count as f64 / wall, spent.kernel / spent.all));
    }
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (by_core, by_wall, in_kernel) = rates[ROUNDS / 2];
    let line = format!(
        "{what}{}: {:.0} k/s, {:.0} k/s for each core the client used, {:.2} us a message, {:.2} us of it in the \
         kernel",
        processors::kept(),
        by_wall / 1e3,
        by_core / 1e3,
        1e6 / by_core,
        in_kernel * 1e6 / by_core
    );
    say(&line);
}

async fn producer(client: &Client) -> Producer {
    client.producer("bench").no_compression().start().await.expect("a producer starts")
}

async fn send(client: &Client, count: usize) {
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    rounds(&format!("send, {SENDERS} at a time, {BODY_BYTES} bytes"), count, async |_| {
        let body = body.clone();
        let message = move || Message::new("bench", body.clone());
        senders::send(&producer(client).await, count, message).await;
    })
    .await;
}

async fn consume(client: &Client, count: usize) {
    let producer = producer(client).await;
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let batch: Vec<_> = (0..BATCH).map(|_| Message::new("consumed", body.clone())).collect();
    for _ in 0..count / BATCH {
        producer.send_batch(&batch).await.expect("a batch is stored");
    }
    let count = count / BATCH * BATCH;
    rounds(&format!("push consumer, {BODY_BYTES} bytes"), count, async |round| {
        let (done, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, told) = (done.clone(), all.clone());
        let consumer = client.consumer(&format!("bench-{round}")).subscribe("consumed", "*").from_first();
        let listening = consumer.batch_max(256).listen(move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) + 1 == count {
                told.notify_one();
            }
            async { Outcome::Done }
        });
        let listener = listening.await.expect("the consumer starts");
        all.notified().await;
        listener.shutdown().await;
    })
    .await;
}
