//! The thread that unmaps and deletes old segments, so that no other thread pays for it.
//!
//! Invariants:
//! - files go in the order they came, oldest first: a crash in between leaves a log without gaps, and one that cannot
//!   be removed is tried again before the next;
//! - `gone_to` follows the disk: whatever lies in front of it comes back after no crash;
//! - a segment in use by a reader is kept mapped until the last reader is done, its file goes before that: who
//!   reads slowly holds no younger file on the disk;
//! - only a segment nobody maps is recycled: a slice never sees another record's bytes;
//! - on a full disk none is kept, and those that were kept go before any message does.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::paths::{Paths, create_dir, remove, sync_dir};
use crate::segment::Segment;

/// How often segments in use are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Looks at a segment in use before its file goes without being recycled.
const LOOKS_MAX: u32 = 5;

/// Hands segments to the thread; clones share it. The thread ends with the last clone, after its work.
#[derive(Debug, Clone)]
pub struct Reaper {
    // Dropped before the thread is waited for: without a sender it ends.
    inbox: Sender<Arc<Segment>>,
    pinned: Arc<AtomicUsize>,
    gone_to: Arc<AtomicU64>,
    /// Whether the disk is full: then no file is kept for use again.
    is_disk_full: Arc<AtomicBool>,
    recycled: PathBuf,
    _thread: Arc<Thread>,
}

#[derive(Debug)]
struct Thread {
    handle: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts the thread for a log that begins at `log_min` on the disk; it keeps up to `recycled_max` files of
    /// `segment_bytes` for use again.
    pub fn start(
        paths: &Paths,
        log_min: u64,
        segment_bytes: u64,
        recycled_max: u32,
    ) -> Result<Reaper, StoreError> {
        let (inbox, outbox) = channel();
        let pinned = Arc::new(AtomicUsize::new(0));
        let gone_to = Arc::new(AtomicU64::new(log_min));
        let is_disk_full = Arc::new(AtomicBool::new(false));
        let dir = paths.recycled();
        let work = Work {
            dir: dir.clone(),
            segment_bytes,
            recycled_max,
            pinned: Arc::clone(&pinned),
            gone_to: Arc::clone(&gone_to),
            is_disk_full: Arc::clone(&is_disk_full),
        };
        let thread = std::thread::Builder::new()
            .name("segment-reaper".to_owned())
            .spawn(move || work.run(&outbox))
            .map_err(StoreError::io("start a thread for", &dir))?;
        let thread = Arc::new(Thread { handle: Some(thread) });
        Ok(Reaper { inbox, pinned, gone_to, is_disk_full, recycled: dir, _thread: thread })
    }

    /// Deletes or recycles the file of `segment`, which is in no list any more.
    pub fn delete(&self, segment: Arc<Segment>) {
        // The thread lives as long as this sender: it cannot be gone.
        let _sent = self.inbox.send(segment);
    }

    /// Where the log begins on the disk: no file in front of this offset is there any more, after a crash neither.
    pub fn gone_to(&self) -> u64 {
        self.gone_to.load(Ordering::Acquire)
    }

    /// Says whether the disk is full. On one that is, files kept for use again go now, and no further one is kept;
    /// tells how many went.
    pub(crate) fn tell_disk(&self, is_full: bool) -> usize {
        self.is_disk_full.store(is_full, Ordering::Release);
        if !is_full {
            return 0;
        }
        // A folder that is not there holds none.
        let kept = std::fs::read_dir(&self.recycled).into_iter().flatten().flatten();
        let mut gone = 0;
        for path in kept.map(|entry| entry.path()) {
            match remove(&path) {
                Ok(()) => gone += 1,
                Err(error) => tracing::warn!(%error, "cannot delete a segment that was kept for use again"),
            }
        }
        if gone > 0 {
            tracing::info!(gone, "the disk is full: segments kept for use again deleted");
        }
        gone
    }

    /// Deleted segments that readers still hold.
    pub fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            let _ended = handle.join();
        }
    }
}

struct Work {
    dir: PathBuf,
    segment_bytes: u64,
    recycled_max: u32,
    pinned: Arc<AtomicUsize>,
    gone_to: Arc<AtomicU64>,
    is_disk_full: Arc<AtomicBool>,
}

