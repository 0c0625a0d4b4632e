//! The thread that has the next segment ready before the log needs it.
//!
//! Invariants:
//! - at most one segment is prepared ahead, and each order is answered once, in order;
//! - a prepared segment has all its blocks and its name on the disk: no later write finds the disk full;
//! - a prepared segment reads as zeros, also one that was another before;
//! - with synchronous flush its zeros are written to the disk, as far as there is time for it before the log needs it:
//!   a flush of blocks that were written before needs no change of the file's block list.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::commit_log::recover::zero_from;
use crate::config::{FlushMode, StoreConfig};
use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::paths::{Paths, remove, sync_dir};
use crate::retention::{SpaceGuard, disk_use};
use crate::segment::{Allocate, SegmentWriter, segment_name};

/// How long the log waits for a segment that should have been ready, ms.
const PATIENCE_MS: u64 = 5_000;
const PATIENCE: Duration = Duration::from_millis(PATIENCE_MS);

/// Bytes of zeros that are written and forced to the disk between two looks whether the log waits. No more are on their
/// way to the disk when the log is flushed beside them.
const FILL_STEP_BYTES: u64 = 1 << 20;

/// How segments are made.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) paths: Paths,
    pub(crate) segment_bytes: u64,
    /// Knows how many bytes must stay free.
    pub(crate) space: SpaceGuard,
    /// Whether the zeros of a segment are written to the disk.
    pub(crate) fills: bool,
}

/// A segment that is ready to be written.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) writer: SegmentWriter,
    /// The blocks before this offset were written.
    pub(crate) filled_to: u64,
}

impl Recipe {
    pub(crate) fn new(paths: &Paths, config: &StoreConfig, space: SpaceGuard) -> Recipe {
        Recipe {
            paths: paths.clone(),
            segment_bytes: config.log_segment_bytes,
            space,
            fills: config.flush == FlushMode::Sync,
        }
    }
}

/// The log's end of the thread. Dropping it ends the thread and removes an unused segment.
pub(crate) struct Preparer {
    orders: Option<SyncSender<u64>>,
    ready: Receiver<Result<Prepared, StoreError>>,
    ordered: Option<u64>,
    /// The answer to the order, once it was looked for and there.
    answer: Option<Result<Prepared, StoreError>>,
    /// Whether the log waits for what it ordered.
    is_awaited: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Preparer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Preparer").field("ordered", &self.ordered).finish_non_exhaustive()
    }
}

impl Preparer {
    /// Starts the thread.
    pub(crate) fn start(recipe: Recipe) -> Result<Preparer, StoreError> {
        let (orders, inbox) = sync_channel(1);
        let (outbox, ready) = sync_channel(1);
        let dir = recipe.paths.commit_log();
        let is_awaited = Arc::new(AtomicBool::new(false));
        let work = Work { recipe, is_awaited: Arc::clone(&is_awaited) };
        let thread = std::thread::Builder::new()
            .name("segment-preparer".to_owned())
            .spawn(move || work.run(&inbox, &outbox))
            .map_err(StoreError::io("start a thread for", &dir))?;
        Ok(Preparer {
            orders: Some(orders),
            ready,
            ordered: None,
            answer: None,
            is_awaited,
            thread: Some(thread),
        })
    }

    /// Orders the segment that begins at `start`, unless one is ordered.
    pub(crate) fn order(&mut self, start: u64) {
        let has_taken = |orders: &SyncSender<u64>| orders.try_send(start).is_ok();
        if self.ordered.is_none() && self.orders.as_ref().is_some_and(has_taken) {
            self.ordered = Some(start);
        }
    }

    /// Whether `take` of the segment that begins at `start` would not wait. Orders it; again, if it was refused before
    /// anybody waited for it: there may be room now.
    pub(crate) fn is_ready(&mut self, start: u64) -> bool {
        self.order(start);
        if self.answer.is_none() {
            self.answer = self.ready.try_recv().ok();
            let was_awaited = self.is_awaited.swap(self.answer.is_none(), Ordering::Relaxed);
            if !was_awaited && self.answer.take_if(|answer| answer.is_err()).is_some() {
                self.ordered = None;
                self.is_awaited.store(true, Ordering::Relaxed);
                self.order(start);
            }
        }
        self.answer.is_some()
    }

