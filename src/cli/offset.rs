//! `troupemq offset`: how far groups are, and where they are to go on.
//!
//! Invariants:
//! - a group that no broker knows is told by the exit code, not by an empty table;
//! - a reset says for every queue where the group goes on;
//! - where to go must be said: there is no default that could skip or repeat messages by accident.

use std::str::FromStr;

use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq::{ResetTo, Text};

use super::group::progress_lines;
use super::table::Row;
use super::when::Moment;
use super::{Asked, Failure};

/// Show, reset and copy the progress of consumer groups
#[derive(Debug, Subcommand)]
pub(super) enum Offset {
    /// Show how far a group is in every queue
    Show(Show),
    /// Set where a group goes on in a topic, online or not
    Reset(Reset),
    /// Give a group the offsets of another
    Clone(Copy),
}

/// Whose progress.
#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    asked: Asked,
    /// Name of the group
    group: String,
    /// Only this topic
    #[arg(long, short)]
    topic: Option<String>,
}

/// Where to go on.
#[derive(Debug, Args)]
pub(super) struct Reset {
    #[command(flatten)]
    asked: Asked,
    /// Name of the group
    group: String,
    /// Name of the topic
    topic: String,
    /// earliest, latest, QUEUE:OFFSET, or a time: epoch ms, now, or a span back such as 15m
    #[arg(long, value_name = "WHERE")]
    to: Target,
}

/// From whom to whom.
#[derive(Debug, Args)]
pub(super) struct Copy {
    #[command(flatten)]
    asked: Asked,
    /// Group whose offsets are copied
    from: String,
    /// Group that gets them
    to: String,
    /// Only this topic
    #[arg(long, short)]
    topic: Option<String>,
}

/// A [`ResetTo`] as it is written.
#[derive(Debug, Clone, Copy)]
struct Target(ResetTo);

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text {
            "earliest" | "first" => return Ok(Target(ResetTo::Earliest)),
            "latest" | "last" => return Ok(Target(ResetTo::Latest)),
            _ => {}
        }
        if let Some((queue, offset)) = text.split_once(':') {
            let wrong = || format!("{text:?} is no QUEUE:OFFSET");
            let queue_id = queue.parse().ok().filter(|id| *id >= 0).ok_or_else(wrong)?;
            let queue_offset = offset.parse().ok().filter(|offset| *offset >= 0).ok_or_else(wrong)?;
            return Ok(Target(ResetTo::Offset { queue_id, queue_offset }));
        }
        text.parse().map(|Moment(epoch_ms)| Target(ResetTo::Time(epoch_ms)))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Moved {
    broker_name: Text,
    queue_id: i32,
    offset: i64,
}

impl Row for Moved {
    const COLUMNS: &'static [&'static str] = &["broker", "queue", "goes on at"];

    fn cells(&self) -> Vec<String> {
        vec![self.broker_name.to_string(), self.queue_id.to_string(), self.offset.to_string()]
    }
}

impl Offset {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Offset::Show(show) => {
                let admin = show.asked.admin().await?;
                let lines = progress_lines(&admin.progress(&show.group, show.topic.as_deref()).await?);
                if lines.is_empty() && !admin.groups().await?.contains_key(show.group.as_str()) {
                    return Err(Failure::NotFound(format!("no broker knows group {}", show.group)));
                }
                show.asked.form.print(&lines)
            }
            Offset::Reset(reset) => reset.run().await,
            Offset::Clone(copy) => {
                let admin = copy.asked.admin().await?;
                if admin.progress(&copy.from, copy.topic.as_deref()).await?.offset_table.is_empty() {
                    let of = copy.topic.map(|topic| format!(" of topic {topic}")).unwrap_or_default();
                    return Err(Failure::NotFound(format!("group {} has no offsets{of} to copy", copy.from)));
                }
                admin.clone_offsets(&copy.from, &copy.to, copy.topic.as_deref()).await?;
                copy.asked.form.done(&format!("group {} goes on where {} is", copy.to, copy.from))
            }
        }
    }
}

impl Reset {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.asked.admin().await?;
        let moved = admin.reset_offsets(&self.group, &self.topic, self.to.0).await?;
        let rows: Vec<_> = moved
            .into_iter()
            .map(|(queue, offset)| Moved { broker_name: queue.broker_name, queue_id: queue.queue_id, offset })
            .collect();
        self.asked.form.print(&rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_word_a_place_or_a_time() {
        let to = |text: &str| text.parse::<Target>().map(|Target(to)| to);
        assert_eq!(to("earliest"), Ok(ResetTo::Earliest));
        assert_eq!(to("latest"), Ok(ResetTo::Latest));
        assert_eq!(to("3:17"), Ok(ResetTo::Offset { queue_id: 3, queue_offset: 17 }));
        assert_eq!(to("1700000000000"), Ok(ResetTo::Time(1_700_000_000_000)));
        assert!(matches!(to("15m"), Ok(ResetTo::Time(_))));
        assert_eq!(to("first"), to("earliest"));
        for text in ["", "begin", "-1:3", "3:-1", "3:x"] {
            assert!(to(text).is_err(), "{text}");
        }
    }
}
