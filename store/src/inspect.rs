//! Looking at a store that no broker has open: what is wrong with it, what is in it, and making its derived
//! files anew.
//!
//! Invariants:
//! - `check` and the dumps change no byte of a data file;
//! - each finding names its file and the place in it, in words an operator can act on;
//! - a store that is open elsewhere is refused.

#[cfg(test)]
mod dump_test;
mod entries;
mod index;
#[cfg(test)]
mod inspect_test;
mod lost;
mod queues;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use troupemq_codec::message::{RecordView, sys_flag};

use self::index::StoredIndex;
use self::queues::StoredQueues;
use crate::abort_mark::AbortMark;
use crate::checkpoint::{Checkpoint, CheckpointFile, Reached};
use crate::clock::Clock;
use crate::commit_log::recover::{Known, damage_at, heads, once_on_disk};
use crate::commit_log::scan::{Look, Step, step};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::index::{Geometry, USUAL};
use crate::light;
use crate::open::{Closing, Opened, RecoveryReport, close, open};
use crate::paths::{Paths, remove};
use crate::process_lock::ProcessLock;
use crate::progress::Progress;
use crate::segment::{Ahead, SegmentWriter};
use crate::segments::list_files;

pub use self::entries::StoredEntry;
pub use self::queues::StoredUnit;
pub use self::tables::StoredTable;
pub use crate::commit_log::recover::Damage;

/// Why a walk ended that its caller has ended.
const STOPPED: &str = "stopped";

/// Something an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file it is about.
    pub file: PathBuf,
    /// Byte in the file.
    pub at: u64,
    /// What is wrong there.
    pub what: String,
    /// Whether the next start repairs it by itself.
    pub heals: bool,
}

/// What a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Start of the log.
    pub log_min: u64,
    /// End of the log.
    pub log_end: u64,
    /// Records between.
    pub records: u64,
    /// Queues that hold units.
    pub queues: usize,
    /// Store time of the first record, epoch ms; 0 if there is none.
    pub first_store_ms: i64,
    /// Store time of the last one.
    pub last_store_ms: i64,
    /// Whether the last user has closed the store.
    pub was_closed: bool,
}

/// A store opened for looking only.
#[derive(Debug)]
pub struct StoreView {
    paths: Paths,
    segments: Vec<SegmentWriter>,
    /// What index files may have been made with.
    geometries: Vec<Geometry>,
    _lock: ProcessLock,
}

impl StoreView {
    /// Opens the store in `dir`.
    pub fn open(dir: &Path) -> Result<StoreView, StoreError> {
        let paths = Paths::below(dir);
        let files = list_files(&paths.commit_log())?;
        if files.is_empty() {
            let cause = std::io::Error::from(rustix::io::Errno::NOENT);
            return Err(StoreError::io("find a log in", &paths.commit_log())(cause));
        }
        let lock = ProcessLock::take(dir, &paths.lock())?;
        let open =
            |file: &crate::segments::SegmentFile| SegmentWriter::open(&file.path, file.start, file.len);
        // A last file of no length is what a crash leaves; it holds nothing to look at.
        let segments = files.iter().filter(|file| file.len > 0).map(open).collect::<Result<_, _>>()?;
        Ok(StoreView { paths, segments, geometries: vec![USUAL], _lock: lock })
    }

    /// The same view, which knows the settings of its broker: they tell how a file of the index is to be read that is
    /// not full yet.
    pub fn with_settings(mut self, config: &StoreConfig) -> StoreView {
        let (slots, entries) = (config.index_slots_max, config.index_entries_max);
        self.geometries.insert(0, Geometry { slots, entries });
        self
    }

