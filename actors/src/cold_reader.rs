//! Cold readers: threads that fetch what a pull wants and the memory does not hold.
//!
//! Invariants:
//! - a page that is not in memory is first touched here, never on an arbiter;
//! - every pull given in comes back to its session, fetched or not;
//! - the number of pulls that wait is bounded; one more is served at once by its arbiter, slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use troupemq_store::LogReader;

use crate::net::ToSession;
use crate::poison::Poison;
use crate::pull::Parcel;
use crate::pull::read::Reading;

/// Threads that read.
const THREADS: usize = 2;
/// Pulls that may wait for one thread.
const WAITING_MAX: usize = 1024;
/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// The handle by which sessions reach the readers; cheap to clone. The threads end when the last is dropped.
#[derive(Debug, Clone)]
pub struct ColdReaders {
    threads: Arc<[SyncSender<Job>]>,
    next: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Job {
    ranges: Vec<(u64, usize)>,
    parcel: Box<Parcel>,
}

impl ColdReaders {
    /// Starts the threads.
    pub fn start(log: &LogReader, poison: &Poison) -> std::io::Result<ColdReaders> {
        let mut threads = Vec::with_capacity(THREADS);
        for at in 0..THREADS {
            let (sender, jobs) = sync_channel(WAITING_MAX);
            let (log, vital) = (log.clone(), poison.guard("ColdReaders"));
            std::thread::Builder::new().name(format!("cold-reader-{at}")).spawn(move || {
                let _vital = vital;
                work(&jobs, &log);
            })?;
            threads.push(sender);
        }
        Ok(ColdReaders { threads: threads.into(), next: Arc::default() })
    }

    /// Fetches what a pull found; the pull comes back to its session.
    pub(crate) fn fetch(&self, reading: Reading, parcel: Box<Parcel>) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        let job = Job { ranges: reading.cold, parcel };
        if let Err(undelivered) = self.threads[at].try_send(job) {
            let (std::sync::mpsc::TrySendError::Full(job) | std::sync::mpsc::TrySendError::Disconnected(job)) =
                undelivered;
            give_back(job.parcel);
        }
    }
}

fn work(jobs: &Receiver<Job>, log: &LogReader) {
    while let Ok(job) = jobs.recv() {
        for (log_offset, len) in job.ranges {
            let touched = log.look(log_offset, len, |bytes| {
                bytes.iter().step_by(PAGE_BYTES).fold(0_u8, |sum, byte| sum ^ byte)
            });
            std::hint::black_box(touched);
        }
        give_back(job.parcel);
    }
}

fn give_back(parcel: Box<Parcel>) {
    let link = parcel.link.clone();
    // A session that is gone needs no answer.
    let _ = link.hand(ToSession::Resume(parcel));
}
