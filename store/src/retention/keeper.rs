//! Carries out what retention has decided: log, queues and index, in this order.
//!
//! Invariants:
//! - the log loses its oldest segments first; what derives from them follows and is never ahead;
//! - nothing here is called by a thread that must not wait for the disk.

use std::path::PathBuf;
use std::sync::Arc;

use super::{DiskUse, Moment, Plan, SpaceGuard, ages, disk_use, plan};
use crate::clock::Clock;
use crate::config::StoreConfig;
use crate::consume_queue::QueueTable;
use crate::error::StoreError;
use crate::index::IndexReader;
use crate::local_time::LocalTime;
use crate::reader::LogReader;
use crate::reaper::Reaper;

/// What retention needs of an open store.
#[derive(Debug, Clone)]
pub struct Keeper {
    pub(crate) dir: PathBuf,
    pub(crate) reader: LogReader,
    pub(crate) queues: QueueTable,
    pub(crate) index: IndexReader,
    pub(crate) reaper: Reaper,
    pub(crate) space: SpaceGuard,
    pub(crate) zone: LocalTime,
}

/// What one run has found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleaned {
    /// The disk before the run.
    pub disk: DiskUse,
    /// What was deleted of the log, if anything.
    pub plan: Option<Plan>,
    /// Files of queues and index that went with it.
    pub derived_files: usize,
}

impl Keeper {
    /// Looks at the disk, deletes what may go, and lets writers know whether there is room.
    pub fn clean(
        &self,
        config: &StoreConfig,
        clock: &Arc<dyn Clock>,
        is_asked: bool,
    ) -> Result<Cleaned, StoreError> {
        let disk = disk_use(&self.dir)?;
        // Refused writes are a state, not a failure of this run.
        let _judged = self.space.judge(config, disk);
        let now_ms = clock.now_ms();
        let moment = Moment { now_ms, hour: self.zone.hour(now_ms), disk, is_asked };
        let plan = plan(config, &ages(&self.reader), &moment);
        let derived_files = plan.map_or(Ok(0), |plan| self.carry_out(&plan))?;
        Ok(Cleaned { disk, plan, derived_files })
    }

    fn carry_out(&self, plan: &Plan) -> Result<usize, StoreError> {
        for segment in self.reader.segments().take_before(plan.log_min) {
            self.reaper.delete(segment);
        }
        let log_min = self.reader.min_offset();
        let derived_files = self.queues.expire(log_min)? + self.index.expire(log_min)?;
        let Plan { segments, reason, .. } = *plan;
        tracing::info!(segments, ?reason, log_min, derived_files, "old messages deleted");
        Ok(derived_files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit_log::batch::AppendBatch;
    use crate::retention::Reason;
    use crate::testing::Sample;
    use crate::{ManualClock, Opened, open};

    fn filled(dir: &tempfile::TempDir) -> Opened {
        let config = StoreConfig {
            log_segment_bytes: 65_536,
            queue_file_bytes: 1_200,
            disk_free_floor_bytes: 0,
            disk_full_percent: 100,
            disk_clean_percent: 99,
            disk_used_max_percent: 95,
            ..StoreConfig::in_dir(dir.path())
        };
        let mut opened = open(config, Arc::new(ManualClock::at(0))).unwrap();
        let queue = opened.queues.open_or_create(Sample::TOPIC, 0).unwrap();
        for _ in 0..400 {
            let mut batch = AppendBatch::default();
            Sample { queue_id: 0, fill: 1, body_bytes: 1_000 }.push(&mut batch, &queue);
            let appended = opened.log.append(&mut batch, 1).unwrap();
            opened.dispatch.dispatch(&batch, &appended).unwrap();
        }
        opened
    }

    fn later() -> Arc<dyn Clock> {
        Arc::new(ManualClock::at(i64::MAX / 2))
    }

    #[test]
    fn expired_segments_take_their_units_with_them_and_the_last_stays() {
        let dir = tempfile::tempdir().unwrap();
        let opened = filled(&dir);
        let segments = opened.reader.segments().snapshot().len();
        let cleaned = opened.keeper.clean(&opened.config, &later(), true).unwrap();
        assert_eq!(
            cleaned.plan.map(|plan| (plan.segments, plan.reason)),
            Some((segments - 1, Reason::Asked))
        );
        assert!(cleaned.derived_files > 0);
        let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
        let first = queue.unit(queue.min_offset()).unwrap();
        assert!(first.log_offset >= opened.reader.min_offset());
        assert!(queue.min_offset() > 0 && queue.unit(queue.min_offset() - 1).is_none());
        assert_eq!(opened.reader.segments().snapshot().len(), 1);
        assert_eq!(queue.max_offset(), 400);
    }

    #[test]
    fn fresh_segments_stay() {
        let dir = tempfile::tempdir().unwrap();
        let opened = filled(&dir);
        let now: Arc<dyn Clock> = Arc::new(crate::SystemClock::new());
        assert_eq!(opened.keeper.clean(&opened.config, &now, true).unwrap().plan, None);
        assert_eq!(opened.reader.min_offset(), 0);
    }

    #[test]
    fn what_was_deleted_stays_deleted_after_the_next_open() {
        let dir = tempfile::tempdir().unwrap();
        let opened = filled(&dir);
        opened.keeper.clean(&opened.config, &later(), true).unwrap();
        let (log_min, config) = (opened.reader.min_offset(), opened.config.clone());
        let min = opened.queues.get(Sample::TOPIC, 0).unwrap().min_offset();
        drop(opened);
        let opened = open(config, Arc::new(ManualClock::at(0))).unwrap();
        assert_eq!(opened.reader.min_offset(), log_min);
        let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
        assert_eq!((queue.min_offset(), queue.max_offset()), (min, 400));
    }
}
