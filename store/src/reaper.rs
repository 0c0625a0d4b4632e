//! The thread that unmaps and deletes old segments, so that no other thread pays for it.
//!
//! Invariants:
//! - a segment in use by a reader is kept mapped until the last reader is done;
//! - only a segment nobody maps is recycled: a slice never sees another record's bytes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::StoreError;
use crate::paths::{Paths, sync_dir};
use crate::segment::Segment;

/// How often segments in use are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Hands segments to the thread; clones share it. The thread ends with the last clone, after its work.
#[derive(Debug, Clone)]
pub struct Reaper {
    // Dropped before the thread is waited for: without a sender it ends.
    inbox: Sender<Arc<Segment>>,
    pinned: Arc<AtomicUsize>,
    _thread: Arc<Thread>,
}

#[derive(Debug)]
struct Thread {
    handle: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts the thread; it keeps up to `recycled_max` files of `segment_bytes` for use again.
    pub fn start(paths: &Paths, segment_bytes: u64, recycled_max: u32) -> Result<Reaper, StoreError> {
        let (inbox, outbox) = channel();
        let pinned = Arc::new(AtomicUsize::new(0));
        let dir = paths.recycled();
        let work = Work { dir: dir.clone(), segment_bytes, recycled_max, pinned: Arc::clone(&pinned) };
        let thread = std::thread::Builder::new()
            .name("segment-reaper".to_owned())
            .spawn(move || work.run(&outbox))
            .map_err(StoreError::io("start a thread for", &dir))?;
        Ok(Reaper { inbox, pinned, _thread: Arc::new(Thread { handle: Some(thread) }) })
    }

    /// Deletes or recycles the file of `segment`, which is in no list any more.
    pub fn delete(&self, segment: Arc<Segment>) {
        // The thread lives as long as this sender: it cannot be gone.
        let _sent = self.inbox.send(segment);
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
}

impl Work {
    fn run(&self, inbox: &Receiver<Arc<Segment>>) {
        let mut held: Vec<Arc<Segment>> = Vec::new();
        loop {
            let next = if held.is_empty() {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                inbox.recv_timeout(LOOK_AGAIN)
            };
            let is_last = matches!(next, Err(RecvTimeoutError::Disconnected));
            held.extend(next.ok());
            held.retain(|segment| !is_last && is_in_use(segment) || !self.bury(segment, is_last));
            self.pinned.store(held.len(), Ordering::Relaxed);
            if is_last {
                return;
            }
        }
    }

    /// Gets rid of the file; true once it is gone.
    fn bury(&self, segment: &Segment, is_last: bool) -> bool {
        if !is_last && self.recycle(segment) {
            return true;
        }
        match std::fs::remove_file(segment.path()) {
            Ok(()) => tracing::info!(path = %segment.path().display(), "segment deleted"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %segment.path().display(), %error, "cannot delete a segment");
            }
        }
        true
    }

    fn recycle(&self, segment: &Segment) -> bool {
        if segment.end() - segment.start() != self.segment_bytes || self.recycled_max == 0 {
            return false;
        }
        if std::fs::create_dir_all(&self.dir).is_err() {
            return false;
        }
        let kept = std::fs::read_dir(&self.dir).map_or(usize::MAX, Iterator::count);
        let Some(name) = segment.path().file_name() else { return false };
        let is_kept = kept < self.recycled_max as usize
            && std::fs::rename(segment.path(), self.dir.join(name)).is_ok()
            && sync_dir(&self.dir).is_ok();
        if is_kept {
            tracing::info!(path = %segment.path().display(), "segment kept for use again");
        }
        is_kept
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

    fn full(dir: &std::path::Path) -> Arc<Segment> {
        let mut writer = SegmentWriter::create(dir, 0, 4096, Allocate::Now).unwrap();
        writer.append(&[1; 4096]);
        Arc::clone(writer.segment())
    }

    #[test]
    fn a_segment_nobody_reads_is_kept_for_use_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path());
        let work =
            Work { dir: paths.recycled(), segment_bytes: 4096, recycled_max: 1, pinned: Arc::default() };
        let first = full(dir.path());
        assert!(work.bury(&first, false));
        assert!(!first.path().try_exists().unwrap());
        assert_eq!(std::fs::read_dir(paths.recycled()).unwrap().count(), 1);
        let second = full(dir.path());
        assert!(work.bury(&second, false));
        assert_eq!(std::fs::read_dir(paths.recycled()).unwrap().count(), 1);
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
        let reaper = Reaper::start(&Paths::below(dir.path()), 4096, 0).unwrap();
        let segment = full(dir.path());
        let slice = segment.bytes(10, 5).unwrap();
        let path = segment.path().to_path_buf();
        reaper.delete(segment);
        drop(reaper);
        assert!(!path.try_exists().unwrap());
        assert_eq!(&slice[..], [1; 5]);
    }
}
