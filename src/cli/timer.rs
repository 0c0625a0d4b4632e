//! `troupemq timer`: messages that wait for the time of their delivery.
//!
//! Invariants:
//! - a running broker is asked, a folder is only looked at: neither is changed;
//! - one line is a second or a minute in which timers are due; in front of them stands what all say together.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;
use troupemq::TimerMetrics;
use troupemq_store::timer::TimerPeek;

use super::table::{Form, Row};
use super::when::{now_ms, shown};
use super::{Cluster, Failure};

/// Show how many timers wait, when they are due and how late the earliest is
#[derive(Debug, Args)]
pub(super) struct Timer {
    #[command(flatten)]
    servers: Cluster,
    #[command(flatten)]
    form: Form,
    /// Name or address of the broker; all masters if it is not given
    #[arg(conflicts_with = "store_dir")]
    broker: Option<String>,
    /// Look at the folder of a store instead of asking a broker
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// What one line stands for
    #[arg(long, value_enum, default_value_t = By::All)]
    by: By,
}

/// What one line of the table stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// All timers of a broker
    All,
    /// A second of the coming hour
    Second,
    /// A minute
    Minute,
    /// A topic
    Topic,
}

/// All timers of one broker or store.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    of: String,
    pending: i64,
    next_due_ms: i64,
    lag_ms: i64,
    /// Stored, and not on the wheel yet.
    behind: i64,
    /// Never read by the disk, since the start of the broker.
    given_up: u64,
    delivered_before_ms: i64,
}

/// Timers of one second, minute or topic.
#[derive(Debug, Serialize)]
struct Count {
    of: String,
    due: String,
    timers: i64,
}

impl Row for Summary {
    const COLUMNS: &'static [&'static str] =
        &["of", "pending", "next due (UTC)", "lag ms", "behind", "given up", "delivered before (UTC)"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.of.clone(),
            self.pending.to_string(),
            shown(self.next_due_ms),
            self.lag_ms.to_string(),
            self.behind.to_string(),
            self.given_up.to_string(),
            shown(self.delivered_before_ms),
        ]
    }
}

impl Row for Count {
    const COLUMNS: &'static [&'static str] = &["of", "due", "timers"];

    fn cells(&self) -> Vec<String> {
        vec![self.of.clone(), self.due.clone(), self.timers.to_string()]
    }
}

impl Timer {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let found = match &self.store_dir {
            Some(dir) if self.by == By::Topic => {
                let why =
                    format!("{} is not asked for topics: only a running broker tells them", dir.display());
                return Err(Failure::Usage(why));
            }
            Some(dir) => vec![(dir.display().to_string(), of_store(dir)?)],
            None => self.of_brokers().await?,
        };
        if self.by == By::All {
            return self.form.print(&found.into_iter().map(summary).collect::<Vec<_>>());
        }
        let rows: Vec<Count> =
            found.into_iter().flat_map(|(of, metrics)| counts(self.by, &of, &metrics)).collect();
        self.form.print(&rows)
    }

    async fn of_brokers(&self) -> Result<Vec<(String, TimerMetrics)>, Failure> {
        let admin = self.servers.connect().await?.admin();
        let mut found = Vec::new();
        for place in admin.brokers().await?.into_iter().filter(|place| place.id == 0) {
            let is_meant =
                |broker: &String| [place.address.as_str(), place.name.as_str()].contains(&broker.as_str());
            if self.broker.as_ref().is_none_or(is_meant) {
                found.push((place.name.to_string(), admin.timers(&place.address).await?));
            }
        }
        match &self.broker {
            Some(broker) if found.is_empty() => {
                Err(Failure::NotFound(format!("the name servers know no master {broker}")))
            }
            _ => Ok(found),
        }
    }
}

/// What the folder of a store says.
fn of_store(dir: &Path) -> Result<TimerMetrics, Failure> {
    let peek = TimerPeek::read(dir).map_err(|error| Failure::Other(error.to_string()))?;
    let peek = peek.ok_or_else(|| Failure::NotFound(format!("{} has no timers", dir.display())))?;
    let (now_ms, read_to_ms) = (now_ms(), peek.checkpoint.last_read_ms);
    let first_ms = peek.slots.keys().next().map_or(0, |slot_ms| slot_ms + 1);
    let mut metrics = TimerMetrics {
        pending: peek.slots.values().map(|count| i64::from(*count)).sum(),
        next_due_ms: first_ms,
        lag_ms: if first_ms == 0 { 0 } else { (now_ms - first_ms).max(0) },
        read_to_ms,
        ..TimerMetrics::default()
    };
    peek.slots.iter().for_each(|(slot_ms, count)| metrics.add(*slot_ms, i64::from(*count), now_ms));
    Ok(metrics)
}

fn summary((of, metrics): (String, TimerMetrics)) -> Summary {
    Summary {
        of,
        pending: metrics.pending,
        next_due_ms: metrics.next_due_ms,
        lag_ms: metrics.lag_ms,
        behind: metrics.behind,
        given_up: metrics.given_up,
        delivered_before_ms: metrics.read_to_ms,
    }
}

fn counts(by: By, of: &str, metrics: &TimerMetrics) -> Vec<Count> {
    let count = |due: String, timers: i64| Count { of: of.to_owned(), due, timers };
    match by {
        By::Topic => metrics
            .timing_count
            .iter()
            .map(|(topic, timers)| count(topic.to_string(), timers.count))
            .collect(),
        By::Minute => {
            metrics.by_minute.iter().map(|(second, timers)| count(shown(second * 1000), *timers)).collect()
        }
        _ => metrics.by_second.iter().map(|(second, timers)| count(shown(second * 1000), *timers)).collect(),
    }
}
