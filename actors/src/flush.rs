//! `Flush`: answers that wait for the disk, and the thread that flushes. Java: `GroupCommitService`,
//! `FlushRealTimeService`.
//!
//! Invariants:
//! - an answer is given when the flushed position has passed its batch, or as "not in time" at its deadline;
//! - once the node is poisoned nobody waits any more: who does is refused with the cause;
//! - while one flush runs the next group gathers; a flush completes all it covers at once;
//! - in sync mode a flush begins as soon as the first batch is written that somebody waits for: the disk works while
//!   the batches behind it are written, and while all are dispatched;
//! - a flush that failed is never tried again: the node is poisoned;
//! - in async mode a flush begins at the latest one interval after a write, or after so many bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use arc_swap::ArcSwap;
use tokio::sync::oneshot;
use troupemq_store::{FlushMode, LogFlusher, StoreConfig, StoreError};

use crate::commit_log::{Append, MAILBOX, Outcome, not_serving};
use crate::config::NodeClock;
use crate::poison::Poison;

/// How often deadlines are looked at.
const SWEEP: Duration = Duration::from_millis(100);

// ---- messages

/// Sent by the dispatcher: answer these batches, in the order of the log, when the disk has them.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AwaitFlush(pub Vec<Unflushed>);

/// A batch that waits for the disk to have everything below `to`.
#[derive(Debug)]
pub struct Unflushed {
    /// The batch, stored and visible.
    pub append: Append,
    /// Offset behind its last stored byte.
    pub to: u64,
    /// What to answer then.
    pub outcome: Outcome,
}

/// Sent by the flushing thread: the disk has everything below `to`.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Flushed {
    /// The flushed position.
    pub to: u64,
}

/// Sent by the flushing thread: a flush has failed and there will be no other.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct FlushFailed;

// ---- actor

/// Owner of the answers that wait for the disk.
#[derive(Debug)]
pub struct Flush {
    waiters: Waiters<(Append, Outcome)>,
    thread: FlushThread,
    clock: NodeClock,
    timeout_nanos: u64,
    poison: Poison,
}

impl Flush {
    /// Waiters whose answers come from the flushes of `thread`, at most `timeout_ms` after they came.
    pub fn new(thread: FlushThread, clock: NodeClock, timeout_ms: u64, poison: Poison) -> Flush {
        Flush {
            waiters: Waiters::default(),
            thread,
            clock,
            timeout_nanos: timeout_ms.saturating_mul(1_000_000),
            poison,
        }
    }

    /// Lets go who waits for nothing any more: those whose time is over, and everybody when there are no more flushes.
    fn sweep(&mut self) {
        if let Some(cause) = self.poison.cause() {
            let refusal = not_serving(cause);
            let lost = self.waiters.drain();
            return lost.into_iter().for_each(|(append, _)| append.refuse(refusal.clone()));
        }
        let late = self.waiters.late(self.clock.0.nanos());
        late.into_iter().for_each(|(append, outcome)| append.finish(outcome.not_in_time()));
    }
}

impl Actor for Flush {
    type Context = Context<Flush>;

    fn started(&mut self, context: &mut Context<Flush>) {
        context.set_mailbox_capacity(MAILBOX);
        self.thread.report_to(context.address());
        context.run_interval(SWEEP, |flush, _| flush.sweep());
    }
}

impl Handler<AwaitFlush> for Flush {
    type Result = ();

    fn handle(&mut self, wait: AwaitFlush, _: &mut Context<Flush>) {
        let deadline = self.clock.0.nanos().saturating_add(self.timeout_nanos);
        // The flush that covers a batch was asked for when it was written.
        for Unflushed { append, to, outcome } in wait.0 {
            if let Some((append, outcome)) = self.waiters.add(to, deadline, (append, outcome)) {
                append.finish(outcome);
            }
        }
        if self.poison.cause().is_some() {
            self.sweep();
        }
    }
}

impl Handler<FlushFailed> for Flush {
    type Result = ();

    fn handle(&mut self, _: FlushFailed, _: &mut Context<Flush>) {
        self.sweep();
    }
}

impl Handler<Flushed> for Flush {
    type Result = ();

    fn handle(&mut self, flushed: Flushed, _: &mut Context<Flush>) {
        let done = self.waiters.flushed(flushed.to);
        done.into_iter().for_each(|(append, outcome)| append.finish(outcome));
    }
}

