//! `TransactionChecker`: transactions from their half message to their decision. Java:
//! `EndTransactionProcessor`, `TransactionalMessageServiceImpl`, `TransactionalMessageCheckService`.
//!
//! Invariants:
//! - the first decision wins; the message and the note that its half is done are stored in one batch;
//! - a check is counted only when a producer was there to be asked;
//! - a half message that nobody decides goes to its own topic in the end and is never delivered;
//! - nothing but the two topics and their progress is needed after a restart.
//!
//! Contents: `halves` the state, `records` what is stored, `check` asking producers.

mod check;
pub mod halves;
pub mod records;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use troupemq_codec::request::{EndTransactionHeader, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::{LogReader, QueueTable, Unit};

use crate::cast::BrokerCast;
use crate::detour::HALF_TOPIC;
use crate::net::{Answer, Call, Refusal};
use crate::offsets::{CommitOffset, GroupQueue};
use crate::query::record_at;
use crate::send::store;
use halves::{Half, Halves};
use records::{HalfView, OP_TOPIC, named_by_op, op};

/// Group whose offsets are the progress of transactions. Java: `CID_RMQ_SYS_TRANS`.
pub const PROGRESS_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// How often the progress is handed to the owner of the offsets.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// Units read at a time.
const READ_MAX: usize = 4096;

// ---- messages

/// Decide the transaction of a half message. Sent by END_TRANSACTION; answered with the queue offset of the
/// half message that is open now, or none when it is decided.
#[derive(Debug, Message)]
#[rtype(result = "Option<i64>")]
pub struct Decide {
    /// The half message that the producer names.
    pub queue_offset: i64,
    /// Its unique id.
    pub uniq_key: Text,
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
    /// It is not.
    Failed {
        /// The half message.
        queue_offset: i64,
    },
}

/// Those that are open and idle, oldest first, from an offset on. Sent by the round of checks.
#[derive(Debug, Message)]
#[rtype(result = "Vec<(i64, Half)>")]
struct OpenFrom(i64);

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
}

impl TransactionChecker {
    /// The owner of the half messages of `cast`, which reads on from the saved `progress`.
    pub fn new(cast: Arc<BrokerCast>, (half, ops): (Option<i64>, Option<i64>)) -> TransactionChecker {
        let start = |topic: &str, saved: Option<i64>| match cast.queues.get(topic, 0) {
            Some(queue) => saved.unwrap_or(queue.min_offset()).clamp(queue.min_offset(), queue.max_offset()),
            None => 0,
        };
        let committed = (start(HALF_TOPIC, half), start(OP_TOPIC, ops));
        let mut checker =
            TransactionChecker { halves: Halves::from(committed.0, committed.1), committed, cast };
        checker.read_ops();
        checker.read_halves();
        checker
    }

    fn read_ops(&mut self) {
        read(&self.cast.queues, OP_TOPIC, self.halves.ops_read_to(), |unit| {
            let bytes = record_of(&self.cast.log, &unit);
            let named = bytes.map(|bytes| named_by_op(&bytes)).unwrap_or_default();
            self.halves.done(unit.queue_offset, &named);
        });
    }

    fn read_halves(&mut self) {
        read(&self.cast.queues, HALF_TOPIC, self.halves.read_to(), |unit| {
            let bytes = record_of(&self.cast.log, &unit);
            let half = bytes.and_then(|bytes| {
                let uniq_key = Text::from(HalfView::parse(&bytes)?.uniq_key);
                Some(Half { uniq_key, log_offset: unit.log_offset, size: unit.size })
            });
            self.halves.read(unit.queue_offset, half);
        });
    }

    fn commit_progress(&mut self) -> Vec<CommitOffset> {
        self.read_halves();
        let progress = self.halves.progress();
        if progress == self.committed {
            return Vec::new();
        }
        self.committed = progress;
        let commit = |topic, queue_offset| {
            let group = Text::from_static(PROGRESS_GROUP);
            let of = GroupQueue { group, topic: Text::from_static(topic), queue_id: 0 };
            CommitOffset { of, queue_offset }
        };
        vec![commit(HALF_TOPIC, progress.0), commit(OP_TOPIC, progress.1)]
    }
}

/// Hands the units of queue 0 of a topic from an offset on to `take`.
fn read(queues: &QueueTable, topic: &str, from: i64, mut take: impl FnMut(Unit)) {
    let Some(queue) = queues.get(topic, 0) else { return };
    let mut next = from.max(queue.min_offset());
    loop {
        let units: Vec<Unit> = queue.units(next, READ_MAX).collect();
        let Some(last) = units.last() else { return };
        next = last.next_offset();
        units.into_iter().for_each(&mut take);
    }
}

fn record_of(log: &LogReader, unit: &Unit) -> Option<bytes::Bytes> {
    if unit.is_hole() {
        return None;
    }
    log.slice(unit.log_offset, usize::try_from(unit.size).ok()?)
}

impl Actor for TransactionChecker {
    type Context = Context<TransactionChecker>;

