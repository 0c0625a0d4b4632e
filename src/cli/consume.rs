//! `troupemq consume`: messages to lines of standard output.
//!
//! Invariants:
//! - a message is acknowledged only after its line was written;
//! - the command leaves its group in order, also when it is interrupted or terminated.

use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use troupemq::{ClientError, Deliveries, Delivery, Received};

use super::output::Output;
use super::show::Shown;
use super::when::Moment;
use super::{Cluster, Failure};

/// Receive messages: each becomes a line of standard output
#[derive(Debug, Args)]
pub(super) struct Consume {
    #[command(flatten)]
    cluster: Cluster,
    /// Topic to read
    #[arg(long, short)]
    topic: String,
    /// Tags to select, `||` between them
    #[arg(long, value_name = "EXPRESSION", default_value = "*")]
    tags: String,
    /// Consumer group; its progress is kept by the brokers
    #[arg(long, default_value = "troupemq-consume")]
    group: String,
    /// Where a new group begins: first, last, or a time: epoch ms, now, or a span back such as 2h
    #[arg(long, value_name = "WHERE", default_value = "first")]
    from: From,
    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Stop when nothing has come for this long
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Receive all messages, also those other members of the group get
    #[arg(long)]
    broadcast: bool,
    /// Tell in RMQ_SYS_TRACE_TOPIC what happens to the messages
    #[arg(long)]
    trace: bool,
    /// Print a JSON object for each message
    #[arg(long)]
    json: bool,
}

/// Where a new group begins.
#[derive(Debug, Clone, Copy)]
enum From {
    First,
    Last,
    Time(i64),
}

impl std::str::FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<From, String> {
        match text {
            "first" | "earliest" => Ok(From::First),
            "last" | "latest" => Ok(From::Last),
            _ => text
                .parse()
                .map(|Moment(epoch_ms)| From::Time(epoch_ms))
                .map_err(|why| format!("neither first nor last, and {why}")),
        }
    }
}

impl Consume {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.cluster.connect().await?;
        if let Err(ClientError::NoRoute { .. }) = client.queues(&self.topic).await {
            tracing::warn!(topic = %self.topic, "nobody has this topic yet: it is waited for");
        }
        let mut consumer = client.consumer(&self.group).subscribe(&self.topic, &self.tags).trace(self.trace);
        consumer = match self.from {
            From::First => consumer.from_first(),
            From::Last => consumer.from_last(),
            From::Time(epoch_ms) => consumer.from_time(epoch_ms),
        };
        if self.broadcast {
            consumer = consumer.broadcast();
        }
        let mut deliveries = consumer.stream().await?;
        let outcome = tokio::select! {
            outcome = self.print(&mut deliveries) => outcome,
            () = told_to_end() => Ok(()),
        };
        deliveries.shutdown().await;
        client.shutdown().await;
        outcome
    }

    async fn print(&self, deliveries: &mut Deliveries) -> Result<(), Failure> {
        let mut output = Output::new();
        let mut unsettled = Vec::new();
        let mut printed = 0;
        while self.count.is_none_or(|count| printed < count) {
            // Lines are shown when nothing more is there to be read, and only then the messages are done with.
            let next = match timeout(Duration::ZERO, deliveries.next()).await {
                Ok(next) => next,
                Err(_) => {
                    settle(&mut output, &mut unsettled).await?;
                    match self.wait(deliveries).await {
                        Some(next) => next,
                        None => return Ok(()),
                    }
                }
            };
            let Some(delivery) = next else { break };
            let delivery = delivery?;
            self.show(delivery.message(), &mut output)?;
            unsettled.push(delivery);
            printed += 1;
        }
        settle(&mut output, &mut unsettled).await
    }

    async fn wait(&self, deliveries: &mut Deliveries) -> Option<Option<Result<Delivery, ClientError>>> {
        match self.idle {
            Some(seconds) => timeout(Duration::from_secs(seconds), deliveries.next()).await.ok(),
            None => Some(deliveries.next().await),
        }
    }

    fn show(&self, message: &Received, output: &mut Output) -> Result<(), Failure> {
        if !self.json {
            return output.line(message.body());
        }
        output.json(&Shown::of(message))
    }
}

async fn settle(output: &mut Output, unsettled: &mut Vec<Delivery>) -> Result<(), Failure> {
    output.flush()?;
    for delivery in unsettled.drain(..) {
        delivery.ack().await?;
    }
    Ok(())
}

/// Ctrl-C, or what `kill` and containers send.
async fn told_to_end() {
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    match (interrupt, terminate) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without a handler the signal ends the program by itself.
        _ => std::future::pending().await,
    }
}
