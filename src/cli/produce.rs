//! `troupemq produce`: lines of standard input, or one text, to messages.
//!
//! Invariants:
//! - every line that is not empty is sent, or the command fails and says which was the first that was not; those that
//!   were on their way by then are waited for;
//! - memory is bounded by the number of sends in flight.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::task::JoinSet;
use troupemq::{ClientError, Message, Producer, SendReceipt};

use super::output::Output;
use super::progress::Telling;
use super::{Cluster, Failure};

/// Send messages: each line of standard input, or TEXT
#[derive(Debug, Args)]
pub(super) struct Produce {
    #[command(flatten)]
    cluster: Cluster,
    /// Topic to send to
    #[arg(long, short)]
    topic: String,
    /// Tag of every message
    #[arg(long)]
    tag: Option<String>,
    /// Key of every message; may be repeated
    #[arg(long)]
    key: Vec<String>,
    /// Property of every message; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    property: Vec<Property>,
    /// Send to the queue this ordering key falls on
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Delay level of the broker: 1 is 1 s, 2 is 5 s, 3 is 10 s …
    #[arg(long, value_name = "LEVEL")]
    delay_level: Option<u8>,
    /// Deliver the messages so many milliseconds later
    #[arg(long, value_name = "MS", conflicts_with = "delay_level")]
    delay_ms: Option<u64>,
    /// Producer group
    #[arg(long, default_value = "troupemq-produce")]
    group: String,
    /// Send at most this many lines, or TEXT this many times
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Sends in flight; 1 keeps the order of the lines within a queue
    #[arg(long, value_name = "N", default_value_t = 16)]
    in_flight: usize,
    /// Tell in RMQ_SYS_TRACE_TOPIC what happens to the messages
    #[arg(long)]
    trace: bool,
    /// Print a JSON object for each message
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    telling: Telling,
    /// Body of the message; without it the lines of standard input are sent
    text: Option<String>,
}

/// A property and its value.
#[derive(Debug, Clone)]
struct Property(String, String);

impl std::str::FromStr for Property {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Property, Self::Err> {
        let (name, value) = text.split_once('=').ok_or("NAME=VALUE is wanted")?;
        Ok(Property(name.to_owned(), value.to_owned()))
    }
}

/// What is told about a message that was sent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    message_id: String,
    offset_id: String,
    topic: String,
    broker_name: String,
    queue_id: i32,
    queue_offset: i64,
}

/// What became of the lines so far.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    /// Lines without a body, which no broker takes.
    empty: u64,
    /// The first line that was not sent.
    failed: Option<(u64, ClientError)>,
}

/// The number of a line, and what became of it.
type Done = (u64, Result<SendReceipt, ClientError>);

/// Where bodies come from.
enum Bodies {
    Text(String),
    Lines(Lines<BufReader<Stdin>>),
}

impl Produce {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.cluster.connect().await?;
        let producer = client.producer(&self.group).trace(self.trace).start().await?;
        let mut bodies = match &self.text {
            Some(text) => Bodies::Text(text.clone()),
            None => Bodies::Lines(BufReader::new(tokio::io::stdin()).lines()),
        };
        let default_count = if self.text.is_some() { 1 } else { u64::MAX };
        let count = self.count.unwrap_or(default_count);
        let mut output = Output::new();
        let mut in_flight = JoinSet::new();
        let mut tally = Tally::default();
        let mut progress = self.telling.begin("produce", self.whole());
        for number in 1..=count {
            let Some(body) = bodies.next().await? else { break };
            progress.more(self.part(&body));
            if body.is_empty() {
                tally.empty += 1;
                continue;
            }
            if in_flight.len() >= self.in_flight.max(1) {
                self.report(in_flight.join_next().await, &mut tally, &mut output)?;
            }
            if tally.failed.is_some() {
                break;
            }
            let sending = send(producer.clone(), self.message(body), self.ordering_key.clone());
            in_flight.spawn(async move { (number, sending.await) });
        }
        while !in_flight.is_empty() {
            self.report(in_flight.join_next().await, &mut tally, &mut output)?;
        }
        drop(progress);
        client.shutdown().await;
        if !self.json {
            output.line(tally.said(&self.topic).as_bytes())?;
        }
        output.flush()?;
        let Some((number, cause)) = tally.failed else { return Ok(()) };
        let what = if self.text.is_some() { "message" } else { "line" };
        Err(Failure::Unsent { line: format!("{what} {number}"), cause })
    }

    /// How much there is to send: messages if their number was given, else the bytes of standard input if it is a
    /// file, else 0.
    fn whole(&self) -> u64 {
        match (self.count, &self.text) {
            (Some(count), _) => count,
            (None, Some(_)) => 1,
            (None, None) => input_bytes().unwrap_or(0),
        }
    }

    /// What a body is of it.
    fn part(&self, body: &str) -> u64 {
        match self.count.is_some() || self.text.is_some() {
            true => 1,
            // With the end of its line.
            false => body.len() as u64 + 1,
        }
    }

    fn message(&self, body: String) -> Message {
        let mut message = Message::new(self.topic.as_str(), body);
        if let Some(tag) = &self.tag {
            message = message.tag(tag);
        }
        for key in &self.key {
            message = message.key(key);
        }
        for Property(name, value) in &self.property {
            message = message.with_property(name, value);
        }
        if let Some(level) = self.delay_level {
            message = message.delay_level(level);
        }
        if let Some(ms) = self.delay_ms {
            message = message.deliver_after(Duration::from_millis(ms));
        }
        message
    }

    fn report(
        &self,
        done: Option<Result<Done, tokio::task::JoinError>>,
        tally: &mut Tally,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let Some(done) = done else { return Ok(()) };
        match done.map_err(|cause| Failure::Other(format!("a send was cut off: {cause}")))? {
            (_, Ok(receipt)) => {
                tally.sent += 1;
                if self.json {
                    output.json(&Sent::from(receipt))?;
                }
            }
            (number, Err(cause)) if tally.failed.as_ref().is_none_or(|(first, _)| number < *first) => {
                tally.failed = Some((number, cause));
            }
            (_, Err(_)) => {}
        }
        Ok(())
    }
}

impl Tally {
    fn said(&self, topic: &str) -> String {
        let passed = match self.empty {
            0 => String::new(),
            empty => format!(", {empty} empty lines passed over"),
        };
        format!("sent {} messages to {topic}{passed}", self.sent)
    }
}

/// Bytes of standard input, if it is a file.
fn input_bytes() -> Option<u64> {
    let stat = rustix::fs::fstat(std::io::stdin()).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    u64::try_from(stat.st_size).ok().filter(|_| is_file)
}

async fn send(
    producer: Producer,
    message: Message,
    ordering_key: Option<String>,
) -> Result<SendReceipt, ClientError> {
    match ordering_key {
        Some(key) => producer.send_ordered(&key, message).await,
        None => producer.send(message).await,
    }
}

impl Bodies {
    async fn next(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Bodies::Text(text) => Ok(Some(text.clone())),
            Bodies::Lines(lines) => {
                let io = |cause| Failure::Io { what: "cannot read standard input", cause };
                lines.next_line().await.map_err(io)
            }
        }
    }
}

impl From<SendReceipt> for Sent {
    fn from(receipt: SendReceipt) -> Sent {
        Sent {
            message_id: receipt.message_id,
            offset_id: receipt.offset_id,
            topic: receipt.queue.topic.to_string(),
            broker_name: receipt.queue.broker_name.to_string(),
            queue_id: receipt.queue.queue_id,
            queue_offset: receipt.queue_offset,
        }
    }
}