impl Work {
    fn run(&self, inbox: &Receiver<Arc<Segment>>) {
        let mut held = Held::default();
        loop {
            let next = if held.is_empty() {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                inbox.recv_timeout(LOOK_AGAIN)
            };
            let is_last = matches!(next, Err(RecvTimeoutError::Disconnected));
            held.waiting.extend(next.ok());
            self.look(&mut held, is_last);
            self.pinned.store(held.waiting.len() + held.deleted.len(), Ordering::Relaxed);
            if is_last {
                return;
            }
        }
    }

    /// Gets rid of files from the oldest on, and of maps that nobody uses any more.
    fn look(&self, held: &mut Held, is_last: bool) {
        let before = held.deleted.len();
        while let Some(oldest) = held.waiting.front() {
            let is_in_use = is_in_use(oldest);
            held.looks += 1;
            if is_in_use && !is_last && held.looks < LOOKS_MAX {
                break;
            }
            let is_gone = !is_in_use && !is_last && self.recycle(oldest) || self.delete(oldest, held.fails);
            if !is_gone {
                held.fails += 1;
                break;
            }
            (held.looks, held.fails) = (0, 0);
            held.deleted.extend(held.waiting.pop_front());
        }
        self.publish(&held.deleted[before..]);
        held.deleted.retain(is_in_use);
    }

    /// Says that these files are gone, once no loss of power can bring them back.
    fn publish(&self, gone: &[Arc<Segment>]) {
        let Some((end, dir)) = gone.last().and_then(|last| Some((last.end(), last.path().parent()?))) else {
            return;
        };
        match sync_dir(dir) {
            Ok(()) => drop(self.gone_to.fetch_max(end, Ordering::AcqRel)),
            // The next file that goes takes these names with it, or the next start sees what is there.
            Err(error) => tracing::warn!(%error, "it is not sure that deleted segments are off the disk"),
        }
    }

    fn delete(&self, segment: &Segment, fails: u32) -> bool {
        let removed = remove(segment.path());
        match &removed {
            Ok(()) => tracing::info!(path = %segment.path().display(), "segment deleted"),
            Err(error) if fails == 0 => tracing::warn!(%error, "cannot delete a segment; it is tried again"),
            Err(_) => {}
        }
        removed.is_ok()
    }

    fn recycle(&self, segment: &Segment) -> bool {
        if segment.end() - segment.start() != self.segment_bytes
            || self.recycled_max == 0
            || self.is_disk_full.load(Ordering::Acquire)
        {
            return false;
        }
        if create_dir(&self.dir).is_err() {
            return false;
        }
        let kept = std::fs::read_dir(&self.dir).map_or(usize::MAX, Iterator::count);
        let Some(name) = segment.path().file_name() else { return false };
        let is_kept = kept < self.recycled_max as usize
            && self.rename(segment, &self.dir.join(name)).is_ok()
            && sync_dir(&self.dir).is_ok();
        if is_kept {
            tracing::info!(path = %segment.path().display(), "segment kept for use again");
        }
        is_kept
    }

    fn rename(&self, segment: &Segment, to: &Path) -> std::io::Result<()> {
        faults::pass(Op::Rename, segment.path(), || std::fs::rename(segment.path(), to))
    }
}

/// Segments the thread has not done with.
#[derive(Debug, Default)]
struct Held {
    /// Their files are there; oldest first.
    waiting: VecDeque<Arc<Segment>>,
    /// How often the oldest was looked at.
    looks: u32,
    /// How often it could not be removed.
    fails: u32,
    /// Their files are gone; readers still have them mapped.
    deleted: Vec<Arc<Segment>>,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.deleted.is_empty()
    }
}

