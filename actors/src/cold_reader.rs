//! Cold readers: threads that fetch what a pull wants and the memory does not hold.
//!
//! Invariants:
//! - a page that is not in memory is first read here, never on an arbiter, and through the file: what the disk cannot
//!   read is an error that the pull is answered with;
//! - what a pull wants is found as its session finds it, units first, until nothing of it is missing;
//! - every pull that is taken comes back to its session;
//! - the number of pulls that wait is bounded; one more is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use troupemq_store::{LogReader, StoreError};

use crate::net::{Refusal, ToSession};
use crate::poison::Poison;
use crate::pull::Parcel;
use crate::pull::check::Resolved;
use crate::pull::read::{Bounds, Source, read};

/// Threads that read.
const THREADS: usize = 2;
/// Looks at what one pull wants, at most: what a filter turns away makes it want more.
const LOOKS_MAX: usize = 16;
/// Pulls that may wait for one thread.
const WAITING_MAX: usize = 1024;

/// The handle by which sessions reach the readers; cheap to clone. The threads end when the last is dropped.
#[derive(Debug, Clone)]
pub struct ColdReaders(Arc<Lines<Job>>);

#[derive(Debug)]
struct Job {
    /// The log, which goes with the job: a thread that waits for one keeps no file open.
    log: LogReader,
    bounds: Bounds,
    parcel: Box<Parcel>,
}

/// What waits for each thread.
#[derive(Debug)]
struct Lines<J> {
    threads: Vec<SyncSender<J>>,
    next: AtomicUsize,
}

impl<J> Lines<J> {
    /// The lines, and the other end of each for its thread.
    fn new() -> (Lines<J>, Vec<Receiver<J>>) {
        let (threads, ends) = (0..THREADS).map(|_| sync_channel(WAITING_MAX)).unzip();
        (Lines { threads, next: AtomicUsize::new(0) }, ends)
    }

    /// Lines a job up for the thread whose turn it is. A job that finds no room there, or nobody, comes back.
    fn line_up(&self, job: J) -> Result<(), J> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        self.threads[at].try_send(job).map_err(|refused| match refused {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }
}

impl ColdReaders {
    /// Starts the threads.
    pub fn start(poison: &Poison) -> std::io::Result<ColdReaders> {
        let (lines, ends) = Lines::new();
        for (at, jobs) in ends.into_iter().enumerate() {
            let vital = poison.guard("ColdReaders");
            std::thread::Builder::new().name(format!("cold-reader-{at}")).spawn(move || {
                let _vital = vital;
                work(&jobs);
            })?;
        }
        Ok(ColdReaders(Arc::new(lines)))
    }

    /// Fetches what a pull finds in `log` within `bounds`; the pull comes back to its session.
    ///
    /// # Errors
    /// The pull itself and why it is refused, if it finds no room: its arbiter must not wait for the disk.
    pub(crate) fn fetch(
        &self,
        log: &LogReader,
        bounds: Bounds,
        parcel: Box<Parcel>,
    ) -> Result<(), (Box<Parcel>, Refusal)> {
        let job = Job { log: log.clone(), bounds, parcel };
        self.0.line_up(job).map_err(|job| (job.parcel, no_room(&job.bounds)))
    }
}

fn no_room(bounds: &Bounds) -> Refusal {
    let remark = format!(
        "at most {} messages must be read from the disk, and {WAITING_MAX} pulls wait for each of {THREADS} threads \
         that do so already",
        bounds.wish
    );
    Refusal::busy(remark)
}

fn work(jobs: &Receiver<Job>) {
    while let Ok(Job { log, bounds, mut parcel }) = jobs.recv() {
        if let Err(error) = fetch(&log, bounds, &parcel) {
            tracing::error!(%error, "messages cannot be read from the disk");
            parcel.unreadable = Some(error.to_string());
        }
        give_back(parcel);
    }
}

/// Brings what a pull finds into memory.
fn fetch(log: &LogReader, bounds: Bounds, parcel: &Parcel) -> Result<(), StoreError> {
    let Resolved { queue, selects, .. } = &parcel.resolved;
    let source = Source { units: &queue.units, log, selects, bounds };
    for _ in 0..LOOKS_MAX {
        let reading = read(&source, parcel.header.queue_offset);
        if reading.lacks_units {
            queue.units.fetch(parcel.header.queue_offset, bounds.scan_max)?;
        }
        reading.cold.iter().try_for_each(|(log_offset, len)| log.fetch(*log_offset, *len))?;
        if !reading.is_cold() {
            break;
        }
    }
    Ok(())
}

fn give_back(parcel: Box<Parcel>) {
    let link = parcel.link.clone();
    // A session that is gone needs no answer.
    let _ = link.hand(ToSession::Resume(parcel));
}

#[cfg(test)]
mod tests {
    use troupemq_codec::ResponseCode;

    use super::*;
    use crate::config::BrokerConfig;

    #[test]
    fn a_read_that_finds_no_room_comes_back_at_once_and_the_others_stay() {
        let (lines, ends) = Lines::new();
        let room = THREADS * WAITING_MAX;
        for job in 0..room {
            assert_eq!(lines.line_up(job), Ok(()));
        }
        for job in room..room + THREADS {
            assert_eq!(lines.line_up(job), Err(job));
        }
        assert_eq!(ends[0].try_recv(), Ok(0));
        assert_eq!(lines.line_up(room), Ok(()), "there is room again");
        assert_eq!(ends[1].iter().take(WAITING_MAX).count(), WAITING_MAX);
    }

    #[test]
    fn who_finds_no_room_is_told_how_much_was_wanted_and_how_many_wait() {
        let refusal = no_room(&Bounds::of(&BrokerConfig::default(), 1 << 30, 0, 32));
        assert_eq!(refusal.code, ResponseCode::SYSTEM_BUSY);
        let told = "32 messages must be read from the disk, and 1024 pulls wait for each of 2";
        assert!(refusal.remark.contains(told), "{}", refusal.remark);
    }

    #[test]
    fn a_read_comes_back_if_the_thread_is_gone() {
        let (lines, ends) = Lines::new();
        drop(ends);
        assert_eq!(lines.line_up(7), Err(7));
    }
}