// ---- thread

/// The handle of the flushing thread.
#[derive(Debug, Clone)]
pub struct FlushThread(Sender<Order>);

#[derive(Debug)]
enum Order {
    ReportTo(Addr<Flush>),
    Flush,
    /// Flush, and say when that is done, or given up.
    FlushFor(oneshot::Sender<()>),
    Stop,
}

impl FlushThread {
    /// Starts the thread, which flushes as often as `config` says now. It gives the flusher back when it is told to
    /// stop.
    pub fn start(
        flusher: LogFlusher,
        config: Arc<ArcSwap<StoreConfig>>,
        poison: Poison,
    ) -> std::io::Result<(FlushThread, JoinHandle<LogFlusher>)> {
        let (sender, orders) = channel();
        let thread = std::thread::Builder::new().name("flusher".to_owned()).spawn(move || {
            let _vital = poison.guard("flusher");
            work(flusher, &orders, &config, &poison)
        })?;
        let thread_of = FlushThread(sender);
        // After a kill what was written is not all on the disk yet.
        thread_of.wake();
        Ok((thread_of, thread))
    }

    fn report_to(&self, flush: Addr<Flush>) {
        // A thread that is gone flushes nothing: its guard or the stop of the node says so.
        let _ = self.0.send(Order::ReportTo(flush));
    }

    /// Asks for a flush soon.
    pub fn wake(&self) {
        // As for `report_to`: who waits for a thread that is gone is refused, for the node is poisoned or stops.
        let _ = self.0.send(Order::Flush);
    }

    /// Has the disk take all that is written. A failure has ended the node when this is over.
    pub async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        // A thread that is gone takes no order and answers none: it flushes no more.
        let _ = self.0.send(Order::FlushFor(done));
        let _ = is_done.await;
    }

    /// Ends the thread.
    pub fn stop(&self) {
        // One that has ended already is what is wanted.
        let _ = self.0.send(Order::Stop);
    }
}

fn work(
    mut flusher: LogFlusher,
    orders: &Receiver<Order>,
    config: &ArcSwap<StoreConfig>,
    poison: &Poison,
) -> LogFlusher {
    let mut report_to = None;
    loop {
        let interval = Duration::from_millis(u64::from(config.load().flush_interval_ms));
        let first = match orders.recv_timeout(interval) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return flusher,
        };
        // Told when they are dropped, behind the flush.
        let mut asked = Vec::new();
        // All orders that gathered meanwhile are served by one flush.
        for order in first.into_iter().chain(orders.try_iter()) {
            match order {
                Order::ReportTo(flush) => report_to = Some(flush),
                Order::Flush => {}
                Order::FlushFor(done) => asked.push(done),
                Order::Stop => return flusher,
            }
        }
        if poison.cause().is_none()
            && let Err(error) = once(&mut flusher, report_to.as_ref())
        {
            poison.trip(format!("flush failed: {error}"));
            // One that is not delivered costs who waits the time to the next sweep.
            let _ = report_to.as_ref().map(|flush| flush.try_send(FlushFailed));
        }
    }
}

/// Flushes the log and tells who waits.
fn once(flusher: &mut LogFlusher, report_to: Option<&Addr<Flush>>) -> Result<(), StoreError> {
    let before = flusher.flushed_to();
    let to = flusher.flush()?;
    if let Some(flush) = report_to.filter(|_| to > before) {
        // A full mailbox only delays the answers until the next report or their deadline.
        let _ = flush.try_send(Flushed { to });
    }
    Ok(())
}

/// Wakes the flushing thread whenever somebody waits for what was written, and when so much has been written that the
/// kernel would have to flush.
#[derive(Debug)]
pub struct Nudge {
    thread: FlushThread,
    config: Arc<ArcSwap<StoreConfig>>,
    /// Whether answers wait for the disk at all.
    is_sync: bool,
    next_at: u64,
    told: u64,
}

impl Nudge {
    /// Wakes `thread` every so many bytes as `config` says now, counted from `from`.
    pub fn new(thread: FlushThread, config: Arc<ArcSwap<StoreConfig>>, from: u64) -> Nudge {
        let loaded = config.load();
        let (is_sync, next_at) = (loaded.flush == FlushMode::Sync, from.saturating_add(loaded.flush_bytes));
        drop(loaded);
        Nudge { thread, config, is_sync, next_at, told: from }
    }

