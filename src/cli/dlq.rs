//! `troupemq dlq`: messages that a group gave up.
//!
//! Invariants:
//! - a dead letter that was resent stays where it is; how far a queue was resent is kept by the broker, as the
//!   progress of the tools' group, so that the next `resend` goes on behind it;
//! - a resent letter goes to the retry topic of its group, so that no other group gets it again;
//! - what is resent is a plain message, whatever it was: its delay is over, its transaction decided;
//! - nothing is deleted without `--yes`.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq::{Client, Queue};
use troupemq_codec::Text;
use troupemq_codec::message::properties::{
    DELAY, PRODUCER_GROUP, REAL_QUEUE_ID, REAL_TOPIC, RETRY_TOPIC, TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED,
};
use troupemq_codec::message::{Message, sys_flag};
use troupemq_codec::request::{SendMessageV2, SendMessageV2Header};
use troupemq_codec::topic::{DEAD_LETTER_PREFIX, RETRY_PREFIX};

use super::progress::Telling;
use super::table::{Row, cut};
use super::waiting::{TOOLS, queues, read};
use super::{Asked, Failure, confirmed, when};

/// Properties of the ways a letter went before: with them it would go one of those again.
const WAYS: [&str; 6] =
    [DELAY, REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED, TRANSACTION_CHECK_TIMES, PRODUCER_GROUP];

/// Look at, resend and delete messages that consumer groups gave up
#[derive(Debug, Subcommand)]
pub(super) enum Dlq {
    /// List the groups that have dead letters
    List(List),
    /// Show the dead letters of a group
    Show(Show),
    /// Give dead letters to their group once more
    Resend(Resend),
    /// Delete all dead letters of a group
    Purge(Purge),
}

/// What to list.
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    asked: Asked,
}

/// Whose letters.
#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    asked: Asked,
    /// Name of the group
    group: String,
    /// At most this many of each queue, the oldest first
    #[arg(long, value_name = "N", default_value_t = 100)]
    max: usize,
}

/// Which letters.
#[derive(Debug, Args)]
pub(super) struct Resend {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    telling: Telling,
    /// Name of the group
    group: String,
    /// Only the letter with this id; may be repeated
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    id: Vec<String>,
    /// Also letters that were resent before
    #[arg(long)]
    all: bool,
    /// To the topic they were first sent to, where every group gets them; a group that consumes in order needs it
    #[arg(long)]
    to_topic: bool,
}

/// What to delete.
#[derive(Debug, Args)]
pub(super) struct Purge {
    #[command(flatten)]
    asked: Asked,
    /// Name of the group
    group: String,
    /// Without it nothing is deleted
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    group: String,
    broker_name: Text,
    letters: i64,
    not_resent: i64,
}

impl Row for Listed {
    const COLUMNS: &'static [&'static str] = &["group", "broker", "letters", "not resent"];

    fn cells(&self) -> Vec<String> {
        let Listed { group, broker_name, letters, not_resent } = self;
        vec![group.clone(), broker_name.to_string(), letters.to_string(), not_resent.to_string()]
    }
}

/// A dead letter.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Letter {
    message_id: String,
    died: i64,
    topic: String,
    broker_name: Text,
    queue_offset: i64,
    failures: i32,
    was_resent: bool,
    tag: Option<String>,
    keys: Vec<String>,
    /// The body, with what is no text replaced.
    body: String,
}

impl Letter {
    fn of(message: &Message, broker_name: &Text, resent_to: i64) -> Letter {
        Letter {
            message_id: message.message_id(),
            died: message.store_timestamp_ms,
            topic: first_topic(message).to_owned(),
            broker_name: broker_name.clone(),
            queue_offset: message.queue_offset,
            failures: message.reconsume_times,
            was_resent: message.queue_offset < resent_to,
            tag: message.tags().map(str::to_owned),
            keys: message.keys().map(str::to_owned).collect(),
            body: String::from_utf8_lossy(&message.body).into_owned(),
        }
    }
}

impl Row for Letter {
    const COLUMNS: &'static [&'static str] =
        &["id", "died", "topic", "broker", "offset", "failures", "resent", "keys", "body"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.message_id.clone(),
            when::shown(self.died),
            self.topic.clone(),
            self.broker_name.to_string(),
            self.queue_offset.to_string(),
            self.failures.to_string(),
            if self.was_resent { "yes" } else { "no" }.to_owned(),
            cut(&self.keys.join(" ")),
            cut(&self.body),
        ]
    }
}

/// The topic that a letter was first sent to.
fn first_topic(message: &Message) -> &str {
    message.properties.get(RETRY_TOPIC).unwrap_or(message.topic.as_str())
}

impl Dlq {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Dlq::List(list) => list.run().await,
            Dlq::Show(show) => show.run().await,
            Dlq::Resend(resend) => resend.run().await,
            Dlq::Purge(purge) => purge.run().await,
        }
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let client = self.asked.client().await?;
        let mut rows: Vec<Listed> = Vec::new();
        for topic in client.admin().topics().await? {
            let Some(group) = topic.strip_prefix(DEAD_LETTER_PREFIX) else { continue };
            for (queue, _) in queues(&client, &topic).await? {
                let (min, end) = (client.min_offset(&queue).await?, client.max_offset(&queue).await?);
                let resent_to = resent_to(&client, &queue).await?.clamp(min, end);
                let (letters, not_resent) = (end - min, end - resent_to);
                match rows.last_mut().filter(|row| row.group == group && row.broker_name == queue.broker_name)
                {
                    Some(row) => {
                        row.letters += letters;
                        row.not_resent += not_resent;
                    }
                    None => rows.push(Listed {
                        group: group.to_owned(),
                        broker_name: queue.broker_name.clone(),
                        letters,
                        not_resent,
                    }),
                }
            }
        }
        rows.retain(|row| row.letters > 0);
        self.asked.form.print(&rows)
    }
}

