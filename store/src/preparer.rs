//! The thread that has the next segment ready before the log needs it, and memory behind the next bytes.
//!
//! Invariants:
//! - at most one segment is prepared ahead, and each order is answered once, in order;
//! - a prepared segment has all its blocks and its name on the disk: no later store finds the disk full;
//! - populating is advice: it never changes a byte and its failure is no error.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::Clock;
use crate::config::{FlushMode, StoreConfig};
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::paths::{Paths, remove, sync_dir};
use crate::retention::disk_use;
use crate::segment::{Allocate, Segment, SegmentWriter, segment_name};
use crate::segments::Segments;

/// How long the log waits for a segment that should have been ready.
const PATIENCE: Duration = Duration::from_secs(5);
/// Notices and orders that wait; a notice too many is dropped, the next one says more.
const WISHES_MAX: usize = 64;
/// Bytes populated between two looks at the wishes.
const POPULATE_STEP_BYTES: u64 = 4 << 20;
/// Window of a log that is hardly written.
const POPULATE_IDLE_BYTES: u64 = 2 << 20;
/// Two notices closer than this mean load.
const LOAD_NANOS: u64 = 1_000_000_000;
const ZERO_STEP_BYTES: usize = 1 << 20;

/// What the log asks for.
enum Wish {
    /// The segment that begins here.
    Segment(u64),
    /// The log has reached this offset.
    Populate(u64),
}

/// How segments are made.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) paths: Paths,
    pub(crate) segment_bytes: u64,
    pub(crate) flush: FlushMode,
    pub(crate) populate_bytes: u64,
    pub(crate) free_floor_bytes: u64,
}

impl Recipe {
    pub(crate) fn new(paths: &Paths, config: &StoreConfig) -> Recipe {
        Recipe {
            paths: paths.clone(),
            segment_bytes: config.log_segment_bytes,
            flush: config.flush,
            populate_bytes: config.populate_bytes,
            free_floor_bytes: config.disk_free_floor_bytes,
        }
    }
}

/// The log's end of the thread. Dropping it ends the thread and removes an unused segment.
pub(crate) struct Preparer {
    wishes: Option<SyncSender<Wish>>,
    ready: Receiver<Result<SegmentWriter, StoreError>>,
    ordered: Option<u64>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Preparer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Preparer").field("ordered", &self.ordered).finish_non_exhaustive()
    }
}

impl Preparer {
    /// Starts the thread.
    pub(crate) fn start(
        recipe: Recipe,
        segments: Arc<Segments>,
        clock: Arc<dyn Clock>,
    ) -> Result<Preparer, StoreError> {
        let (wishes, inbox) = sync_channel(WISHES_MAX);
        let (outbox, ready) = sync_channel(1);
        let dir = recipe.paths.commit_log();
        let work =
            Work { recipe, segments, clock, outbox, next: None, populated_to: 0, window: 0, told_at: 0 };
        let thread = std::thread::Builder::new()
            .name("segment-preparer".to_owned())
            .spawn(move || work.run(&inbox))
            .map_err(StoreError::io("start a thread for", &dir))?;
        Ok(Preparer { wishes: Some(wishes), ready, ordered: None, thread: Some(thread) })
    }

    /// Orders the segment that begins at `start`, unless one is ordered.
    pub(crate) fn order(&mut self, start: u64) {
        if self.ordered.is_none() && self.wish(Wish::Segment(start)) {
            self.ordered = Some(start);
        }
    }

