//! `troupemq message`: finding what was sent.
//!
//! Invariants:
//! - a message that is not there is told by the exit code, not by an empty table.

use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq::Received;

use super::progress::Telling;
use super::show::Shown;
use super::table::{Row, cut};
use super::when::{self, Moment};
use super::{Asked, Failure};

/// Find messages
#[derive(Debug, Subcommand)]
pub(super) enum Message {
    /// Show the message with an id
    Show(Show),
    /// Find messages by a key
    Find(Find),
}

/// Which message.
#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    asked: Asked,
    /// Topic of the message
    topic: String,
    /// Its id: the producer's, or the one that names its place
    id: String,
}

/// What to look for.
#[derive(Debug, Args)]
pub(super) struct Find {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    telling: Telling,
    /// Topic of the messages
    topic: String,
    /// The key
    #[arg(long, short)]
    key: String,
    /// Stored at this time or later: epoch ms, or a span back such as 2h
    #[arg(long, value_name = "WHEN", default_value = "0")]
    since: Moment,
    /// Stored before this time
    #[arg(long, value_name = "WHEN")]
    until: Option<Moment>,
    /// At most this many from each broker
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(i32).range(1..=4096))]
    max: i32,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Found(Shown);

impl Row for Found {
    const COLUMNS: &'static [&'static str] = &["id", "stored", "broker", "queue", "offset", "tag", "body"];

    fn cells(&self) -> Vec<String> {
        let message = &self.0;
        let body = message.body.as_deref().unwrap_or("(binary)");
        vec![
            message.message_id.clone(),
            when::shown(message.store_timestamp),
            message.broker_name.clone(),
            message.queue_id.to_string(),
            message.queue_offset.to_string(),
            message.tag.clone().unwrap_or_else(|| "-".to_owned()),
            cut(body),
        ]
    }
}

impl Message {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Message::Show(show) => show.run().await,
            Message::Find(find) => find.run().await,
        }
    }
}

impl Show {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let found = admin.message(&self.topic, &self.id).await?;
        let none = || Failure::NotFound(format!("topic {} has no message {}", self.topic, self.id));
        let message = found.ok_or_else(none)?;
        self.asked.form.print_one(&Shown::of(&message), |_| text(&message))
    }
}

/// Everything about a message, a line each, then its body.
fn text(message: &Received) -> String {
    let queue = message.queue();
    let mut lines = vec![
        format!("id            {}", message.message_id()),
        format!("place         {} (log offset {})", message.offset_id(), message.log_offset()),
        format!("topic         {}", message.topic()),
        format!("queue         {} of {}", queue.queue_id, queue.broker_name),
        format!("queue offset  {}", message.queue_offset()),
        format!("born          {}", when::shown(message.born_timestamp_ms())),
        format!("stored        {}", when::shown(message.store_timestamp_ms())),
        format!("sent back     {} times", message.reconsume_times()),
    ];
    lines.extend(message.properties().map(|(name, value)| format!("property      {name} = {value}")));
    lines.push(String::new());
    lines.push(String::from_utf8_lossy(message.body()).into_owned());
    lines.join("\n")
}

impl Find {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let until = self.until.map_or(i64::MAX, |Moment(ms)| ms);
        let mut progress = None;
        let told = |asked: usize, brokers: usize| {
            let (asked, brokers) = (asked as u64, brokers as u64);
            progress.get_or_insert_with(|| self.telling.begin("find", brokers)).to(asked);
        };
        let bounds = ((self.since.0, until), self.max);
        let found = admin.messages_by_key_told(&self.topic, &self.key, bounds, told).await?;
        drop(progress);
        if found.is_empty() {
            let none = format!("topic {} has no message with key {} in that time", self.topic, self.key);
            return Err(Failure::NotFound(none));
        }
        let rows: Vec<_> = found.iter().map(|message| Found(Shown::of(message))).collect();
        self.asked.form.print(&rows)
    }
}