/// How far a queue of dead letters was resent.
async fn resent_to(client: &Client, queue: &Queue) -> Result<i64, Failure> {
    Ok(client.committed(TOOLS, queue).await?.unwrap_or(0))
}

/// The queues of a group's dead letters; an error if it has none.
async fn of_group(client: &Client, group: &str) -> Result<Vec<(Queue, Text)>, Failure> {
    let found = queues(client, &format!("{DEAD_LETTER_PREFIX}{group}")).await?;
    if found.is_empty() {
        return Err(Failure::NotFound(format!("group {group} has no dead letters")));
    }
    Ok(found)
}

impl Show {
    async fn run(self) -> Result<(), Failure> {
        let client = self.asked.client().await?;
        let mut rows = Vec::new();
        for (queue, _) in of_group(&client, &self.group).await? {
            let (mut room, resent_to) = (self.max, resent_to(&client, &queue).await?);
            let begin = client.min_offset(&queue).await?;
            read(&client, &queue, begin, |message| {
                if room > 0 {
                    rows.push(Letter::of(&message, &queue.broker_name, resent_to));
                }
                room = room.saturating_sub(1);
                room > 0
            })
            .await?;
        }
        self.asked.form.print(&rows)
    }
}

impl Resend {
    async fn run(self) -> Result<(), Failure> {
        let client = self.asked.client().await?;
        let mut wanted: BTreeSet<&str> = self.id.iter().map(String::as_str).collect();
        let mut resent = 0;
        let (mut parts, mut all) = (Vec::new(), 0);
        for (queue, master) in of_group(&client, &self.group).await? {
            let (begin, done) = (client.min_offset(&queue).await?, resent_to(&client, &queue).await?);
            let from = if self.all || !self.id.is_empty() { begin } else { begin.max(done) };
            let count = u64::try_from(client.max_offset(&queue).await? - from).unwrap_or(0);
            all += count;
            parts.push((queue, master, (from, done), all));
        }
        let mut progress = self.telling.begin("resend", all);
        for (queue, master, (from, done), by_then) in parts {
            let mut letters = Vec::new();
            let end = read(&client, &queue, from, |message| {
                if self.id.is_empty() || wanted.remove(message.message_id().as_str()) {
                    letters.push(message);
                }
                self.id.is_empty() || !wanted.is_empty()
            })
            .await?;
            for letter in &letters {
                self.resend(&client, letter, &queue, &master).await?;
                resent += 1;
                progress.more(1);
                // One by one, so that a command that is cut short repeats one letter at most.
                if self.id.is_empty() && letter.queue_offset >= done {
                    client.commit(TOOLS, &queue, letter.queue_offset + 1).await?;
                }
            }
            if self.id.is_empty() && end > done && letters.is_empty() {
                client.commit(TOOLS, &queue, end).await?;
            }
            progress.to(by_then);
        }
        drop(progress);
        if let Some(id) = wanted.first() {
            return Err(Failure::NotFound(format!("group {} has no dead letter {id}", self.group)));
        }
        self.asked.form.print_one(&Resent { resent }, |done| format!("{} resent", done.resent))
    }

    async fn resend(
        &self,
        client: &Client,
        letter: &Message,
        queue: &Queue,
        master: &str,
    ) -> Result<(), Failure> {
        let mut properties = letter.properties.clone();
        for name in WAYS {
            properties.remove(name);
        }
        let (topic, queue_id): (Text, i32) = match self.to_topic {
            true => (first_topic(letter).into(), -1),
            false => (format!("{RETRY_PREFIX}{}", self.group).into(), 0),
        };
        if self.to_topic {
            properties.remove(RETRY_TOPIC);
        }
        let header = SendMessageV2Header {
            producer_group: TOOLS.into(),
            topic,
            default_topic: "TBW102".into(),
            default_topic_queues: 1,
            queue_id,
            sys_flag: sys_flag::with_transaction(letter.sys_flag, 0),
            born_timestamp_ms: letter.born_timestamp_ms,
            flag: letter.flag,
            properties: Some(String::from_utf8_lossy(properties.encoded()).into_owned().into()),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            is_batch: Some(false),
            broker_name: Some(queue.broker_name.clone()),
            ..SendMessageV2Header::default()
        };
        client.admin().ask::<SendMessageV2>(master, &header, letter.body.clone()).await?;
        Ok(())
    }
}

#[derive(Debug, Serialize)]
struct Resent {
    resent: usize,
}

impl Purge {
    async fn run(self) -> Result<(), Failure> {
        let client = self.asked.client().await?;
        let queues = of_group(&client, &self.group).await?;
        let mut letters = 0;
        for (queue, _) in &queues {
            letters += client.max_offset(queue).await? - client.min_offset(queue).await?;
        }
        confirmed(self.yes, &format!("{letters} dead letters of group {} would be deleted", self.group))?;
        client.admin().delete_topic(&format!("{DEAD_LETTER_PREFIX}{}", self.group)).await?;
        self.asked.form.done(&format!("{letters} dead letters of group {} are deleted", self.group))
    }
}
