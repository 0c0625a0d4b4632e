//! `troupemq topic`: what there is to write to and read from.
//!
//! Invariants:
//! - topics of the system, of retries and of dead letters are shown only when asked for;
//! - `update` changes what was named and nothing else;
//! - `show --json` is one object.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq::{Admin, ClientError, Text};
use troupemq_codec::topic::{DEAD_LETTER_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX, TopicConfig};

use super::table::Row;
use super::{Asked, Failure, when};

/// Prefixes of topics that clients and brokers keep for themselves.
const HIDDEN_PREFIXES: [&str; 5] =
    [RETRY_PREFIX, DEAD_LETTER_PREFIX, "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_"];
/// Names of such topics.
const HIDDEN: [&str; 5] =
    ["TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC"];
/// End of the topic by which a cluster answers requests.
const HIDDEN_END: &str = "_REPLY_TOPIC";

/// List, show, make, change and delete topics
#[derive(Debug, Subcommand)]
pub(super) enum Topic {
    /// List topics
    List(List),
    /// Show queues and offsets of a topic, and who reads it
    Show(One),
    /// Make a topic
    Create(Change),
    /// Change a topic
    Update(Change),
    /// Delete a topic with its messages
    Delete(One),
}

/// What to list.
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    asked: Asked,
    /// Also topics of the system, of retries and of dead letters
    #[arg(long)]
    all: bool,
}

/// One topic.
#[derive(Debug, Args)]
pub(super) struct One {
    #[command(flatten)]
    asked: Asked,
    /// Name of the topic
    topic: String,
}

/// How a topic is to be.
#[derive(Debug, Args)]
pub(super) struct Change {
    #[command(flatten)]
    one: One,
    /// Queues on each broker [default of a new topic: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1024))]
    queues: Option<i32>,
    /// What may be done: rw, r, w or none
    #[arg(long, value_name = "PERM")]
    perm: Option<Perm>,
    /// Whether name servers give it out as an ordered topic
    #[arg(long, value_name = "BOOL")]
    order: Option<bool>,
    /// An attribute with a sign, such as +message.type=FIFO or -message.type
    #[arg(long, value_name = "+NAME=VALUE|-NAME", allow_hyphen_values = true)]
    attribute: Vec<Attribute>,
}

/// An attribute with its sign, and its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attribute(Text, Text);

impl std::str::FromStr for Attribute {
    type Err = String;

    fn from_str(text: &str) -> Result<Attribute, String> {
        match text.split_once('=') {
            Some((name, value)) if name.starts_with('+') => Ok(Attribute(name.into(), value.into())),
            None if text.starts_with('-') => Ok(Attribute(text.into(), Text::default())),
            _ => Err("neither +name=value nor -name".to_owned()),
        }
    }
}

/// Bits of a permission.
#[derive(Debug, Clone, Copy)]
struct Perm(i32);

impl std::str::FromStr for Perm {
    type Err = String;

    fn from_str(text: &str) -> Result<Perm, String> {
        match text {
            "rw" | "wr" => Ok(Perm(PERM_READ | PERM_WRITE)),
            "r" => Ok(Perm(PERM_READ)),
            "w" => Ok(Perm(PERM_WRITE)),
            "none" => Ok(Perm(0)),
            _ => Err("rw, r, w or none is wanted".to_owned()),
        }
    }
}

/// `rw`, `r`, `w` or `none`.
fn perm_text(perm: i32) -> &'static str {
    match (perm & PERM_READ != 0, perm & PERM_WRITE != 0) {
        (true, true) => "rw",
        (true, false) => "r",
        (false, true) => "w",
        (false, false) => "none",
    }
}

#[derive(Debug, Serialize)]
struct Listed {
    topic: Text,
    queues: i32,
    perm: &'static str,
    brokers: usize,
}

impl Row for Listed {
    const COLUMNS: &'static [&'static str] = &["topic", "queues", "perm", "brokers"];

    fn cells(&self) -> Vec<String> {
        vec![self.topic.to_string(), self.queues.to_string(), self.perm.to_owned(), self.brokers.to_string()]
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueLine {
    broker_name: Text,
    queue_id: i32,
    min_offset: i64,
    max_offset: i64,
    last_update_timestamp: i64,
}

impl Row for QueueLine {
    const COLUMNS: &'static [&'static str] = &["broker", "queue", "min offset", "max offset", "last stored"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.broker_name.to_string(),
            self.queue_id.to_string(),
            self.min_offset.to_string(),
            self.max_offset.to_string(),
            when::shown(self.last_update_timestamp),
        ]
    }
}

/// All of a topic as one object.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    topic: &'a str,
    /// How each broker has it.
    brokers: &'a BTreeMap<Text, TopicConfig>,
    readers: &'a BTreeSet<Text>,
    queues: Vec<QueueLine>,
}

