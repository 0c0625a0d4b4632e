//! `TransactionChecker`: transactions from their half message to their decision. Java:
//! `EndTransactionProcessor`, `TransactionalMessageServiceImpl`, `TransactionalMessageCheckService`.
//!
//! Invariants:
//! - the first decision wins; messages and the notes that their halves are done are stored in one batch, and a message
//!   without its note is found by the next start;
//! - a check is counted only when a producer was there to be asked;
//! - a half message that nobody decides goes to its own topic in the end and is never delivered;
//! - nothing but the two topics and their progress is needed after a restart;
//! - while more are open than the settings allow, further half messages are refused.
//!
//! Contents: `halves` the state, `open_set` what it is made of, `records` what is stored, `answers` the requests
//! of clients and tools, `gathered` those that came in one read, `groups` who waits for them, `ends` their decisions,
//! `kept` half messages that need not be read, `unnoted` what a kill leaves of ends, `check` asking producers.

pub mod answers;
mod check;
pub mod ends;
pub mod gathered;
mod groups;
pub mod halves;
pub mod kept;
mod open_set;
pub mod records;
mod unnoted;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use troupemq_codec::Text;
use troupemq_store::{ConsumeQueue, QueueTable, StoreError, Unit};

use crate::cast::BrokerCast;
use crate::deliverer::Later;
use crate::detour::HALF_TOPIC;
use crate::offsets::{CommitOffset, GroupQueue};
use crate::read_ahead::record_of;
use crate::together::{Together, WAITING_MAX};
use check::Rounds;
use ends::{Became, Begun, CameTogether, End, Ended};
use groups::{Groups, Member};
use halves::{Halves, Seen};
use records::{Commit, HalfView, OP_TOPIC, named_by_op, seen};
use unnoted::Targets;

/// Group whose offsets are the progress of transactions. Java: `CID_RMQ_SYS_TRANS`.
pub const PROGRESS_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// How often the progress is handed to the owner of the offsets.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// How long ends that nobody waits for are gathered behind others that came together: what is stored together costs
/// less.
const GATHER_MS: u64 = 4;
/// So many ends came together, at least, if more are gathered: where few come, each is stored at once.
const MANY: usize = 4;
/// Units read at a time.
const READ_MAX: usize = 4096;

// ---- messages

/// Begin to decide the transaction of a half message. Sent by RESUME_CHECK_HALF_MESSAGE and the round of checks;
/// whoever is told `Begun` says with [`Decided`] what became of it.
#[derive(Debug, Message)]
#[rtype(result = "Decision")]
pub struct Decide {
    /// The half message that is named, or a negative number for none.
    pub queue_offset: i64,
    /// Its unique id.
    pub uniq_key: Text,
}

/// Whether a transaction may be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, actix::MessageResponse)]
pub enum Decision {
    /// Yes: by the half message at this place, which is the one that is open now.
    Begun(i64),
    /// Another decision about it is being stored.
    Busy,
    /// It is not open: it was decided before.
    Over,
}

/// What became of a decision. Sent by those who asked for it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum Decided {
    /// It is stored; the op message is at `op_offset`.
    Stored {
        /// The half message.
        queue_offset: i64,
        /// Its op message.
        op_offset: i64,
    },
    /// What takes the place of its half message is stored, and no op message says so yet.
    Unnoted {
        /// The half message.
        queue_offset: i64,
    },
    /// It is not.
    Failed {
        /// The half message.
        queue_offset: i64,
    },
}

/// A half message is a copy. Sent by who made it, before it tells what became of the one that it replaces.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct IsCopy {
    queue_offset: i64,
    /// The unique id, by which late answers to earlier ones find it.
    uniq_key: Text,
}

/// Store the ends that came. Sent by the actor to itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct StoreEnds;

/// Half messages that are open and idle, oldest first, from an offset on. Sent by the round of checks.
#[derive(Debug, Message)]
#[rtype(result = "OpenHalves")]
struct OpenFrom(i64);

/// Half messages that are open.
#[derive(Debug, Default, actix::MessageResponse)]
struct OpenHalves {
    /// Their places in the half topic.
    queue_offsets: Vec<i64>,
    /// Those below this place hold up the progress.
    move_below: i64,
}