    fn started(&mut self, context: &mut Context<TransactionChecker>) {
        context.set_mailbox_capacity(crate::commit_log::MAILBOX);
        context.run_interval(COMMIT_EVERY, |checker, _| {
            for commit in checker.commit_progress() {
                // What does not fit is handed over with the next change.
                let _ = checker.cast.offsets.try_send(commit);
            }
        });
        actix::spawn(check::rounds(self.cast.clone(), context.address().downgrade()));
    }
}

impl Handler<Decide> for TransactionChecker {
    type Result = Option<i64>;

    fn handle(&mut self, wanted: Decide, _: &mut Context<TransactionChecker>) -> Option<i64> {
        self.read_halves();
        self.halves.decide(wanted.queue_offset, &wanted.uniq_key)
    }
}

impl Handler<Decided> for TransactionChecker {
    type Result = ();

    fn handle(&mut self, decided: Decided, _: &mut Context<TransactionChecker>) {
        match decided {
            Decided::Stored { queue_offset, op_offset } => self.halves.done(op_offset, &[queue_offset]),
            Decided::Failed { queue_offset } => self.halves.undecided(queue_offset),
        }
    }
}

impl Handler<OpenFrom> for TransactionChecker {
    type Result = Vec<(i64, Half)>;

    fn handle(&mut self, OpenFrom(from): OpenFrom, _: &mut Context<TransactionChecker>) -> Self::Result {
        self.read_halves();
        self.halves.idle_from(from).take(check::TAKEN_MAX).map(|(at, half)| (at, half.clone())).collect()
    }
}

impl Handler<CommitProgress> for TransactionChecker {
    type Result = actix::ResponseFuture<()>;

    fn handle(&mut self, _: CommitProgress, _: &mut Context<TransactionChecker>) -> Self::Result {
        let (commits, offsets) = (self.commit_progress(), self.cast.offsets.clone());
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
        self.halves.open()
    }
}

// ---- END_TRANSACTION

/// Answers END_TRANSACTION.
pub async fn end_transaction(cast: &BrokerCast, call: &Call) -> Answer {
    let header: EndTransactionHeader = call.command.header()?;
    if !matches!(header.outcome, TRANSACTION_COMMIT | TRANSACTION_ROLLBACK) {
        return Ok(Command::response(ResponseCode::SUCCESS));
    }
    let found = u64::try_from(header.log_offset).ok().and_then(|at| record_at(&cast.log, at));
    let half = found.as_ref().and_then(|bytes| HalfView::parse(bytes));
    let half = half
        .filter(|half| half.record.topic() == HALF_TOPIC)
        .ok_or_else(|| refused("Find prepared transaction message failed"))?;
    check(cast, &header, &half)?;
    let wanted = Decide { queue_offset: header.queue_offset, uniq_key: Text::from(half.uniq_key) };
    let Some(queue_offset) = cast.transactions.send(wanted).await? else {
        return Err(refused("the transaction was decided before"));
    };
    match decide(cast, &half, (header.outcome, queue_offset)).await {
        Ok(op_offset) => {
            cast.transactions.send(Decided::Stored { queue_offset, op_offset }).await?;
            Ok(Command::response(ResponseCode::SUCCESS))
        }
        Err(refusal) => {
            cast.transactions.send(Decided::Failed { queue_offset }).await?;
            Err(refusal)
        }
    }
}

fn check(cast: &BrokerCast, header: &EndTransactionHeader, half: &HalfView<'_>) -> Result<(), Refusal> {
    let config = cast.config.load();
    if let Some(seconds) = half.immunity_s.filter(|_| header.from_check != Some(true)) {
        let immunity_ms = seconds.saturating_mul(1000).max(config.transaction_time_out);
        let age_ms = cast.now_ms() - half.record.born_timestamp_ms();
        if age_ms > immunity_ms {
            let remark = format!("the half message is {age_ms} ms old, {immunity_ms} ms are allowed");
            return Err(Refusal::new(ResponseCode::ILLEGAL_OPERATION, remark));
        }
    }
    if half.group != header.producer_group.as_str() {
        return Err(refused("The producer group wrong"));
    }
    if half.record.queue_offset() != header.queue_offset {
        return Err(refused("The transaction state table offset wrong"));
    }
    Ok(())
}

/// Stores the decision; gives the offset of the op message.
async fn decide(
    cast: &BrokerCast,
    half: &HalfView<'_>,
    (outcome, queue_offset): (i32, i64),
) -> Result<i64, Refusal> {
    let body = format!("{queue_offset},");
    let done = op(cast, &body);
    let stored = if outcome == TRANSACTION_COMMIT {
        let detour = half.detour(cast)?;
        let more: &[u8] = detour.as_ref().map_or(&[], |detour| &detour.properties);
        let pieces = [half.record.properties().as_bytes(), more];
        store(cast, &[half.committed(detour.as_ref(), &pieces), done]).await?
    } else {
        store(cast, &[done]).await?
    };
    // If the log was full between the two, the message is stored and its half is asked for again.
    let last = stored.last().filter(|_| stored.len() == if outcome == TRANSACTION_COMMIT { 2 } else { 1 });
    last.map(|op| op.queue_offset).ok_or_else(|| refused("the decision could not be noted"))
}

fn refused(remark: &str) -> Refusal {
    Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
}