impl Topic {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Topic::List(list) => list.run().await,
            Topic::Show(one) => one.show().await,
            Topic::Create(change) => change.create().await,
            Topic::Update(change) => change.update().await,
            Topic::Delete(one) => one.delete().await,
        }
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let mut rows = Vec::new();
        let brokers = admin.brokers().await?;
        // Every broker has a topic of its own name and one of its cluster's.
        let is_broker =
            |topic: &Text| brokers.iter().any(|place| place.name == *topic || place.cluster == *topic);
        for topic in admin.topics().await? {
            if !self.all && (is_hidden(&topic) || is_broker(&topic)) {
                continue;
            }
            let route = match admin.route(&topic).await {
                Ok(route) => route,
                // It was deleted since the list was made.
                Err(ClientError::NoRoute { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            rows.push(Listed {
                queues: route.queue_datas.iter().map(|queue| queue.read_queue_nums).sum(),
                perm: perm_text(route.queue_datas.iter().fold(0, |perm, queue| perm | queue.perm)),
                brokers: route.broker_datas.len(),
                topic,
            });
        }
        self.asked.form.print(&rows)
    }
}

fn is_hidden(topic: &str) -> bool {
    HIDDEN.contains(&topic)
        || topic.ends_with(HIDDEN_END)
        || HIDDEN_PREFIXES.iter().any(|prefix| topic.starts_with(prefix))
}

impl One {
    async fn show(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let offsets = admin.topic_offsets(&self.topic).await?;
        let rows: Vec<_> = offsets
            .into_iter()
            .map(|(queue, offset)| QueueLine {
                broker_name: queue.broker_name,
                queue_id: queue.queue_id,
                min_offset: offset.min_offset,
                max_offset: offset.max_offset,
                last_update_timestamp: offset.last_update_timestamp,
            })
            .collect();
        let configs = admin.topic_configs(&self.topic).await?;
        let readers = admin.readers(&self.topic).await?;
        if self.asked.form.is_json() {
            let shown = Shown { topic: &self.topic, brokers: &configs, readers: &readers, queues: rows };
            return self.asked.form.print_one(&shown, |_| String::new());
        }
        self.asked.form.print(&rows)?;
        for (broker, config) in configs {
            self.asked.form.done(&config_line(&broker, &config))?;
        }
        let readers: Vec<_> = readers.iter().map(ToString::to_string).collect();
        self.asked.form.done(&format!(
            "read by: {}",
            if readers.is_empty() { "nobody".into() } else { readers.join(", ") }
        ))
    }

    async fn delete(self) -> Result<(), Failure> {
        let client = self.asked.client().await?;
        // An unknown name is a mistake, though brokers take it.
        client.admin().route(&self.topic).await?;
        client.admin().delete_topic(&self.topic).await?;
        self.asked.form.done(&format!("topic {} is deleted", self.topic))
    }
}

fn config_line(broker: &str, config: &TopicConfig) -> String {
    let (read, write) = (config.read_queue_nums, config.write_queue_nums);
    let order = if config.order { ", ordered" } else { "" };
    let attributes: Vec<_> =
        config.attributes.iter().map(|(name, value)| format!(", {name}={value}")).collect();
    let perm = perm_text(config.perm);
    format!("{broker}: {read} queues to read, {write} to write, {perm}{order}{}", attributes.concat())
}

impl Change {
    async fn create(self) -> Result<(), Failure> {
        let client = self.one.asked.client().await?;
        let admin = client.admin();
        match admin.route(&self.one.topic).await {
            Ok(_) => {
                let why =
                    format!("topic {} is there already; `troupemq topic update` changes it", self.one.topic);
                return Err(Failure::Other(why));
            }
            Err(ClientError::NoRoute { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let new = TopicConfig { read_queue_nums: 8, write_queue_nums: 8, ..TopicConfig::default() };
        self.save(&admin, new).await?;
        client.await_route(&self.one.topic).await?;
        self.one.asked.form.done(&format!("topic {} is made", self.one.topic))
    }

    async fn update(self) -> Result<(), Failure> {
        let admin = self.one.asked.admin().await?;
        let configs = admin.topic_configs(&self.one.topic).await?;
        let no_broker = || Failure::Other(format!("no master has topic {}", self.one.topic));
        let now = configs.into_values().next().ok_or_else(no_broker)?;
        self.save(&admin, now).await?;
        self.one.asked.form.done(&format!("topic {} is changed", self.one.topic))
    }

    async fn save(&self, admin: &Admin, mut config: TopicConfig) -> Result<(), Failure> {
        config.topic_name = self.one.topic.as_str().into();
        if let Some(queues) = self.queues {
            (config.read_queue_nums, config.write_queue_nums) = (queues, queues);
        }
        config.perm = self.perm.map_or(config.perm, |Perm(bits)| bits);
        config.order = self.order.unwrap_or(config.order);
        // Brokers take changes of attributes, not the whole of them.
        let attributes = self.attribute.iter().map(|Attribute(name, value)| (name.clone(), value.clone()));
        config.attributes = attributes.collect();
        Ok(admin.save_topic(&config).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_the_system_are_hidden_and_those_of_users_are_not() {
        for topic in ["%RETRY%g", "%DLQ%g", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"] {
            assert!(is_hidden(topic), "{topic}");
        }
        assert!(!is_hidden("orders"));
    }

    #[test]
    fn an_attribute_comes_with_its_sign() {
        let parsed = |text: &str| text.parse::<Attribute>();
        assert_eq!(parsed("+a=b"), Ok(Attribute("+a".into(), "b".into())));
        assert_eq!(parsed("-a"), Ok(Attribute("-a".into(), Text::default())));
        for text in ["a=b", "+a", "-a=b", ""] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