    /// Takes the segment that begins at `start`, waiting for it if it is not ready.
    pub(crate) fn take(&mut self, start: u64) -> Result<SegmentWriter, StoreError> {
        self.order(start);
        let late = StoreError::NotPrepared { log_offset: start, waited_ms: 5_000 };
        match self.ready.recv_timeout(PATIENCE) {
            Ok(answer) => {
                self.ordered = None;
                let writer = answer?;
                assert_eq!(writer.segment().start(), start, "segments are ordered one after the other");
                Ok(writer)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(late),
        }
    }

    /// Tells how far the log has come, so that memory is ready ahead of it.
    pub(crate) fn reached(&self, log_offset: u64) {
        self.wish(Wish::Populate(log_offset));
    }

    fn wish(&self, wish: Wish) -> bool {
        self.wishes.as_ref().is_some_and(|wishes| wishes.try_send(wish).is_ok())
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.wishes = None;
        if self.ordered.take().is_some()
            && let Ok(Ok(unused)) = self.ready.recv_timeout(PATIENCE)
        {
            let path = unused.segment().path().to_path_buf();
            drop(unused);
            if let Err(error) = remove(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove an unused segment");
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// The thread's state.
struct Work {
    recipe: Recipe,
    segments: Arc<Segments>,
    clock: Arc<dyn Clock>,
    outbox: SyncSender<Result<SegmentWriter, StoreError>>,
    next: Option<Arc<Segment>>,
    populated_to: u64,
    window: u64,
    told_at: u64,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Wish>) {
        let mut target = 0;
        loop {
            // While memory is still to be populated, wishes are only glanced at.
            let wish = if self.populated_to < target {
                inbox.recv_timeout(Duration::ZERO)
            } else {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match wish {
                Ok(Wish::Segment(start)) => {
                    let made = self.make(start);
                    self.next = made.as_ref().ok().map(|writer| Arc::clone(writer.segment()));
                    self.populated_to = self.populated_to.min(start);
                    if self.outbox.send(made).is_err() {
                        return;
                    }
                }
                Ok(Wish::Populate(reached)) => target = self.target(reached),
                Err(RecvTimeoutError::Timeout) => self.populate_step(target),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Up to where memory is wanted now. The window doubles while notices come quickly.
    fn target(&mut self, reached: u64) -> u64 {
        let now = self.clock.nanos();
        let is_loaded = self.window > 0 && now.saturating_sub(self.told_at) < LOAD_NANOS;
        self.told_at = now;
        let wide = if is_loaded { self.window.saturating_mul(2) } else { POPULATE_IDLE_BYTES };
        self.window = wide.min(self.recipe.populate_bytes);
        self.populated_to = self.populated_to.max(reached);
        reached + self.window
    }

    fn populate_step(&mut self, target: u64) {
        let at = self.populated_to;
        let next = self.next.iter().find(|next| next.start() <= at && at < next.end()).map(Arc::clone);
        let Some(segment) = self.segments.at(at).or(next) else {
            self.populated_to = target;
            return;
        };
        let to = target.min(at + POPULATE_STEP_BYTES).min(segment.end());
        let range: Option<Range<usize>> = (|| {
            let from = usize::try_from(at - segment.start()).ok()?;
            Some(from..usize::try_from(to - segment.start()).ok()?)
        })();
        if let Some(Err(error)) = range.map(|range| segment.mapping().populate(range)) {
            tracing::debug!(at, %error, "memory ahead of the log is not populated");
        }
        self.populated_to = to;
    }

    fn make(&self, start: u64) -> Result<SegmentWriter, StoreError> {
        let dir = self.recipe.paths.commit_log();
        let len = self.recipe.segment_bytes;
        let recycled = self.recycled()?;
        if let Some(old) = &recycled {
            let new = dir.join(segment_name(start));
            let renamed = faults::pass(Op::Rename, old, || std::fs::rename(old, &new));
            renamed.map_err(StoreError::io("recycle", old))?;
        }
        if recycled.is_none() {
            self.check_space(&dir)?;
        }
        let made = SegmentWriter::create(&dir, start, len, Allocate::Now);
        let writer = made.and_then(|mut writer| {
            if recycled.is_none() && self.recipe.flush == FlushMode::Sync {
                write_zeros(writer.segment())?;
            }
            if recycled.is_none() {
                writer.tail_is_zero();
            }
            writer.segment().sync_all()?;
            sync_dir(&dir)?;
            Ok(writer)
        });
        if writer.is_err() {
            // Half a segment would look like the end of another store.
            let _gone = remove(&dir.join(segment_name(start)));
        }
        writer
    }

    /// Refuses a segment that would take the last of the disk.
    fn check_space(&self, dir: &Path) -> Result<(), StoreError> {
        let free_bytes = disk_use(dir)?.free_bytes;
        let floor_bytes = self.recipe.free_floor_bytes.saturating_add(self.recipe.segment_bytes);
        if free_bytes < floor_bytes {
            return Err(StoreError::DiskFull { dir: dir.to_path_buf(), free_bytes, floor_bytes });
        }
        Ok(())
    }

    /// A file of the right size that expired before.
    fn recycled(&self) -> Result<Option<PathBuf>, StoreError> {
        let dir = self.recipe.paths.recycled();
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(_) => return Ok(None),
        };
        for entry in entries {
            let entry = entry.map_err(StoreError::io("list", &dir))?;
            let fits =
                entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == self.recipe.segment_bytes);
            if fits {
                return Ok(Some(entry.path()));
            }
        }
        Ok(None)
    }
}

/// Writes the whole file once: a flush of written blocks waits for no change of the file's block list.
fn write_zeros(segment: &Segment) -> Result<(), StoreError> {
    let zeros = vec![0_u8; ZERO_STEP_BYTES];
    let len = segment.end() - segment.start();
    let mut at = 0;
    while at < len {
        let step = usize::try_from(len - at).unwrap_or(ZERO_STEP_BYTES).min(ZERO_STEP_BYTES);
        segment.write_at(&zeros[..step], segment.start() + at)?;
        at += step as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn preparer(paths: &Paths, flush: FlushMode) -> Preparer {
        let recipe = Recipe {
            paths: paths.clone(),
            segment_bytes: 65_536,
            flush,
            populate_bytes: 1 << 20,
            free_floor_bytes: 0,
        };
        Preparer::start(recipe, Arc::new(Segments::new(Vec::new())), Arc::new(SystemClock::new())).unwrap()
    }

    fn paths(dir: &tempfile::TempDir) -> Paths {
        let paths = Paths::below(dir.path());
        paths.create().unwrap();
        paths
    }

    #[test]
    fn an_ordered_segment_is_there_at_full_size() {
        for flush in [FlushMode::Async, FlushMode::Sync] {
            let dir = tempfile::tempdir().unwrap();
            let paths = paths(&dir);
            let mut preparer = preparer(&paths, flush);
            preparer.order(65_536);
            preparer.reached(0);
            let writer = preparer.take(65_536).unwrap();
            assert_eq!(writer.remaining(), 65_536);
            assert!(writer.whole().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn an_unused_segment_is_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let mut preparer = preparer(&paths, FlushMode::Async);
        preparer.order(0);
        drop(preparer);
        assert_eq!(std::fs::read_dir(paths.commit_log()).unwrap().count(), 0);
    }

    #[test]
    fn an_expired_segment_of_the_same_size_is_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        std::fs::create_dir(paths.recycled()).unwrap();
        std::fs::write(paths.recycled().join("a"), vec![7; 100]).unwrap();
        std::fs::write(paths.recycled().join("b"), vec![7; 65_536]).unwrap();
        let writer = preparer(&paths, FlushMode::Async).take(131_072).unwrap();
        assert!(writer.whole().iter().all(|byte| *byte == 7));
        assert!(!paths.recycled().join("b").try_exists().unwrap());
        assert!(writer.segment().path().ends_with("00000000000000131072"));
    }

    #[test]
    fn a_segment_that_cannot_be_made_is_an_error_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path().join("missing"));
        let error = preparer(&paths, FlushMode::Async).take(0).unwrap_err();
        assert!(error.to_string().contains("missing/commitlog"), "{error}");
    }
}
