//! `troupemq group`: who reads, how far they are, and what they may do.
//!
//! Invariants:
//! - groups of the system are listed only when asked for;
//! - a group counts as known if a broker keeps its configuration; whether somebody is online is told beside it;
//! - `update` changes what was named and nothing else;
//! - `show --json` is one object.

use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq::{Admin, Text};
use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::heartbeat_data::SubscriptionData;
use troupemq_codec::request::{Connection, ConsumeStats, ConsumedOffset, ConsumerConnection};
use troupemq_codec::topic::MessageQueue;

use super::table::Row;
use super::{Asked, Failure, when};

/// Beginnings of the names of groups that every broker makes for itself.
const HIDDEN_PREFIXES: [&str; 5] =
    ["CID_ONS", "CID_RMQ_SYS_", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "TOOLS_CONSUMER"];

/// List, show, make, change and delete consumer groups
#[derive(Debug, Subcommand)]
pub(super) enum Group {
    /// List groups with their members and backlog
    List(List),
    /// Show members, subscriptions and progress of a group
    Show(One),
    /// Make a group
    Create(Change),
    /// Change a group
    Update(Change),
    /// Delete a group with its offsets
    Delete(One),
}

/// What to list.
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    asked: Asked,
    /// Also groups that every broker makes for itself
    #[arg(long)]
    all: bool,
}

/// One group.
#[derive(Debug, Args)]
pub(super) struct One {
    #[command(flatten)]
    asked: Asked,
    /// Name of the group
    group: String,
}

/// How a group is to be.
#[derive(Debug, Args)]
pub(super) struct Change {
    #[command(flatten)]
    one: One,
    /// Whether it may read
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
    /// Whether it may broadcast
    #[arg(long, value_name = "BOOL")]
    broadcast: Option<bool>,
    /// Deliveries again before a message is a dead letter
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    retries: Option<i32>,
    /// Queues of its retry topic
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1024))]
    retry_queues: Option<i32>,
    /// Whether members are told at once when one comes or goes
    #[arg(long, value_name = "BOOL")]
    notify: Option<bool>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    group: Text,
    members: usize,
    lag: i64,
    consume_tps: f64,
    retries: i32,
}

impl Row for Listed {
    const COLUMNS: &'static [&'static str] = &["group", "members", "lag", "messages/s", "retries"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.group.to_string(),
            self.members.to_string(),
            self.lag.to_string(),
            format!("{:.1}", self.consume_tps),
            self.retries.to_string(),
        ]
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    client_id: Text,
    address: Text,
    language: String,
    version: i32,
}

impl Row for Member {
    const COLUMNS: &'static [&'static str] = &["member", "address", "language"];

    fn cells(&self) -> Vec<String> {
        vec![self.client_id.to_string(), self.address.to_string(), self.language.clone()]
    }
}

/// How far a group is in a queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProgressLine {
    topic: Text,
    broker_name: Text,
    queue_id: i32,
    committed: i64,
    max_offset: i64,
    lag: i64,
    last_timestamp: i64,
}

impl Row for ProgressLine {
    const COLUMNS: &'static [&'static str] =
        &["topic", "broker", "queue", "committed", "max offset", "lag", "last consumed was stored"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.topic.to_string(),
            self.broker_name.to_string(),
            self.queue_id.to_string(),
            self.committed.to_string(),
            self.max_offset.to_string(),
            self.lag.to_string(),
            when::shown(self.last_timestamp),
        ]
    }
}

/// All of a group as one object.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    group: &'a str,
    config: &'a SubscriptionGroupConfig,
    members: Vec<Member>,
    subscriptions: Vec<&'a SubscriptionData>,
    progress: Vec<ProgressLine>,
}

/// Members as lines.
fn member_lines(members: &ConsumerConnection) -> Vec<Member> {
    let line = |connection: &Connection| Member {
        client_id: connection.client_id.clone(),
        address: connection.client_addr.clone(),
        language: format!("{:?}", connection.language),
        version: connection.version,
    };
    members.connection_set.iter().map(line).collect()
}

/// Progress by queue as lines.
pub(super) fn progress_lines(stats: &ConsumeStats) -> Vec<ProgressLine> {
    let line = |(queue, offset): (&MessageQueue, &ConsumedOffset)| ProgressLine {
        topic: queue.topic.clone(),
        broker_name: queue.broker_name.clone(),
        queue_id: queue.queue_id,
        committed: offset.consumer_offset,
        max_offset: offset.broker_offset,
        lag: offset.lag(),
        last_timestamp: offset.last_timestamp,
    };
    let mut lines: Vec<_> = stats.offset_table.iter().map(line).collect();
    lines.sort_by(|a, b| (&a.topic, &a.broker_name, a.queue_id).cmp(&(&b.topic, &b.broker_name, b.queue_id)));
    lines
}