/// A half message cannot be read any more. Sent by the round of checks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Forget(i64);

/// A round of checks is over. Sent by it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct RoundEnded;

/// Hand the progress over now. Sent by the node when it stops.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CommitProgress;

/// How many transactions are open. Sent by administration.
#[derive(Debug, Message)]
#[rtype(result = "usize")]
pub struct CountOpen;

// ---- actor

/// Owner of the half messages.
#[derive(Debug)]
pub struct TransactionChecker {
    cast: Arc<BrokerCast>,
    halves: Halves,
    committed: (i64, i64),
    /// Progress, and how far the log must be on the disk before it may be committed.
    noted: Option<((i64, i64), u64)>,
    rounds: Rounds,
    ends: Together<Begun>,
    /// Whether somebody waits for one of them.
    is_waited_for: bool,
    /// When the last ones were begun to be stored, in the clock's nanoseconds, if they were many.
    gathered_from: Option<u64>,
    /// When the next ones are, if it is later.
    later: Later,
    groups: Groups,
    /// Half messages whose messages are stored, or in whose places others stand, and which no op message names yet.
    /// Those that are open count as being decided.
    unnoted: Vec<i64>,
}

impl TransactionChecker {
    /// The owner of the half messages of `cast`, which reads on from the saved `progress`. Waits for the disk.
    ///
    /// # Errors
    /// If it cannot read which of them are done: those would be asked about, and delivered, again.
    pub fn new(
        cast: Arc<BrokerCast>,
        (half, ops): (Option<i64>, Option<i64>),
    ) -> Result<TransactionChecker, StoreError> {
        let start = |topic: &str, saved: Option<i64>| match cast.queues.get(topic, 0) {
            Some(queue) => saved.unwrap_or(queue.min_offset()).clamp(queue.min_offset(), queue.max_offset()),
            None => 0,
        };
        let committed = (start(HALF_TOPIC, half), start(OP_TOPIC, ops));
        let mut checker = TransactionChecker {
            halves: Halves::from(committed.0, committed.1),
            committed,
            noted: None,
            rounds: Rounds::from(cast.now_ms()),
            ends: Together::default(),
            is_waited_for: false,
            gathered_from: None,
            later: Later::default(),
            groups: Groups::default(),
            unnoted: Vec::new(),
            cast,
        };
        let mut targets = Targets::default();
        checker.read_halves_by(|bytes| {
            targets.add(&HalfView::parse(bytes)?);
            seen(bytes)
        })?;
        checker.read_ops()?;
        checker.unnoted.extend(checker.halves.all_read());
        checker.find_unnoted(&targets)?;
        checker.publish();
        Ok(checker)
    }

    /// Looks for what was stored before a kill in the place of half messages, and whose op message was not.
    fn find_unnoted(&mut self, targets: &Targets) -> Result<(), StoreError> {
        if self.halves.open() == 0 {
            return Ok(());
        }
        for (named, uniq_key) in unnoted::at_the_end(&self.cast, targets)? {
            let open = match uniq_key {
                Some(uniq_key) => self.halves.current(named, &uniq_key),
                None => Some(named),
            };
            let Some(at) = open.filter(|at| self.halves.begin(*at)) else { continue };
            tracing::info!(half = at, "a transaction was decided before the end, and is noted now");
            self.unnoted.push(at);
        }
        Ok(())
    }

    fn read_ops(&mut self) -> Result<(), StoreError> {
        read(&self.cast.queues, OP_TOPIC, self.halves.ops_read_to(), |queue, unit| {
            let bytes = record_of(&self.cast.log, queue, &unit)?;
            let named = bytes.map(|bytes| named_by_op(&bytes)).unwrap_or_default();
            self.halves.done(unit.queue_offset, named);
            Ok(())
        })
    }

    /// Takes in what came. What was stored since the start is known without a look at it: each place of the topic is
    /// that of a half message, and who makes a copy says so.
    fn read_halves(&mut self) {
        let Some(queue) = self.half_queue() else { return };
        if queue.min_offset() > self.halves.read_to() {
            self.halves.forget_below(queue.min_offset());
        }
        self.halves.came(queue.max_offset());
    }

