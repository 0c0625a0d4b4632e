//! `config/timermetrics`: how many timers wait for each topic, for tools that look at a store that rests (RocketMQ:
//! `TimerMetrics#persist`).
//!
//! Invariants:
//! - it is derived: what could not be saved is told, and holds nothing up;
//! - timers are counted where waiting is allowed, at most once in [`EVERY_MS`] while the node runs, and only if some
//!   came or went;
//! - the file of a store that Java wrote is gone on with, its version counted up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use troupemq_codec::Text;
use troupemq_codec::filter::java_hash;
use troupemq_codec::topic::DataVersion;
use troupemq_store::StoreError;
use troupemq_store::tables::{Metric, TableFile, TimerMetricsTable};

use super::TimerReport;
use super::answers::count;
use crate::directory::Directory;

/// How often it is written while timers come and go.
const EVERY_MS: i64 = 30_000;
/// How often it is looked whether it is time: real time only says when to look, what is due is judged by the clock of
/// the node.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The file, and what of the timers it was written for.
#[derive(Debug)]
pub(super) struct Metrics {
    file: Option<TableFile<TimerMetricsTable>>,
    version: DataVersion,
    /// Timers that waited and messages that were read when it was written.
    written_for: Option<(i64, i64)>,
    /// When that was, epoch ms.
    written_ms: i64,
}

/// Timers to be counted.
#[derive(Debug)]
pub(super) struct Counting {
    file: TableFile<TimerMetricsTable>,
    version: DataVersion,
    report: TimerReport,
    directory: Arc<Directory>,
    now_ms: i64,
}

impl Metrics {
    /// Goes on with the file of a store; one that cannot be read is left as it is.
    pub(super) fn open(store_dir: &std::path::Path, now_ms: i64) -> Metrics {
        let opened = TableFile::<TimerMetricsTable>::open(store_dir);
        let (file, version) = match opened {
            Ok((file, table)) => (Some(file), table.data_version),
            Err(error) => {
                tracing::warn!(%error, "the numbers of timers by topic are not kept");
                (None, DataVersion::default())
            }
        };
        Metrics { file, version, written_for: None, written_ms: now_ms }
    }

    /// Whether it may be written again.
    pub(super) fn is_due(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.written_ms) >= EVERY_MS
    }

    /// Begins to count what a report is about, if something has changed.
    pub(super) fn count(
        &mut self,
        report: TimerReport,
        directory: &Arc<Directory>,
        now_ms: i64,
    ) -> Option<Counting> {
        let (file, version) = self.next((report.pending, report.checkpoint.queue_offset), now_ms)?;
        Some(Counting { file, version, report, directory: directory.clone(), now_ms })
    }

    /// The file to be written for these timers that wait and messages that were read, with its version; none if it is
    /// written for them already.
    fn next(
        &mut self,
        counted: (i64, i64),
        now_ms: i64,
    ) -> Option<(TableFile<TimerMetricsTable>, DataVersion)> {
        self.written_ms = now_ms;
        if self.written_for == Some(counted) {
            return None;
        }
        let file = self.file.clone()?;
        self.written_for = Some(counted);
        self.version = self.version.next(now_ms);
        Some((file, self.version))
    }
}

impl Counting {
    /// Counts and saves; waits for the disk.
    pub(super) fn save(self) {
        if let Err(error) = self.counted().and_then(|table| self.file.save(&table)) {
            tracing::warn!(%error, "the numbers of timers by topic were not saved");
        }
    }

    fn counted(&self) -> Result<TimerMetricsTable, StoreError> {
        let topics = self.directory.topics();
        let names: HashMap<i32, Text> =
            topics.iter().map(|topic| (java_hash(&topic.name), topic.name.clone())).collect();
        let counted = count(&self.report, &names, self.now_ms)?.timing_count;
        let metric = |count| Metric { count, time_stamp: self.now_ms };
        let timing_count = counted.into_iter().map(|(topic, timers)| (topic, metric(timers.count))).collect();
        Ok(TimerMetricsTable { data_version: self.version, timing_count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_after_half_a_minute_if_timers_came_or_went() {
        let dir = tempfile::tempdir().unwrap();
        let mut metrics = Metrics::open(dir.path(), 1000);
        assert!(!metrics.is_due(30_999) && metrics.is_due(31_000));
        let mut count = |pending, now_ms| {
            let version = metrics.next((pending, 7), now_ms).map(|(_, version)| version.counter);
            (version, metrics.is_due(now_ms + 1))
        };
        assert_eq!(count(2, 31_000), (Some(1), false));
        assert_eq!(count(2, 61_000), (None, false), "nothing came or went");
        assert_eq!(count(1, 91_000), (Some(2), false));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/timermetrics");
        std::fs::create_dir_all(path.join("a folder")).unwrap();
        let mut metrics = Metrics::open(dir.path(), 0);
        assert!(metrics.next((1, 1), 0).is_none());
        assert!(path.is_dir());
    }
}