impl Group {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Group::List(list) => list.run().await,
            Group::Show(one) => one.show().await,
            Group::Create(change) => change.create().await,
            Group::Update(change) => change.update().await,
            Group::Delete(one) => one.delete().await,
        }
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let mut rows = Vec::new();
        for (group, config) in admin.groups().await? {
            if !self.all && HIDDEN_PREFIXES.iter().any(|prefix| group.starts_with(prefix)) {
                continue;
            }
            let members = admin.members(&group).await?;
            let stats = progress(&admin, &group).await?;
            rows.push(Listed {
                members: members.map_or(0, |members| members.connection_set.len()),
                lag: stats.total_lag(),
                consume_tps: stats.consume_tps,
                retries: config.retry_max_times,
                group,
            });
        }
        self.asked.form.print(&rows)
    }
}

/// Progress of a group; none if it has committed nothing yet.
async fn progress(admin: &Admin, group: &str) -> Result<ConsumeStats, Failure> {
    match admin.progress(group, None).await {
        Ok(stats) => Ok(stats),
        // What brokers answer for a group that has never committed anything.
        Err(error) if error.code().is_some() => Ok(ConsumeStats::default()),
        Err(error) => Err(error.into()),
    }
}

impl One {
    async fn show(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let config = self.config(&admin).await?;
        let members = admin.members(&self.group).await?;
        let stats = progress(&admin, &self.group).await?;
        let lines = progress_lines(&stats);
        if self.asked.form.is_json() {
            let shown = Shown {
                group: &self.group,
                config: &config,
                members: members.as_ref().map(member_lines).unwrap_or_default(),
                subscriptions: members
                    .iter()
                    .flat_map(|members| members.subscription_table.values())
                    .collect(),
                progress: lines,
            };
            return self.asked.form.print_one(&shown, |_| String::new());
        }
        self.asked.form.done(&config_line(&config))?;
        match &members {
            Some(members) => self.show_members(members)?,
            None => self.asked.form.done("nobody is online")?,
        }
        self.asked.form.print(&lines)
    }

    fn show_members(&self, members: &ConsumerConnection) -> Result<(), Failure> {
        for (topic, subscription) in &members.subscription_table {
            let expression = &subscription.sub_string;
            self.asked
                .form
                .done(&format!("reads {topic}: {expression} ({})", subscription.expression_type))?;
        }
        self.asked.form.print(&member_lines(members))
    }

    async fn delete(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        self.config(&admin).await?;
        admin.delete_group(&self.group).await?;
        self.asked.form.done(&format!("group {} is deleted", self.group))
    }

    async fn config(&self, admin: &Admin) -> Result<SubscriptionGroupConfig, Failure> {
        let unknown = || Failure::NotFound(format!("no broker knows group {}", self.group));
        admin.groups().await?.remove(self.group.as_str()).ok_or_else(unknown)
    }
}

fn config_line(config: &SubscriptionGroupConfig) -> String {
    let yes = |on| if on { "yes" } else { "no" };
    format!(
        "reads: {}, broadcasts: {}, retries: {}, told of changes: {}",
        yes(config.consume_enable),
        yes(config.consume_broadcast_enable),
        config.retry_max_times,
        yes(config.notify_consumer_ids_changed_enable)
    )
}

impl Change {
    async fn create(self) -> Result<(), Failure> {
        let admin = self.one.asked.admin().await?;
        if admin.groups().await?.contains_key(self.one.group.as_str()) {
            let why =
                format!("group {} is there already; `troupemq group update` changes it", self.one.group);
            return Err(Failure::Other(why));
        }
        let group_name = self.one.group.as_str().into();
        self.save(&admin, SubscriptionGroupConfig { group_name, ..Default::default() }).await?;
        self.one.asked.form.done(&format!("group {} is made", self.one.group))
    }

    async fn update(self) -> Result<(), Failure> {
        let admin = self.one.asked.admin().await?;
        let now = self.one.config(&admin).await?;
        self.save(&admin, now).await?;
        self.one.asked.form.done(&format!("group {} is changed", self.one.group))
    }

    async fn save(&self, admin: &Admin, mut config: SubscriptionGroupConfig) -> Result<(), Failure> {
        config.consume_enable = self.enabled.unwrap_or(config.consume_enable);
        config.consume_broadcast_enable = self.broadcast.unwrap_or(config.consume_broadcast_enable);
        config.retry_max_times = self.retries.unwrap_or(config.retry_max_times);
        config.retry_queue_nums = self.retry_queues.unwrap_or(config.retry_queue_nums);
        config.notify_consumer_ids_changed_enable =
            self.notify.unwrap_or(config.notify_consumer_ids_changed_enable);
        Ok(admin.save_group(&config).await?)
    }
}