    fn read_halves_by(&mut self, mut seen: impl FnMut(&[u8]) -> Option<Seen>) -> Result<(), StoreError> {
        if let Some(queue) = self.half_queue().filter(|queue| queue.min_offset() > self.halves.read_to()) {
            self.halves.forget_below(queue.min_offset());
        }
        read(&self.cast.queues, HALF_TOPIC, self.halves.read_to(), |queue, unit| {
            let seen = match record_of(&self.cast.log, queue, &unit) {
                Ok(Some(bytes)) => seen(&bytes),
                Err(error) => {
                    let queue_offset = unit.queue_offset;
                    tracing::error!(%error, queue_offset, "a half message is open that cannot be read now");
                    Some(Seen::default())
                }
                // Its unit is damaged. A decision names the place of the record, so it can still be decided.
                Ok(None) if !unit.is_hole() && unit.log_offset >= self.cast.log.min_offset() => {
                    Some(Seen::default())
                }
                Ok(None) => None,
            };
            self.halves.read(unit.queue_offset, seen);
            Ok(())
        })
    }

    fn half_queue(&self) -> Option<Arc<ConsumeQueue>> {
        self.cast.queues.get(HALF_TOPIC, 0)
    }

    /// Tells those who take half messages in how many are open.
    fn publish(&self) {
        self.cast.open_halves.store(self.halves.open(), Ordering::Relaxed);
    }

    /// Commits what the disk knows to be decided: what was stored for a half message must not be lost after it.
    fn commit_progress(&mut self) -> Vec<CommitOffset> {
        self.read_halves();
        self.publish();
        let (progress, to) = (self.halves.progress(), self.cast.log.wrote_to());
        if self.noted.is_none() && progress != self.committed {
            self.noted = Some((progress, to));
        }
        let flushed_to = self.cast.log.flushed_to();
        match self.noted.take_if(|(_, to)| flushed_to >= *to) {
            Some((progress, _)) => self.commit(progress),
            None => Vec::new(),
        }
    }

    fn commit(&mut self, progress: (i64, i64)) -> Vec<CommitOffset> {
        self.committed = progress;
        let commit = |topic, queue_offset| {
            let group = Text::from_static(PROGRESS_GROUP);
            let of = GroupQueue { group, topic: Text::from_static(topic), queue_id: 0 };
            CommitOffset { of, queue_offset }
        };
        vec![commit(HALF_TOPIC, progress.0), commit(OP_TOPIC, progress.1)]
    }

    /// Takes an end in, or answers why not; tells whether it is the first that waits to be stored.
    fn take_in(&mut self, end: End, asked_by: Member) -> bool {
        let End { half, queue_offset: named, goes } = end;
        let current = match self.halves.is_open(named) {
            true => Some(named),
            // A check may have left a copy, which has the same id.
            false => HalfView::parse(&half).and_then(|half| self.halves.current(named, half.uniq_key)),
        };
        let current = match current {
            Some(at) if !self.halves.begin(at) => Err(answers::is_busy(named)),
            Some(at) if self.unnoted.len() >= WAITING_MAX || !self.ends.reserve() => {
                self.halves.undecided(at);
                Err(ends::too_many())
            }
            current => current.ok_or_else(|| answers::over(named)),
        };
        match current {
            Ok(at) => {
                let commit = goes.map(|goes| Commit { half, goes });
                self.ends.add(Begun { at, commit, asked_by: Some(asked_by) })
            }
            Err(refusal) => {
                self.groups.settle(asked_by, Err(refusal));
                false
            }
        }
    }

    /// Answers an end; if it is noted, that is known already.
    fn settle(&mut self, begun: &Begun, became: Became) {
        let answer = match became {
            Became::Noted(_) => Ok(()),
            Became::Unnoted => {
                self.unnoted.push(begun.at);
                Ok(())
            }
            Became::Refused(_) if begun.asked_by.is_none() => {
                self.unnoted.push(begun.at);
                Ok(())
            }
            Became::Refused(refusal) => {
                self.halves.undecided(begun.at);
                Err(refusal)
            }
        };
        if let Some(member) = begun.asked_by {
            self.groups.settle(member, answer);
        }
    }