    /// The log has been written up to `to`; somebody may wait for the disk to have it.
    pub(crate) fn wrote(&mut self, to: u64, is_waited_for: bool) {
        let is_wanted = self.is_sync && is_waited_for && to > self.told;
        if is_wanted || to >= self.next_at {
            self.told = to;
            self.next_at = to.saturating_add(self.config.load().flush_bytes);
            self.thread.wake();
        }
    }
}

// ---- state

/// Who waits for which position. Positions come in the order of the log.
#[derive(Debug)]
pub struct Waiters<T> {
    flushed_to: u64,
    waiting: VecDeque<Waiter<T>>,
}

#[derive(Debug)]
struct Waiter<T> {
    to: u64,
    deadline: u64,
    what: T,
}

impl<T> Default for Waiters<T> {
    fn default() -> Waiters<T> {
        Waiters { flushed_to: 0, waiting: VecDeque::new() }
    }
}

impl<T> Waiters<T> {
    /// Takes one in; gives it back at once when its position is flushed already.
    pub fn add(&mut self, to: u64, deadline: u64, what: T) -> Option<T> {
        if to <= self.flushed_to {
            return Some(what);
        }
        self.waiting.push_back(Waiter { to, deadline, what });
        None
    }

    /// Takes out whom the flushed position has passed.
    pub fn flushed(&mut self, to: u64) -> Vec<T> {
        self.flushed_to = self.flushed_to.max(to);
        let count = self.waiting.partition_point(|waiter| waiter.to <= self.flushed_to);
        self.waiting.drain(..count).map(|waiter| waiter.what).collect()
    }

    /// Takes everyone out.
    pub fn drain(&mut self) -> Vec<T> {
        self.waiting.drain(..).map(|waiter| waiter.what).collect()
    }

    /// Takes out whose time is over. All wait equally long, so the first come is the first due.
    pub fn late(&mut self, now: u64) -> Vec<T> {
        let count = self.waiting.partition_point(|waiter| waiter.deadline <= now);
        self.waiting.drain(..count).map(|waiter| waiter.what).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_answers_all_it_covers_and_no_more() {
        let mut waiters = Waiters::default();
        for (to, what) in [(10, 'a'), (20, 'b'), (30, 'c')] {
            assert_eq!(waiters.add(to, 100, what), None);
        }
        assert_eq!(waiters.flushed(20), vec!['a', 'b']);
        assert_eq!(waiters.flushed(15), Vec::<char>::new());
        assert_eq!(waiters.add(20, 100, 'd'), Some('d'));
        assert_eq!(waiters.flushed(30), vec!['c']);
    }

    fn nudge(flush: FlushMode) -> (Nudge, Receiver<Order>) {
        let (sender, orders) = channel();
        let config = StoreConfig { flush, flush_bytes: 1_000, ..StoreConfig::in_dir("none") };
        (Nudge::new(FlushThread(sender), Arc::new(ArcSwap::from_pointee(config)), 100), orders)
    }

    #[test]
    fn in_sync_mode_the_disk_is_asked_once_for_each_write_that_is_waited_for() {
        let (mut nudge, orders) = nudge(FlushMode::Sync);
        let mut asked = |to, is_waited_for| {
            nudge.wrote(to, is_waited_for);
            orders.try_iter().count()
        };
        assert_eq!([asked(100, true), asked(200, true), asked(200, true), asked(300, false)], [0, 1, 0, 0]);
        assert_eq!([asked(300, true), asked(1_299, false), asked(1_300, false)], [1, 0, 1]);
    }

    #[test]
    fn in_async_mode_the_disk_is_asked_after_so_many_bytes() {
        let (mut nudge, orders) = nudge(FlushMode::Async);
        let mut asked = |to| {
            nudge.wrote(to, true);
            orders.try_iter().count()
        };
        assert_eq!([asked(200), asked(1_099), asked(1_100), asked(1_200), asked(2_100)], [0, 0, 1, 0, 1]);
    }

    #[test]
    fn who_waits_too_long_is_answered_at_its_deadline() {
        let mut waiters = Waiters::default();
        waiters.add(10, 100, 'a');
        waiters.add(20, 110, 'b');
        assert_eq!(waiters.late(99), Vec::<char>::new());
        assert_eq!(waiters.late(100), vec!['a']);
        assert_eq!(waiters.flushed(20), vec!['b']);
    }
}
