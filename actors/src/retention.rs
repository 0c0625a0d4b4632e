//! Retention: the thread that saves the checkpoint and deletes what is old. Java: `CleanCommitLogService`,
//! `StoreCheckpoint`.
//!
//! Invariants:
//! - it waits for the disk, so it runs on a thread of its own: neither an arbiter nor a sync group waits for it;
//! - the checkpoint is saved about every three seconds while the log grows, under steady load too, and soon after a
//!   start that recovered: who is killed again at once does not begin all over;
//! - queues lose units on purpose here alone, between two checkpoints: no start takes that for damage;
//! - while writes are refused it looks every round whether there is room again;
//! - memory of the process stays bounded however much is read: what is old is unmapped every round;
//! - a failure to delete is told and tried again at the next round; a failure to save poisons the node, because
//!   queues whose files cannot be flushed cannot be trusted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::commit_log::flusher::FlushWatch;
use troupemq_store::dispatch::DispatchFlusher;
use troupemq_store::retention::{Keeper, Needed};
use troupemq_store::{LogReader, Marks, QueueTable, StoreConfig, StoreError};

use crate::config::NodeClock;
use crate::held::{Held, hold};
use crate::net::Refusal;
use crate::poison::Poison;

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Time from the start to the first round.
const FIRST_ROUND: Duration = Duration::from_millis(100);
/// Rounds from one look at the checkpoint to the next. Whatever is saved, the slots of the index are written out, and
/// who puts keys has to fault them in anew.
const SAVE_EVERY: u32 = 3;
/// Rounds from one look for what may be deleted to the next; a changed setting is looked at in the next round.
const CLEAN_EVERY: u32 = 10;

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
pub struct Retention {
    orders: Sender<Order>,
    needed: Needed,
}

/// How much went: topics or files.
type Gone = Result<usize, Refusal>;

#[derive(Debug)]
enum Order {
    Clean,
    Remove(Vec<Text>, Held<Gone>),
    Follow(Held<Gone>),
    Stop,
}

impl Retention {
    /// Starts the thread. It gives the marks back when it is told to stop.
    pub fn start(upkeep: Upkeep, poison: Poison) -> std::io::Result<(Retention, JoinHandle<Marks>)> {
        let (sender, orders) = channel();
        let needed = upkeep.keeper.needed().clone();
        let thread = std::thread::Builder::new().name("retention".to_owned()).spawn(move || {
            let _vital = poison.guard("retention");
            work(upkeep, &orders, &poison)
        })?;
        Ok((Retention { orders: sender, needed }, thread))
    }

    /// Notes how far the delay levels are: what waits in them is kept, however old it is.
    pub fn tell_places(&self, places: &BTreeMap<i32, i64>) {
        self.needed.tell_places(places);
    }

    /// Deletes what is too old now, whatever the hour. Java: DELETE_EXPIRED_COMMITLOG.
    pub fn clean_now(&self) {
        // A thread that is gone deletes nothing: the node is poisoned or stops.
        let _ = self.orders.send(Order::Clean);
    }

    /// Deletes the queues of topics that are gone; once that is answered no kill brings them back. Tells how many.
    pub async fn remove_queues(&self, topics: Vec<Text>) -> Gone {
        self.ask(|held| Order::Remove(topics, held)).await
    }

    /// Deletes the files of queues and index that speak of nothing on the disk any more; tells how many.
    pub async fn follow(&self) -> Gone {
        self.ask(Order::Follow).await
    }

    async fn ask(&self, order: impl FnOnce(Held<Gone>) -> Order) -> Gone {
        let (held, waiting) = hold();
        // With a thread that is gone the order is lost, and who waits learns of that.
        let _ = self.orders.send(order(held));
        waiting.await.unwrap_or_else(|_| Err(Refusal::gone("the thread that deletes")))
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        // One that has ended already is what is wanted.
        let _ = self.orders.send(Order::Stop);
    }

    /// One that does nothing but delete these queues, for tests without a store.
    #[cfg(test)]
    pub(crate) fn of_queues(queues: QueueTable) -> Retention {
        let (sender, orders) = channel();
        std::thread::spawn(move || {
            for order in orders {
                if let Order::Remove(topics, held) = order {
                    held.answer(told(remove(&queues, &topics)));
                }
            }
        });
        Retention { orders: sender, needed: Needed::default() }
    }
}

