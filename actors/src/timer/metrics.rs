//! `config/timermetrics`: how many timers wait for each topic, for tools that look at a store that rests (RocketMQ:
//! `TimerMetrics#persist`).
//!
//! Invariants:
//! - it is derived: what could not be saved is told, and holds nothing up;
//! - timers are counted where waiting is allowed, at most once in [`EVERY`], and only if some came or went.

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
pub(super) const EVERY: Duration = Duration::from_secs(30);

/// The file, and what of the timers it was written for.
#[derive(Debug)]
pub(super) struct Metrics {
    file: Option<TableFile<TimerMetricsTable>>,
    version: DataVersion,
    /// Timers that waited and messages that were read when it was written.
    written_for: Option<(i64, i64)>,
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
    pub(super) fn open(store_dir: &std::path::Path) -> Metrics {
        let opened = TableFile::<TimerMetricsTable>::open(store_dir);
        let (file, version) = match opened {
            Ok((file, table)) => (Some(file), table.data_version),
            Err(error) => {
                tracing::warn!(%error, "the numbers of timers by topic are not kept");
                (None, DataVersion::default())
            }
        };
        Metrics { file, version, written_for: None }
    }

    /// Begins to count what a report is about, if something has changed.
    pub(super) fn count(
        &mut self,
        report: TimerReport,
        directory: &Arc<Directory>,
        now_ms: i64,
    ) -> Option<Counting> {
        let counted = (report.pending, report.checkpoint.queue_offset);
        if self.written_for == Some(counted) {
            return None;
        }
        let file = self.file.clone()?;
        self.written_for = Some(counted);
        self.version = self.version.next(now_ms);
        Some(Counting { file, version: self.version, report, directory: directory.clone(), now_ms })
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