    /// Has the half messages named whose messages are stored, with the next ends.
    fn note(&mut self, context: &mut Context<TransactionChecker>) {
        if self.cast.poison.cause().is_some() {
            return;
        }
        let mut is_first = false;
        for at in std::mem::take(&mut self.unnoted) {
            match self.ends.reserve() {
                true => is_first |= self.ends.add(Begun { at, commit: None, asked_by: None }),
                false => self.unnoted.push(at),
            }
        }
        if is_first {
            self.store_soon(context);
        }
    }

    /// Has the ends that wait stored: at once if somebody waits for one of them, or they are many.
    fn store_soon(&mut self, context: &mut Context<TransactionChecker>) {
        let now = self.cast.clock().nanos();
        let gathered_ms = self.gathered_from.map_or(GATHER_MS, |from| now.saturating_sub(from) / 1_000_000);
        match GATHER_MS.saturating_sub(gathered_ms) {
            left_ms @ 1.. if !self.is_waited_for && !self.ends.is_full() => {
                self.later.look_in(context, StoreEnds, left_ms.cast_signed());
            }
            _ => context.notify(StoreEnds),
        }
    }

    /// Begins a round of checks if one is due.
    fn look(&mut self, context: &mut Context<TransactionChecker>) {
        let (now_ms, interval_ms) = (self.cast.now_ms(), self.cast.config.load().transaction_check_interval);
        if self.cast.poison.cause().is_none() && self.rounds.begins(now_ms, interval_ms) {
            actix::spawn(check::go_round(self.cast.clone(), context.address()));
        }
    }

    fn open_from(&mut self, from: i64) -> OpenHalves {
        self.read_halves();
        let Some(queue) = self.half_queue() else { return OpenHalves::default() };
        self.halves.forget_below(queue.min_offset());
        let queue_offsets = self.halves.idle_from(from).take(check::TAKEN_MAX).collect();
        OpenHalves { queue_offsets, move_below: self.halves.move_below() }
    }
}

/// Hands the units of queue 0 of a topic from an offset on to `take`. Waits for the disk.
fn read(
    queues: &QueueTable,
    topic: &str,
    from: i64,
    mut take: impl FnMut(&ConsumeQueue, Unit) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let Some(queue) = queues.get(topic, 0) else { return Ok(()) };
    let mut next = from.max(queue.min_offset());
    loop {
        let units = queue.read(next, READ_MAX)?;
        let Some(last) = units.last() else { return Ok(()) };
        next = last.next_offset();
        units.into_iter().try_for_each(|unit| take(&queue, unit))?;
    }
}

impl Actor for TransactionChecker {
    type Context = Context<TransactionChecker>;

    fn started(&mut self, context: &mut Context<TransactionChecker>) {
        context.set_mailbox_capacity(crate::commit_log::MAILBOX);
        self.note(context);
        context.run_interval(COMMIT_EVERY, |checker, context| {
            checker.note(context);
            for commit in checker.commit_progress() {
                // What does not fit is handed over with the next change.
                let _ = checker.cast.offsets.try_send(commit);
            }
        });
        context.run_interval(check::LOOK_EVERY, TransactionChecker::look);
    }
}

impl Handler<Decide> for TransactionChecker {
    type Result = Decision;

    fn handle(&mut self, wanted: Decide, _: &mut Context<TransactionChecker>) -> Decision {
        self.read_halves();
        self.publish();
        match self.halves.current(wanted.queue_offset, &wanted.uniq_key) {
            None => Decision::Over,
            Some(current) if self.halves.begin(current) => Decision::Begun(current),
            Some(_) => Decision::Busy,
        }
    }
}

impl Handler<Decided> for TransactionChecker {
    type Result = ();

    fn handle(&mut self, decided: Decided, _: &mut Context<TransactionChecker>) {
        match decided {
            Decided::Stored { queue_offset, op_offset } => self.halves.done(op_offset, [queue_offset]),
            Decided::Unnoted { queue_offset } => {
                // Who comes too late finds the copy.
                self.halves.forget(queue_offset);
                self.unnoted.push(queue_offset);
            }
            Decided::Failed { queue_offset } => self.halves.undecided(queue_offset),
        }
        self.publish();
    }
}