fn work(mut upkeep: Upkeep, orders: &Receiver<Order>, poison: &Poison) -> Marks {
    let mut saved_at = upkeep.marks.saved_to();
    // The first round saves: a start may have recovered.
    let (mut unsaved, mut uncleaned) = (SAVE_EVERY, 0);
    let mut settings = upkeep.config.load_full();
    let mut wait = FIRST_ROUND;
    loop {
        let order = match orders.recv_timeout(std::mem::replace(&mut wait, ROUND)) {
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return upkeep.marks,
            order => order.ok(),
        };
        if poison.cause().is_some() {
            continue;
        }
        let is_asked = matches!(order, Some(Order::Clean));
        (unsaved, uncleaned) = (unsaved + 1, uncleaned + 1);
        let mut saved = upkeep.carry_out(order).map(|()| saved_at);
        if unsaved >= SAVE_EVERY {
            unsaved = 0;
            saved = saved.and_then(|saved_at| upkeep.save_since(saved_at));
        }
        match saved {
            Ok(flushed_to) => saved_at = flushed_to,
            Err(error) => poison.trip(format!("the checkpoint could not be saved: {error}")),
        }
        // What readers of old messages have brought into the process.
        upkeep.reader.unmap_old(0..u64::MAX);
        let before = std::mem::replace(&mut settings, upkeep.config.load_full());
        let has_changed = !Arc::ptr_eq(&before, &settings);
        if is_asked || has_changed || uncleaned >= CLEAN_EVERY {
            uncleaned = 0;
            if let Err(error) = upkeep.clean(is_asked) {
                poison.trip(format!("the checkpoint could not be saved: {error}"));
            }
        } else if let Err(error) = upkeep.keeper.look_for_room(&settings) {
            tracing::warn!(%error, "nobody knows whether there is room again");
        }
    }
}

impl Upkeep {
    /// Deletes what is asked for. An error is one of the checkpoint; others are told to who asked.
    fn carry_out(&mut self, order: Option<Order>) -> Result<(), StoreError> {
        let (held, gone) = match order {
            Some(Order::Remove(topics, held)) => (held, self.lose(|kept| remove(&kept.queues, &topics))?),
            Some(Order::Follow(held)) => (held, self.lose(|kept| kept.keeper.follow())?),
            Some(Order::Clean | Order::Stop) | None => return Ok(()),
        };
        held.answer(told(gone));
        Ok(())
    }

    /// Has queues lose units on purpose. The checkpoint says so before, and counts anew after: whenever a kill comes,
    /// the next start neither takes them for damaged nor reads the whole log, which would bring them back.
    fn lose(
        &mut self,
        lose: impl FnOnce(&Upkeep) -> Result<usize, StoreError>,
    ) -> Result<Result<usize, StoreError>, StoreError> {
        self.marks.expect_loss()?;
        let gone = lose(self);
        self.marks.save(&self.log, &self.queues, &self.derived)?;
        Ok(gone)
    }

    /// Saves the checkpoint if the log was flushed beyond `saved_at`; tells how far it was.
    fn save_since(&mut self, saved_at: u64) -> Result<u64, StoreError> {
        let flushed_to = self.log.flushed_to();
        if flushed_to != saved_at {
            self.marks.save(&self.log, &self.queues, &self.derived)?;
        }
        Ok(flushed_to)
    }

    /// Deletes what is old. An error is one of the checkpoint.
    fn clean(&mut self, is_asked: bool) -> Result<(), StoreError> {
        let cleaned = self.keeper.clean(&self.config.load(), &self.clock.0, is_asked).map(drop);
        let followed = match self.keeper.is_behind() {
            true => self.lose(|kept| kept.keeper.follow())?.map(drop),
            false => Ok(()),
        };
        if let Err(error) = cleaned.and(followed) {
            tracing::warn!(%error, "old messages could not be deleted");
        }
        Ok(())
    }
}

/// Deletes the queues of topics; tells of how many.
fn remove(queues: &QueueTable, topics: &[Text]) -> Result<usize, StoreError> {
    topics.iter().try_for_each(|topic| queues.remove(topic))?;
    Ok(topics.len())
}

