//! Carries out what retention has decided: log, queues and index, in this order.
//!
//! Invariants:
//! - the log loses its oldest segments first; what derives from them goes once their files are off the disk, which may
//!   be a round later: whatever segment a start finds, it finds its units too;
//! - readers lose units and records at once, before any file goes;
//! - nothing here is called by a thread that must not wait for the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{DiskUse, Moment, Needed, Plan, Reason, SpaceGuard, ages, disk_use, is_full, plan};
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
    /// What must stay, however old it is.
    pub(crate) needed: Needed,
    /// Log offset up to which queues and index have lost their files.
    pub(crate) expired_to: Arc<AtomicU64>,
}

/// What one run has found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleaned {
    /// The disk before the run.
    pub disk: DiskUse,
    /// What was deleted of the log, if anything.
    pub plan: Option<Plan>,
}

impl Keeper {
    /// By which those who deliver later say how far they are.
    pub fn needed(&self) -> &Needed {
        &self.needed
    }

    /// Looks at the disk, deletes what may go, and lets writers know whether there is room.
    pub fn clean(
        &self,
        config: &StoreConfig,
        clock: &Arc<dyn Clock>,
        is_asked: bool,
    ) -> Result<Cleaned, StoreError> {
        let mut disk = disk_use(&self.dir)?;
        if self.reaper.tell_disk(is_full(config, disk)) > 0 {
            disk = disk_use(&self.dir)?;
        }
        // Refused writes are a state, not a failure of this run.
        let _judged = self.space.judge(config, disk);
        let now_ms = clock.now_ms();
        let hour = self.zone.hour(now_ms);
        let moment = Moment { now_ms, hour, disk, is_asked, needed_from: u64::MAX };
        let plan = self.plan(config, moment);
        if let Some(plan) = &plan {
            self.carry_out(plan)?;
        }
        Ok(Cleaned { disk, plan })
    }

    /// Looks, while writes are refused, whether there is room again.
    pub fn look_for_room(&self, config: &StoreConfig) -> Result<(), StoreError> {
        if self.space.is_closed() {
            let _judged = self.space.judge(config, disk_use(&self.dir)?);
        }
        Ok(())
    }

    /// What goes: of what expired only that in which nothing waits any more.
    fn plan(&self, config: &StoreConfig, moment: Moment) -> Option<Plan> {
        let ages = ages(&self.reader);
        let expired = plan(config, &ages, &moment).filter(|plan| plan.reason != Reason::DiskFull);
        let Some(expired) = expired else { return plan(config, &ages, &moment) };
        match self.needed.oldest(&self.queues, expired.log_min, moment.now_ms) {
            Ok(None) => Some(expired),
            Ok(Some(waiting)) => plan(config, &ages, &Moment { needed_from: waiting.log_offset, ..moment }),
            Err(error) => {
                tracing::warn!(%error, "nothing expires while it cannot be told what still waits");
                None
            }
        }
    }

    fn carry_out(&self, plan: &Plan) -> Result<(), StoreError> {
        let taken = self.reader.segments().take_before(plan.log_min);
        let log_min = self.reader.min_offset();
        // Before anything that can fail: a file that nobody deletes would be a hole behind the younger ones that go.
        for segment in taken {
            self.reaper.delete(segment);
        }
        let Plan { segments, reason, .. } = *plan;
        tracing::info!(segments, ?reason, log_min, "old messages deleted");
        self.queues.correct_min(log_min)
    }

    /// Whether queues and index may have files that speak of nothing on the disk any more.
    pub fn is_behind(&self) -> bool {
        self.expired_to.load(Ordering::Relaxed) < self.reaper.gone_to()
    }