impl Handler<IsCopy> for TransactionChecker {
    type Result = ();

    fn handle(&mut self, IsCopy { queue_offset, uniq_key }: IsCopy, _: &mut Context<TransactionChecker>) {
        self.read_halves();
        self.halves.is_copy(queue_offset, uniq_key);
    }
}

impl Handler<CameTogether> for TransactionChecker {
    type Result = ();

    fn handle(&mut self, came: CameTogether, context: &mut Context<TransactionChecker>) {
        let CameTogether { ends, reply, is_waited_for } = came;
        self.read_halves();
        self.publish();
        self.is_waited_for |= is_waited_for;
        let members = self.groups.begin(ends.len(), reply);
        let mut has_first = false;
        for (end, member) in ends.into_iter().zip(members) {
            has_first |= self.take_in(end, member);
        }
        // What is gathered for nobody is stored at once when somebody waits, and when it is enough.
        if has_first || is_waited_for || self.ends.is_full() {
            self.store_soon(context);
        }
    }
}

impl Handler<StoreEnds> for TransactionChecker {
    type Result = ();

    fn handle(&mut self, _: StoreEnds, context: &mut Context<TransactionChecker>) {
        if let Some(batch) =
            self.ends.begin(|begun| begun.commit.as_ref().map_or(0, |commit| commit.half.len()))
        {
            self.gathered_from = (batch.len() >= MANY).then(|| self.cast.clock().nanos());
            self.is_waited_for &= self.ends.has_more();
            actix::spawn(ends::store_all(self.cast.clone(), batch, context.address()));
        }
    }
}

impl Handler<Ended> for TransactionChecker {
    type Result = ();

    fn handle(&mut self, Ended { all, became }: Ended, context: &mut Context<TransactionChecker>) {
        let mut rest = &all[..];
        for together in became.chunk_by(|one, next| one.op_offset() == next.op_offset()) {
            let (named, behind) = rest.split_at(together.len().min(rest.len()));
            rest = behind;
            if let Some(op_offset) = together[0].op_offset() {
                self.halves.done(op_offset, named.iter().map(|begun| begun.at));
            }
        }
        for (begun, became) in all.iter().zip(became) {
            self.settle(begun, became);
        }
        self.publish();
        self.ends.ended();
        if self.ends.has_more() {
            self.store_soon(context);
        }
    }
}

impl Handler<OpenFrom> for TransactionChecker {
    type Result = OpenHalves;

    fn handle(&mut self, OpenFrom(from): OpenFrom, _: &mut Context<TransactionChecker>) -> OpenHalves {
        self.open_from(from)
    }
}

impl Handler<RoundEnded> for TransactionChecker {
    type Result = ();

    fn handle(&mut self, _: RoundEnded, _: &mut Context<TransactionChecker>) {
        self.rounds.ended();
    }
}

impl Handler<Forget> for TransactionChecker {
    type Result = ();

    fn handle(&mut self, Forget(queue_offset): Forget, _: &mut Context<TransactionChecker>) {
        self.halves.forget(queue_offset);
    }
}

impl Handler<CommitProgress> for TransactionChecker {
    type Result = actix::ResponseFuture<()>;

    fn handle(&mut self, _: CommitProgress, _: &mut Context<TransactionChecker>) -> Self::Result {
        let progress = self.halves.progress();
        // The disk of a poisoned node may never have what was decided, and may not have yet what was decided since the
        // flush: the next start reads further back.
        let is_flushed = self.cast.log.flushed_to() >= self.cast.log.wrote_to();
        let is_kept = is_flushed && self.cast.poison.cause().is_none();
        let commits = if is_kept { self.commit(progress) } else { Vec::new() };
        let offsets = self.cast.offsets.clone();
        Box::pin(async move {
            for commit in commits {
                // At the stop the owner of the offsets is still there; if not, the next start reads further back.
                let _ = offsets.send(commit).await;
            }
        })
    }
}

impl Handler<CountOpen> for TransactionChecker {
    type Result = usize;

    fn handle(&mut self, _: CountOpen, _: &mut Context<TransactionChecker>) -> usize {
        self.read_halves();
        self.halves.open()
    }
}