fn told(gone: Result<usize, StoreError>) -> Gone {
    gone.map_err(|error| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use troupemq_store::faults::{Op, hold_up};
    use troupemq_store::testing::{Sample, copy_dir, small_files, until};
    use troupemq_store::{ManualClock, Opened, open};

    use super::*;

    /// A store of two topics in several segments, idle: everything is flushed and in the checkpoint.
    fn idle(dir: &Path) -> Upkeep {
        let clock = Arc::new(ManualClock::at(i64::MAX / 2));
        let mut opened = open(small_files(dir), clock.clone()).expect("a new store opens");
        for number in 0..400 {
            let topic = if number % 2 == 0 { "Kept" } else { "Other" };
            Sample { queue_id: 0, fill: 1, body_bytes: 1_000 }.store(&mut opened, topic, 1);
        }
        let Opened { reader, mut flusher, dispatch, queues, marks, keeper, config, .. } = opened;
        flusher.flush().expect("the disk takes it");
        let mut upkeep = Upkeep {
            marks,
            log: flusher.watch(),
            reader,
            queues,
            derived: dispatch.flusher().clone(),
            keeper,
            config: Arc::new(ArcSwap::from_pointee(config)),
            clock: NodeClock(clock),
        };
        upkeep.save_since(0).expect("the checkpoint is saved");
        upkeep
    }

    /// Opens what a kill would leave of the store at this moment.
    fn after_a_kill(dir: &Path) -> Opened {
        let killed = tempfile::tempdir().expect("a folder");
        copy_dir(dir, killed.path()).expect("the store is copied");
        open(small_files(killed.path()), Arc::new(ManualClock::at(0))).expect("what a kill leaves opens")
    }

    /// Log offset at which the oldest file of the log begins.
    fn first_file(dir: &Path) -> u64 {
        let files = std::fs::read_dir(dir.join("commitlog")).expect("the log has a folder");
        let names = files.map(|file| file.expect("the folder can be read").file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).min().expect("a log has a file")
    }

    #[test]
    fn a_topic_that_was_deleted_at_rest_stays_away_after_a_kill() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut upkeep = idle(dir.path());
        let (held, _waiting) = hold();
        upkeep
            .carry_out(Some(Order::Remove(vec![Text::from("Other")], held)))
            .expect("the checkpoint is saved");
        let again = after_a_kill(dir.path());
        assert!(!again.report.was_rebuilt, "{:?}", again.report);
        assert_eq!(again.queues.topics(), [Text::from("Kept")]);
        assert_eq!(again.queues.get("Kept", 0).map(|queue| queue.max_offset()), Some(200));
    }

    #[test]
    fn what_expired_at_rest_makes_no_start_after_a_kill_read_the_whole_log() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut upkeep = idle(dir.path());
        // Files go on a thread of their own: none is gone before this is over.
        let held = hold_up(&dir.path().join("commitlog"), Op::Remove);
        upkeep.clean(true).expect("the checkpoint is saved");
        assert!(upkeep.reader.min_offset() > 0);
        drop(held);
        until("the queues are behind", || upkeep.keeper.is_behind());
        // What a kill leaves is copied file by file, so none may go meanwhile.
        until("no file is left of what is old", || first_file(dir.path()) == upkeep.reader.min_offset());
        let before = after_a_kill(dir.path());
        assert!(
            !before.report.was_rebuilt,
            "segments are gone, queues do not follow yet: {:?}",
            before.report
        );
        upkeep.clean(false).expect("the checkpoint is saved");
        assert!(upkeep.queues.get("Kept", 0).is_some_and(|queue| queue.min_offset() > 0));
        let after = after_a_kill(dir.path());
        assert!(!after.report.was_rebuilt, "{:?}", after.report);
        assert_eq!(after.reader.min_offset(), upkeep.reader.min_offset());
    }

    #[test]
    fn a_kill_in_the_midst_of_a_deletion_is_no_damage() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut upkeep = idle(dir.path());
        let in_the_midst = upkeep.lose(|kept| {
            kept.queues.remove("Other")?;
            let again = after_a_kill(dir.path());
            assert!(!again.report.was_rebuilt, "{:?}", again.report);
            Ok(again.queues.topics().len())
        });
        assert!(matches!(in_the_midst, Ok(Ok(1))));
    }
}
