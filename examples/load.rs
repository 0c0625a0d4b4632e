//! How much a program can send and receive: `cargo run --release --example load -- 1000000` says it for a broker of
//! its own.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use tokio::task::JoinSet;
use tokio::time::Instant;
use troupemq::{Broker, Message};

const BATCH: usize = 100;
const SENDERS: usize = 8;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let count: usize = wanted.unwrap_or(8_000) / (BATCH * SENDERS) * (BATCH * SENDERS);
    let broker = Broker::builder().temporary().start().await?;
    let producer = broker.producer("load").start().await?;

    let begun = Instant::now();
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let producer = producer.clone();
        senders.spawn(async move {
            let batch: Vec<_> = (0..BATCH).map(|_| Message::new("load", vec![b'x'; 100])).collect();
            for _ in 0..count / BATCH / SENDERS {
                producer.send_batch(&batch).await?;
            }
            Ok::<_, troupemq::ClientError>(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("sent {count} messages of 100 bytes, {rate:.0} a second");

    let begun = Instant::now();
    let mut load = broker.consumer("load").subscribe("load", "*").from_first().stream().await?;
    for _ in 0..count {
        load.next().await.ok_or("the stream goes on")??.ack().await?;
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("received them, {rate:.0} a second");
    broker.shutdown().await?;
    Ok(())
}