    /// Deletes these files; tells how many.
    pub fn follow(&self) -> Result<usize, StoreError> {
        let gone_to = self.reaper.gone_to();
        if self.expired_to.load(Ordering::Relaxed) >= gone_to {
            return Ok(0);
        }
        let derived_files = self.queues.expire(gone_to)? + self.index.expire(gone_to)?;
        self.expired_to.store(gone_to, Ordering::Relaxed);
        if derived_files > 0 {
            tracing::info!(log_min = gone_to, derived_files, "files of queues and index followed the log");
        }
        Ok(derived_files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retention::Reason;
    use crate::testing::{Sample, close_well, small_files, until};
    use crate::{AppendBatch, ManualClock, Opened, open};

    fn filled(dir: &tempfile::TempDir) -> Opened {
        let mut opened = open(small_files(dir.path()), Arc::new(ManualClock::at(0))).unwrap();
        for _ in 0..400 {
            Sample { queue_id: 0, fill: 1, body_bytes: 1_000 }.store(&mut opened, Sample::TOPIC, 1);
        }
        opened
    }

    fn later() -> Arc<dyn Clock> {
        Arc::new(ManualClock::at(i64::MAX / 2))
    }

    #[test]
    fn a_floor_that_changes_while_the_store_is_open_is_that_of_the_next_segment() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = filled(&dir);
        let free_bytes = 10 * opened.config.log_segment_bytes;
        let _disk = crate::faults::pretend_disk(dir.path(), DiskUse { free_bytes, used_percent: 10 });
        for (floor_bytes, has_room) in [(free_bytes, false), (0, true), (free_bytes, false), (1, true)] {
            let config = StoreConfig { disk_free_floor_bytes: floor_bytes, ..opened.config.clone() };
            opened.keeper.clean(&config, &later(), false).unwrap();
            let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
            let mut append = || {
                let mut batch = AppendBatch::default();
                Sample { queue_id: 0, fill: 1, body_bytes: 20_000 }.push(&mut batch, &queue);
                opened.log.append(&mut batch, 1)
            };
            // The next segment may be there already, or refused already: that is told first.
            let _told_before = append();
            let refused = (0..12).find_map(|_| append().err());
            assert_eq!(refused.is_none(), has_room, "{refused:?}");
        }
    }

    /// Waits until the segments are off the disk, and has their units follow.
    fn follow(opened: &Opened) -> usize {
        until("the segments are off the disk", || opened.reaper.gone_to() >= opened.reader.min_offset());
        opened.keeper.follow().unwrap()
    }

    fn files_below(dir: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
    }

    #[test]
    fn a_queue_that_cannot_be_looked_at_leaves_no_hole_in_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let opened = filled(&dir);
        let config = opened.config.clone();
        close_well(opened);
        let opened = open(config.clone(), later()).unwrap();
        let queue = dir.path().join("consumequeue").join(Sample::TOPIC).join("0");
        std::fs::rename(&queue, dir.path().join("away")).unwrap();
        assert!(opened.keeper.clean(&config, &later(), true).is_err());
        let log_min = opened.reader.min_offset();
        assert!(log_min > 0);
        until("the segments are off the disk", || opened.reaper.gone_to() >= log_min);
        std::fs::rename(dir.path().join("away"), &queue).unwrap();
        opened.keeper.follow().unwrap();
        assert!(opened.queues.get(Sample::TOPIC, 0).unwrap().min_offset() > 0);
    }

    /// The kill that comes when expired segments are out of the log and still on the disk: the next start takes them
    /// for part of the log, so it must find their units.
    #[test]
    fn units_stay_until_the_segments_they_speak_of_are_off_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let opened = filled(&dir);
        let derived =
            || files_below(&dir.path().join("consumequeue")) + files_below(&dir.path().join("index"));
        let before = derived();
        let fault = crate::faults::arm(&dir.path().join("commitlog"), crate::faults::Op::Remove, 0, 5);
        let cleaned = opened.keeper.clean(&opened.config, &later(), true).unwrap();
        assert!(cleaned.plan.is_some() && opened.reader.min_offset() > 0);
        until("the disk refuses", || fault.has_struck());
        assert_eq!((opened.keeper.follow().unwrap(), derived()), (0, before));
        let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
        assert!(queue.min_offset() > 0, "readers are told at once");
        let killed = tempfile::tempdir().unwrap();
        crate::testing::copy_dir(dir.path(), killed.path()).unwrap();
        let config = StoreConfig { dir: killed.path().to_path_buf(), ..opened.config.clone() };
        let again = open(config, Arc::new(ManualClock::at(0))).unwrap();
        assert_eq!(again.reader.min_offset(), 0);
        let queue = again.queues.get(Sample::TOPIC, 0).unwrap();
        assert_eq!((queue.min_offset(), queue.max_offset(), queue.units(0, 400).count()), (0, 400, 400));
        drop(fault);
        assert!(follow(&opened) > 0 && derived() < before);
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
        assert!(follow(&opened) > 0);
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
        follow(&opened);
        let (log_min, config) = (opened.reader.min_offset(), opened.config.clone());
        let min = opened.queues.get(Sample::TOPIC, 0).unwrap().min_offset();
        drop(opened);
        let opened = open(config, Arc::new(ManualClock::at(0))).unwrap();
        assert_eq!(opened.reader.min_offset(), log_min);
        let queue = opened.queues.get(Sample::TOPIC, 0).unwrap();
        assert_eq!((queue.min_offset(), queue.max_offset()), (min, 400));
    }
}