    /// Takes the segment that begins at `start`, waiting for it if it is not ready.
    pub(crate) fn take(&mut self, start: u64) -> Result<Prepared, StoreError> {
        self.order(start);
        self.is_awaited.store(true, Ordering::Relaxed);
        let late = StoreError::NotPrepared { log_offset: start, waited_ms: PATIENCE_MS };
        match self.answer.take().map_or_else(|| self.ready.recv_timeout(PATIENCE), Ok) {
            Ok(answer) => {
                self.ordered = None;
                self.is_awaited.store(false, Ordering::Relaxed);
                let prepared = answer?;
                let is_next = prepared.writer.segment().start() == start;
                assert!(is_next, "segments are ordered one after the other");
                Ok(prepared)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(late),
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.orders = None;
        self.is_awaited.store(true, Ordering::Relaxed);
        if self.ordered.take().is_some()
            && let Ok(Ok(unused)) = self.answer.take().map_or_else(|| self.ready.recv_timeout(PATIENCE), Ok)
        {
            let path = unused.writer.segment().path().to_path_buf();
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

/// What the thread works with.
struct Work {
    recipe: Recipe,
    is_awaited: Arc<AtomicBool>,
}

impl Work {
    fn run(&self, orders: &Receiver<u64>, outbox: &SyncSender<Result<Prepared, StoreError>>) {
        for start in orders {
            if outbox.send(self.make(start)).is_err() {
                return;
            }
        }
    }

    fn make(&self, start: u64) -> Result<Prepared, StoreError> {
        let dir = self.recipe.paths.commit_log();
        let prepared = self.make_file(&dir, start);
        if prepared.is_err() {
            // Half a segment would look like the end of another store.
            let _gone = remove(&dir.join(segment_name(start)));
        }
        prepared
    }

    fn make_file(&self, dir: &Path, start: u64) -> Result<Prepared, StoreError> {
        let recycled = self.recycle(dir, start)?;
        if recycled.is_none() {
            self.recipe.check_space(dir)?;
        }
        let mut writer = SegmentWriter::create(dir, start, self.recipe.segment_bytes, Allocate::Now)?;
        let filled_to = match recycled {
            Some(filled_to) => filled_to,
            None => self.fill(&mut writer)?,
        };
        writer.segment().sync_all()?;
        sync_dir(dir)?;
        Ok(Prepared { writer, filled_to })
    }

    /// Makes an old file the segment, if there is one that can be, and answers up to where its blocks were written; one
    /// that cannot makes room for a new one.
    fn recycle(&self, dir: &Path, start: u64) -> Result<Option<u64>, StoreError> {
        let Some(old) = self.recipe.recycled()? else { return Ok(None) };
        let renamed = SegmentWriter::open(&old, start, self.recipe.segment_bytes).and_then(|mut writer| {
            // What it held is gone from the disk before it has a name of the log.
            let filled_to = self.fill(&mut writer)?;
            zero_from(&mut writer, filled_to)?;
            let new = dir.join(segment_name(start));
            let rename = || std::fs::rename(&old, &new);
            faults::pass(Op::Rename, &old, rename).map_err(StoreError::io("recycle", &old))?;
            Ok(filled_to)
        });
        if let Err(error) = &renamed {
            tracing::warn!(%error, "an old segment cannot be used again and is removed");
            remove(&old)?;
        }
        Ok(renamed.ok())
    }

    /// Writes zeros from the start on, to the end or until the log waits for the segment; answers how far it came.
    fn fill(&self, writer: &mut SegmentWriter) -> Result<u64, StoreError> {
        let (mut at, end) = (writer.segment().start(), writer.segment().end());
        while self.recipe.fills && at < end && !self.is_awaited.load(Ordering::Relaxed) {
            let to = end.min(at + FILL_STEP_BYTES);
            writer.write_zeros(at..to)?;
            writer.segment().sync()?;
            at = to;
        }
        Ok(at)
    }
}

impl Recipe {
    /// Refuses a segment that would take the last of the disk.
    fn check_space(&self, dir: &Path) -> Result<(), StoreError> {
        let free_bytes = disk_use(dir)?.free_bytes;
        let floor_bytes = self.space.floor_bytes().saturating_add(self.segment_bytes);
        if free_bytes < floor_bytes {
            return Err(StoreError::DiskFull { dir: dir.to_path_buf(), free_bytes, floor_bytes });
        }
        Ok(())
    }

    /// A file of the right size that expired before.
    fn recycled(&self) -> Result<Option<PathBuf>, StoreError> {
        let dir = self.paths.recycled();
        // It is not there until a segment is kept; one that cannot be listed gives none either, and a new file is made.
        let Ok(entries) = std::fs::read_dir(&dir) else { return Ok(None) };
        for entry in entries {
            let entry = entry.map_err(StoreError::io("list", &dir))?;
            let fits = entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == self.segment_bytes);
            if fits {
                return Ok(Some(entry.path()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::until;

    fn preparer(paths: &Paths) -> Preparer {
        Preparer::start(recipe(paths, false)).unwrap()
    }

    fn recipe(paths: &Paths, fills: bool) -> Recipe {
        Recipe { paths: paths.clone(), segment_bytes: 65_536, space: SpaceGuard::default(), fills }
    }

    fn work(paths: &Paths, is_awaited: bool) -> Work {
        Work { recipe: recipe(paths, true), is_awaited: Arc::new(AtomicBool::new(is_awaited)) }
    }

    fn paths(dir: &tempfile::TempDir) -> Paths {
        let paths = Paths::below(dir.path());
        paths.create().unwrap();
        paths
    }

    #[test]
    fn an_ordered_segment_is_there_at_full_size() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let mut preparer = preparer(&paths);
        preparer.order(65_536);
        let Prepared { writer, .. } = preparer.take(65_536).unwrap();
        assert_eq!(writer.remaining(), 65_536);
        assert!(writer.whole().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn an_unused_segment_is_removed_at_the_end() {
        for is_looked_for in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let paths = paths(&dir);
            let mut preparer = preparer(&paths);
            preparer.order(0);
            if is_looked_for {
                until("the segment is ready", || preparer.is_ready(0));
            }
            drop(preparer);
            assert_eq!(std::fs::read_dir(paths.commit_log()).unwrap().count(), 0);
        }
    }

    #[test]
    fn what_is_ready_is_taken_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let mut preparer = preparer(&paths(&dir));
        until("the segment is ready", || preparer.is_ready(65_536));
        // The thread has nothing more to say: only what was looked for can be taken.
        assert!(preparer.ready.try_recv().is_err());
        assert_eq!(preparer.take(65_536).unwrap().writer.segment().start(), 65_536);
        assert_eq!(preparer.ordered, None);
    }

    #[test]
    fn a_segment_that_was_refused_before_it_was_needed_is_ordered_again_once_it_is() {
        let (orders, inbox) = sync_channel(1);
        let (outbox, ready) = sync_channel(1);
        let refused = || Err(StoreError::NotPrepared { log_offset: 7, waited_ms: 0 });
        let (orders, ordered, is_awaited) = (Some(orders), Some(7), Arc::default());
        let mut preparer = Preparer { orders, ready, ordered, answer: None, is_awaited, thread: None };
        outbox.send(refused()).unwrap();
        assert!(!preparer.is_ready(7) && preparer.is_awaited.load(Ordering::Relaxed));
        assert_eq!((inbox.try_recv(), preparer.is_ready(7)), (Ok(7), false));
        outbox.send(refused()).unwrap();
        assert!(preparer.is_ready(7), "what is refused while it is waited for is told");
        assert!(preparer.take(7).is_err() && inbox.try_recv().is_err());
    }

    #[test]
    fn an_expired_segment_of_the_same_size_is_used_again_and_reads_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        std::fs::create_dir(paths.recycled()).unwrap();
        std::fs::write(paths.recycled().join("a"), vec![7; 100]).unwrap();
        std::fs::write(paths.recycled().join("b"), vec![7; 65_536]).unwrap();
        let Prepared { writer, .. } = preparer(&paths).take(131_072).unwrap();
        assert!(writer.whole().iter().all(|byte| *byte == 0));
        assert!(!paths.recycled().join("b").try_exists().unwrap());
        assert!(writer.segment().path().ends_with("00000000000000131072"));
    }

    #[test]
    fn with_synchronous_flush_zeros_are_written_unless_the_log_waits() {
        for (is_awaited, filled_to) in [(false, 196_608), (true, 131_072)] {
            for is_recycled in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                let paths = paths(&dir);
                if is_recycled {
                    std::fs::create_dir(paths.recycled()).unwrap();
                    std::fs::write(paths.recycled().join("a"), vec![7; 65_536]).unwrap();
                }
                let prepared = work(&paths, is_awaited).make(131_072).unwrap();
                assert_eq!(prepared.filled_to, filled_to);
                let bytes = std::fs::read(prepared.writer.segment().path()).unwrap();
                assert!(bytes.len() == 65_536 && bytes.iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn a_segment_whose_zeros_the_disk_refuses_is_an_error_and_no_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let fault = faults::arm(dir.path(), Op::Write, 0, 28);
        let error = work(&paths, false).make(0).unwrap_err();
        assert!(fault.has_struck() && error.is_out_of_space(), "{error}");
        assert_eq!(std::fs::read_dir(paths.commit_log()).unwrap().count(), 0);
    }

    #[test]
    fn a_segment_that_cannot_be_made_is_an_error_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path().join("missing"));
        let error = preparer(&paths).take(0).unwrap_err();
        assert!(error.to_string().contains("missing/commitlog"), "{error}");
    }
}