    /// Hands every record from `from` on to `visit`, with the CRC checked, until `visit` answers false. Passes over
    /// what is damaged, as the next start does, and tells `lost` of it. Answers where the log ends and why.
    pub fn records(
        &self,
        from: u64,
        mut visit: impl FnMut(&RecordView<'_>) -> bool,
        mut lost: impl FnMut(&Damage),
    ) -> Result<(u64, &'static str), StoreError> {
        let on_disk_to = self.once_on_disk()?;
        let mut at = from;
        loop {
            let (end, why) = self.sound_records(at, &mut visit)?;
            if why == STOPPED {
                return Ok((end, why));
            }
            match damage_at(&self.segments, (end, why), on_disk_to)? {
                Some(damage) => {
                    lost(&damage);
                    at = damage.to;
                }
                None => return Ok((end, why)),
            }
        }
    }

    /// The same up to the first place without a record.
    fn sound_records(
        &self,
        from: u64,
        visit: &mut impl FnMut(&RecordView<'_>) -> bool,
    ) -> Result<(u64, &'static str), StoreError> {
        let mut at = from.max(self.segments.first().map_or(0, |first| first.segment().start()));
        for writer in &self.segments {
            let segment = writer.segment();
            if at >= segment.end() {
                continue;
            }
            if at < segment.start() {
                return Ok((at, "a segment is missing"));
            }
            let mut ahead = Ahead::over(segment);
            loop {
                let skip = usize::try_from(at - segment.start()).unwrap_or(usize::MAX);
                let rest = writer.whole().get(skip..).unwrap_or_default();
                ahead.want_record(at, rest)?;
                match step(rest, at, Look::Crc) {
                    Step::Record(record) if visit(&record) => at += record.total_size() as u64,
                    Step::Record(_) => return Ok((at, STOPPED)),
                    Step::SegmentEnd => break,
                    Step::End(why) => return Ok((at, why)),
                }
            }
            at = segment.end();
        }
        Ok((at, "no further segment"))
    }

    /// Up to where the next start passes over what is damaged.
    fn once_on_disk(&self) -> Result<u64, StoreError> {
        let known = Known {
            was_closed: !AbortMark::is_set(&self.paths.abort())?,
            reached: self.checkpoint()?.reached,
            ..Known::default()
        };
        Ok(once_on_disk(&heads(&self.segments), &known))
    }

    /// Hands every unit of a queue to `visit`, until it answers false.
    pub fn units(
        &self,
        topic: &str,
        queue_id: i32,
        visit: impl FnMut(&StoredUnit) -> bool,
    ) -> Result<(), StoreError> {
        StoredQueues::below(&self.paths).units(topic, queue_id, visit)
    }

    /// Hands every entry of the index to `visit`, until it answers false, and to `unknown` the files whose entries
    /// cannot be told from their slots.
    pub fn entries(
        &self,
        visit: impl FnMut(&StoredEntry<'_>) -> bool,
        unknown: impl FnMut(&Path),
    ) -> Result<(), StoreError> {
        entries::each(&self.paths.index(), &self.geometries, visit, unknown)
    }

    /// Check points and tables as they stand: of each the generation that the next start takes, and those it cannot.
    pub fn tables(&self) -> Result<Vec<StoredTable>, StoreError> {
        tables::read_all(&self.paths)
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        Checkpoint::read(&self.paths.checkpoint())
    }

    /// Compares the files of the store with each other; tells every finding, and sums up.
    pub fn check(&self, tell: &mut dyn FnMut(Finding)) -> Result<Summary, StoreError> {
        let mut summary =
            Summary { was_closed: !AbortMark::is_set(&self.paths.abort())?, ..Summary::default() };
        if !summary.was_closed {
            tell(finding(&self.paths.abort(), 0, "the last broker has not closed this store", true));
        }
        let mut queues = StoredQueues::below(&self.paths);
        queues.heal_from(self.replayed_from(summary.was_closed)?);
        let mut index = StoredIndex::below(&self.paths.index(), &self.geometries)?;
        let mut failure = None;
        let mut damages = Vec::new();
        let mut progress = self.progress();
        let visit = |record: &RecordView<'_>| {
            let log_offset = record.log_offset().cast_unsigned();
            progress.tell(log_offset, "queues and index are compared with the log");
            if summary.records == 0 {
                summary.first_store_ms = record.store_timestamp_ms();
            }
            summary.records += 1;
            summary.last_store_ms = record.store_timestamp_ms();
            let mut compared = index.compare(record, tell);
            if compared.is_ok() && sys_flag::is_visible(record.sys_flag()) {
                compared = queues.compare(record, tell);
            }
            failure = compared.err();
            failure.is_none()
        };
        let (log_end, why) = self.records(0, visit, |damage| damages.push(*damage))?;
        if let Some(error) = failure {
            return Err(error);
        }
        damages.iter().for_each(|damage| self.tell_damage(damage, tell));
        summary.log_min = self.segments.first().map_or(0, |first| first.segment().start());
        summary.log_end = log_end;
        self.check_end(log_end, why, tell)?;
        self.check_checkpoint(log_end, tell)?;
        index.finish(log_end, tell)?;
        summary.queues = queues.finish(summary.log_min, log_end, tell)?;
        lost::check(&self.paths, &self.tables()?, tell)?;
        Ok(summary)
    }

    /// A walk over all segments, as long as their files are.
    fn progress(&self) -> Progress {
        let [first, last] = [self.segments.first(), self.segments.last()];
        let start = first.map_or(0, |first| first.segment().start());
        Progress::over(start..last.map_or(start, |last| last.segment().end()))
    }

    /// From where on the next start offers the log to queues and index, whatever they look like.
    fn replayed_from(&self, was_closed: bool) -> Result<u64, StoreError> {
        let reached = self.checkpoint()?.reached;
        Ok(if was_closed { u64::MAX } else { reached.map_or(0, |reached| reached.dispatched_to) })
    }

    fn tell_damage(&self, damage: &Damage, tell: &mut dyn FnMut(Finding)) {
        let holds = |writer: &&SegmentWriter| writer.segment().end() > damage.from;
        let Some(segment) = self.segments.iter().find(holds).map(SegmentWriter::segment) else { return };
        let (bytes, why) = (damage.to - damage.from, damage.why);
        let what = format!(
            "{bytes} bytes hold no record any more ({why}): their messages are lost, later ones stay"
        );
        tell(finding(segment.path(), damage.from - segment.start(), &what, false));
    }

    /// Whether anything but zeros stands behind the end.
    fn check_end(
        &self,
        log_end: u64,
        why: &'static str,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<(), StoreError> {
        for writer in self.segments.iter().filter(|writer| writer.segment().end() > log_end) {
            let segment = writer.segment();
            let at = log_end.saturating_sub(segment.start());
            let rest = usize::try_from(at).ok().and_then(|at| writer.whole().get(at..)).unwrap_or_default();
            segment.ready(segment.start() + at, rest.len())?;
            let Some(first) = rest.iter().position(|byte| *byte != 0) else { continue };
            let heals = segment.start() <= log_end;
            let what = match heals {
                true => format!("behind the end of the log stand bytes that are no record: {why}"),
                false => {
                    "this segment lies behind the end of the log and is deleted at the next start".to_owned()
                }
            };
            tell(finding(segment.path(), at + first as u64, &what, heals));
        }
        Ok(())
    }

    fn check_checkpoint(&self, log_end: u64, tell: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        let path = self.paths.checkpoint();
        let Some(reached) = self.checkpoint()?.reached else { return Ok(()) };
        if reached.flushed_to > log_end {
            let lost = reached.flushed_to - log_end;
            let what = format!("{lost} bytes were on the disk once and are no longer in the log");
            tell(finding(&path, 0, &what, false));
        }
        Ok(())
    }
}

/// Deletes everything that derives from the log and makes it anew. The tables stay.
pub fn rebuild(config: StoreConfig, clock: Arc<dyn Clock>) -> Result<RecoveryReport, StoreError> {
    let paths = Paths::below(&config.dir);
    drop(StoreView::open(&config.dir)?);
    // What is there is made again, whatever the settings say of new messages.
    let has_light_queues = list_names(&paths.consume_queue())?.iter().any(|name| light::is_light(name));
    let config = StoreConfig {
        light_queues_enabled: config.light_queues_enabled || has_light_queues,
        multi_dispatch_enabled: config.multi_dispatch_enabled || has_light_queues,
        ..config
    };
    // The timers are entered anew by the broker's next start; how far their delivery came stays where it is noted.
    remove(&paths.timer_wheel())?;
    for dir in [paths.consume_queue(), paths.batch_consume_queue(), paths.index(), paths.timer_log()] {
        match std::fs::remove_dir_all(&dir) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", &dir)(cause));
            }
            _ => {}
        }
    }
    forget_derived(&paths)?;
    let Opened { log, flusher, dispatch, queues, marks, report, .. } = open(config, clock)?;
    close(Closing { log, flusher, dispatch, queues, marks })?;
    Ok(report)
}

/// Takes out of the checkpoint what it says of derived files; how far the log was on the disk stays.
fn forget_derived(paths: &Paths) -> Result<(), StoreError> {
    let checkpoint = Checkpoint::read(&paths.checkpoint())?;
    let forget = |reached: Reached| Reached { dispatched_to: 0, queues: 0, units: 0, ..reached };
    let checkpoint = Checkpoint { reached: checkpoint.reached.map(forget), index_time_ms: 0, ..checkpoint };
    CheckpointFile::at(paths.checkpoint()).save(&checkpoint)
}

/// Names of what is in a folder; none if there is no such folder.
fn list_names(dir: &Path) -> Result<Vec<String>, StoreError> {
    match std::fs::read_dir(dir) {
        Ok(entries) => {
            Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
        }
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(StoreError::io("list", dir)(cause)),
    }
}

fn finding(file: &Path, at: u64, what: &str, heals: bool) -> Finding {
    Finding { file: file.to_path_buf(), at, what: what.to_owned(), heals }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let outlook = match self.heals {
            true => "the next start repairs it",
            false => "it stays until you act",
        };
        write!(out, "{} at byte {}: {}; {outlook}", self.file.display(), self.at, self.what)
    }
}
