//! Retention: the thread that saves the checkpoint and deletes what is old. Java: `CleanCommitLogService`,
//! `StoreCheckpoint`.
//!
//! Invariants:
//! - it waits for the disk, so it runs on a thread of its own: neither an arbiter nor a sync group waits for it;
//! - the checkpoint is saved about every second while the log grows, under steady load too, and soon after a start
//!   that recovered: who is killed again at once does not begin all over;
//! - memory of the process stays bounded however much is read: what is old is unmapped every round;
//! - a failure to delete is told and tried again at the next round; a failure to save poisons the node, because
//!   queues whose files cannot be flushed cannot be trusted.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use troupemq_store::commit_log::flusher::FlushWatch;
use troupemq_store::dispatch::DispatchFlusher;
use troupemq_store::retention::Keeper;
use troupemq_store::{LogReader, Marks, QueueTable, StoreConfig, StoreError};

use crate::config::NodeClock;
use crate::poison::Poison;

/// Time between two looks at the checkpoint.
const ROUND: Duration = Duration::from_secs(1);
/// Time from the start to the first such look.
const FIRST_ROUND: Duration = Duration::from_millis(100);
/// Rounds between two looks for what may be deleted.
const CLEAN_EVERY: u32 = 10;

/// Bytes behind the flushed position that stay mapped: consumers who keep up read there.
const KEEP_MAPPED_BYTES: u64 = 64 << 20;

/// What the thread owns.
#[derive(Debug)]
pub struct Upkeep {
    /// Lock, abort mark and checkpoint.
    pub marks: Marks,
    /// How far the log is flushed.
    pub log: FlushWatch,
    /// The log's segments.
    pub reader: LogReader,
    /// The queues, whose ends stand in the checkpoint.
    pub queues: QueueTable,
    /// Flushes queues and index.
    pub derived: DispatchFlusher,
    /// Deletes.
    pub keeper: Keeper,
    /// The store's settings, which may change.
    pub config: Arc<ArcSwap<StoreConfig>>,
    /// Where the time comes from.
    pub clock: NodeClock,
}

/// The handle of the thread.
#[derive(Debug, Clone)]
pub struct Retention(Sender<Order>);

#[derive(Debug)]
enum Order {
    Clean,
    Stop,
}

impl Retention {
    /// Starts the thread. It gives the marks back when it is told to stop.
    pub fn start(upkeep: Upkeep, poison: Poison) -> std::io::Result<(Retention, JoinHandle<Marks>)> {
        let (sender, orders) = channel();
        let thread = std::thread::Builder::new().name("retention".to_owned()).spawn(move || {
            let _vital = poison.guard("retention");
            work(upkeep, &orders, &poison)
        })?;
        Ok((Retention(sender), thread))
    }

    /// Deletes what is too old now, whatever the hour. Java: DELETE_EXPIRED_COMMITLOG.
    pub fn clean_now(&self) {
        let _ = self.0.send(Order::Clean);
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let _ = self.0.send(Order::Stop);
    }
}

fn work(mut upkeep: Upkeep, orders: &Receiver<Order>, poison: &Poison) -> Marks {
    let mut saved_at = upkeep.marks.saved_to();
    let mut rounds = 0;
    let mut wait = FIRST_ROUND;
    loop {
        let is_asked = match orders.recv_timeout(std::mem::replace(&mut wait, ROUND)) {
            Ok(Order::Clean) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return upkeep.marks,
        };
        if poison.cause().is_some() {
            continue;
        }
        match upkeep.save_since(saved_at) {
            Ok(flushed_to) => saved_at = flushed_to,
            Err(error) => poison.trip(format!("the checkpoint could not be saved: {error}")),
        }
        upkeep.unmap_old(saved_at);
        rounds += 1;
        if is_asked || rounds >= CLEAN_EVERY {
            rounds = 0;
            upkeep.clean(is_asked);
        }
    }
}

impl Upkeep {
    /// Saves the checkpoint if the log was flushed beyond `saved_at`; tells how far it was.
    fn save_since(&mut self, saved_at: u64) -> Result<u64, StoreError> {
        let flushed_to = self.log.flushed_to();
        if flushed_to != saved_at {
            self.marks.save(&self.log, &self.queues, &self.derived)?;
        }
        Ok(flushed_to)
    }

    /// Takes what readers of old messages have mapped out of the process again; the page cache keeps it.
    fn unmap_old(&self, flushed_to: u64) {
        let old = flushed_to.saturating_sub(KEEP_MAPPED_BYTES);
        for segment in self.reader.segments().snapshot().iter().take_while(|segment| segment.end() <= old) {
            if let Err(error) = segment.mapping().drop_pages(0..segment.mapping().len()) {
                tracing::debug!(%error, "pages of old messages stay mapped");
            }
        }
    }

    fn clean(&self, is_asked: bool) {
        if let Err(error) = self.keeper.clean(&self.config.load(), &self.clock.0, is_asked) {
            tracing::warn!(%error, "old messages could not be deleted");
        }
    }
}
