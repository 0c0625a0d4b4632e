//! What a delay or a transaction costs and how exact a delay is: plain sends, delay levels, timers and transactions,
//! side by side in one run.
//!
//! `cargo bench --bench delay` prints, for each way, the processor time for each message from its send to its place in
//! its topic (1 KiB bodies), of the broker alone and of broker and producer together, and what that is of a plain send;
//! then how late 10,000 messages were that are due within one second. With a number it measures that often, in turn,
//! and prints the medians.
//!
//! Invariants:
//! - the clock is read when every message stands in its topic; each way has a broker of its own;
//! - the producers share the main thread, where nothing of the broker runs: what other threads spend is the broker's.

#[path = "ground/measure.rs"]
mod measure;
#[path = "ground/roomy.rs"]
mod roomy;

use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::sleep;
use troupemq::{Broker, Decision, Message};
use troupemq_store::{Clock, SystemClock};

use measure::say;

const SENDERS: usize = 256;
const MESSAGES: usize = 100_000;
const EXACT: usize = 10_000;
const BODY_BYTES: usize = 1024;

/// How a message waits, or for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Level,
    Timer,
    /// Half of a transaction, which is committed as soon as it is stored: two requests.
    Transaction,
}

/// Microseconds of processor time for each message.
#[derive(Debug, Clone, Copy)]
struct Spent {
    /// Of producer and broker.
    all: f64,
    broker: f64,
}

impl Spent {
    /// Each for itself.
    fn median(mut spent: Vec<Spent>) -> Spent {
        let middle = spent.len() / 2;
        spent.sort_by(|one, next| one.all.total_cmp(&next.all));
        let all = spent[middle].all;
        spent.sort_by(|one, next| one.broker.total_cmp(&next.broker));
        Spent { all, broker: spent[middle].broker }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(1);
    let ways = [Way::Plain, Way::Level, Way::Timer, Way::Transaction];
    let mut spent = ways.map(|_| Vec::new());
    for _ in 0..rounds {
        for (way, spent) in ways.iter().zip(&mut spent) {
            spent.push(cost(*way).await);
        }
    }
    let [plain, others @ ..] = spent.map(Spent::median);
    let of_both = |spent: &Spent| format!("{:.2} µs of broker and producer together", spent.all);
    say(&format!(
        "plain send: {:.2} µs of the broker's processor time a message, {}",
        plain.broker,
        of_both(&plain)
    ));
    for (way, spent) in ways[1..].iter().zip(others) {
        say(&format!(
            "{way:?}: {:.2} µs of the broker's processor time a message, {:.2} of a plain send; {}, {:.2} of that",
            spent.broker,
            spent.broker / plain.broker,
            of_both(&spent),
            spent.all / plain.all
        ));
    }
    for way in [Way::Level, Way::Timer] {
        exact(way).await;
    }
}

fn now_ms() -> i64 {
    SystemClock::new().now_ms()
}

/// Messages that stand in the topic.
async fn arrived(broker: &Broker) -> i64 {
    let offsets = broker.client().admin().topic_offsets("bench").await.expect("the topic is there");
    offsets.values().map(|offsets| offsets.max_offset).sum()
}

/// What messages cost from their send to their place in their topic.
async fn cost(way: Way) -> Spent {
    let broker = roomy::start(1).await;
    let checker = |_| async { Decision::Commit };
    let producer = broker.producer("bench").checker(checker).start().await.expect("a producer starts");
    let before = measure::Spent::now();
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let (producer, body) = (producer.clone(), Bytes::from(vec![b'x'; BODY_BYTES]));
        senders.spawn(async move {
            for _ in 0..MESSAGES / SENDERS {
                let message = Message::new("bench", body.clone());
                let message = match way {
                    Way::Plain => message,
                    Way::Transaction => {
                        let half = producer.begin(message).await.expect("a half message is stored");
                        half.commit().await.expect("a transaction is committed");
                        continue;
                    }
                    Way::Level => message.delay_level(1),
                    Way::Timer => message.deliver_after(Duration::from_secs(2)),
                };
                producer.send(message).await.expect("a message is stored");
            }
        });
    }
    senders.join_all().await;
    let count = (MESSAGES / SENDERS * SENDERS) as i64;
    while arrived(&broker).await < count {
        sleep(Duration::from_millis(50)).await;
    }
    let spent = measure::Spent::now() - before;
    broker.shutdown().await.expect("a clean end");
    let each = |seconds: f64| seconds * 1e6 / count as f64;
    Spent { all: each(spent.all), broker: each(spent.all - spent.here) }
}

/// Says how late messages are that are due within one second.
async fn exact(way: Way) {
    let broker = roomy::start(1).await;
    let producer = broker.producer("bench").start().await.expect("a producer starts");
    let from_ms = now_ms() + 4_000;
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let producer = producer.clone();
        senders.spawn(async move {
            for number in 0..EXACT / SENDERS {
                // A level is due so long behind its send: the sends are spread over a second instead.
                let at = (number * SENDERS + sender) * 1_000 / EXACT;
                let due_ms = match way {
                    Way::Timer => from_ms + at as i64,
                    _ => {
                        sleep(Duration::from_millis((1_000 * SENDERS / EXACT) as u64)).await;
                        now_ms() + 1_000
                    }
                };
                let message = Message::new("bench", due_ms.to_string());
                let message = match way {
                    Way::Timer => message.deliver_at(due_ms),
                    _ => message.delay_level(1),
                };
                producer.send(message).await.expect("a message is stored");
            }
        });
    }
    senders.join_all().await;
    let consumer = broker.client().consumer("reader").subscribe("bench", "*").from_first().batch_max(256);
    let mut deliveries = consumer.stream().await.expect("a consumer starts");
    let mut late = Vec::new();
    for _ in 0..EXACT / SENDERS * SENDERS {
        let delivery = deliveries.next().await.expect("the stream goes on").expect("nothing is refused");
        let message = delivery.message();
        let due_ms: i64 = String::from_utf8_lossy(message.body()).parse().expect("the body is a time");
        late.push(message.store_timestamp_ms() - due_ms);
        delivery.ack().await.expect("the consumer runs");
    }
    late.sort_unstable();
    let at = |part: usize| late[(late.len() - 1) * part / 100];
    say(&format!(
        "{way:?}, {} due within a second: earliest {} ms, median {} ms, 99 % {} ms, latest {} ms behind its time",
        late.len(),
        at(0),
        at(50),
        at(99),
        at(100)
    ));
    broker.shutdown().await.expect("a clean end");
}