/// Whether anything but the thread's own handle keeps the map.
fn is_in_use(segment: &Arc<Segment>) -> bool {
    Arc::strong_count(segment) > 1 || Arc::strong_count(segment.mapping()) > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Allocate, SegmentWriter};
    use crate::testing::until;

    fn full(dir: &Path) -> Arc<Segment> {
        full_at(dir, 0)
    }

    fn full_at(dir: &Path, start: u64) -> Arc<Segment> {
        let mut writer = SegmentWriter::create(dir, start, 4096, Allocate::Now).unwrap();
        writer.append(&[1; 4096]).unwrap();
        Arc::clone(writer.segment())
    }

    #[test]
    fn a_segment_nobody_reads_is_kept_for_use_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path());
        let work = work(&paths);
        for _ in 0..2 {
            let segment = full(dir.path());
            let path = segment.path().to_path_buf();
            let mut held = Held { waiting: [segment].into(), ..Held::default() };
            work.look(&mut held, false);
            assert!(held.is_empty() && !path.try_exists().unwrap());
            assert_eq!(std::fs::read_dir(paths.recycled()).unwrap().count(), 1);
        }
    }

    fn work(paths: &Paths) -> Work {
        Work {
            dir: paths.recycled(),
            segment_bytes: 4096,
            recycled_max: 1,
            pinned: Arc::default(),
            gone_to: Arc::default(),
            is_disk_full: Arc::default(),
        }
    }

    /// A kill would leave a log with a hole in it otherwise, and a log with a hole is not opened.
    #[test]
    fn no_younger_file_goes_before_an_older_one_that_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path());
        let work = work(&paths);
        let segments: VecDeque<_> = [0, 4096, 8192].map(|start| full_at(dir.path(), start)).into();
        let slice = segments[0].bytes(10, 5).unwrap();
        let mut held = Held { waiting: segments, ..Held::default() };
        for _ in 1..LOOKS_MAX {
            work.look(&mut held, false);
            assert_eq!((held.waiting.len(), held.deleted.len()), (3, 0));
        }
        work.look(&mut held, false);
        assert_eq!((held.waiting.len(), held.deleted.len()), (0, 1));
        assert_eq!(&slice[..], [1; 5]);
        // The one that was read is not used again, its bytes are still looked at.
        let kept: Vec<_> =
            std::fs::read_dir(paths.recycled()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(kept, ["00000000000000004096"]);
        drop(slice);
        work.look(&mut held, false);
        assert!(held.is_empty());
    }

    /// What derives from a segment goes when its file is gone, and not before.
    #[test]
    fn a_file_that_cannot_be_removed_holds_the_younger_ones_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let work = Work { recycled_max: 0, ..work(&Paths::below(dir.path())) };
        let segments: VecDeque<_> = [0, 4096].map(|start| full_at(dir.path(), start)).into();
        let paths: Vec<_> = segments.iter().map(|segment| segment.path().to_path_buf()).collect();
        let mut held = Held { waiting: segments, ..Held::default() };
        let fault = faults::arm(&paths[0], Op::Remove, 0, 5);
        for _ in 0..3 {
            work.look(&mut held, false);
        }
        assert!(fault.has_struck() && paths[1].try_exists().unwrap());
        assert_eq!((held.waiting.len(), work.gone_to.load(Ordering::Relaxed)), (2, 0));
        drop(fault);
        work.look(&mut held, false);
        assert!(held.is_empty() && paths.iter().all(|path| !path.try_exists().unwrap()));
        assert_eq!(work.gone_to.load(Ordering::Relaxed), 8192);
    }

    #[test]
    fn a_full_disk_keeps_no_segment_for_use_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path());
        let reaper = Reaper::start(&paths, 0, 4096, 1).unwrap();
        let kept = || std::fs::read_dir(paths.recycled()).map_or(0, Iterator::count);
        let dispose = |start| {
            reaper.delete(full_at(dir.path(), start));
            until("the segment is gone", || reaper.gone_to() >= start + 4096);
        };
        dispose(0);
        assert_eq!((kept(), reaper.tell_disk(false), kept()), (1, 0, 1));
        assert_eq!((reaper.tell_disk(true), kept()), (1, 0));
        dispose(4096);
        assert_eq!(kept(), 0);
        assert_eq!(reaper.tell_disk(false), 0);
        dispose(8192);
        assert_eq!(kept(), 1);
    }

    #[test]
    fn a_segment_in_use_is_pinned_and_still_readable() {
        let dir = tempfile::tempdir().unwrap();
        let segment = full(dir.path());
        let slice = segment.bytes(10, 5).unwrap();
        assert!(is_in_use(&segment));
        drop(slice);
        assert!(!is_in_use(&segment));
    }

    #[test]
    fn the_thread_ends_with_the_last_handle_and_deletes_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let reaper = Reaper::start(&Paths::below(dir.path()), 0, 4096, 0).unwrap();
        let segment = full(dir.path());
        let slice = segment.bytes(10, 5).unwrap();
        let path = segment.path().to_path_buf();
        reaper.delete(segment);
        drop(reaper);
        assert!(!path.try_exists().unwrap());
        assert_eq!(&slice[..], [1; 5]);
    }
}
