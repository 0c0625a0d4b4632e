//! Asks producers what became of their transactions, and gives those up that nobody decides.
//!
//! Invariants:
//! - a half message is asked about when it is old enough, once a round, and at most as often as configured;
//! - a check that no producer took is not counted;
//! - what takes the place of a half message is stored in front of the op message that says so: if that is cut off, the
//!   half message is done all the same, and named later;
//! - one half message that cannot be stored again holds up no other;
//! - who is asked gets the offsets of the newest copy, so that its answer finds it;
//! - a half message that waits while very many after it are done is moved behind them, uncounted, so that a restart
//!   need not read all of those.

use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use troupemq_codec::message::Properties;
use troupemq_codec::message::properties::WAIT;
use troupemq_codec::request::{CheckTransactionState, CheckTransactionStateHeader};
use troupemq_codec::{Command, ResponseCode, Text};

use super::records::{GIVEN_UP_TOPIC, HalfView, op};
use super::{Decide, Decided, Decision, Forget, IsCopy, OpenFrom, RoundEnded, TransactionChecker};
use crate::cast::BrokerCast;
use crate::config::BrokerConfig;
use crate::detour::HALF_TOPIC;
use crate::heartbeat::ProducersInTurn;
use crate::net::{Link, Refusal, ToSession};
use crate::send::{StoredOwn, set_if_room, store};
use crate::topics::EnsureGroupTopic;

/// Half messages looked at together.
pub(super) const TAKEN_MAX: usize = 256;
/// How often it is looked whether a round is due: real time only says when to look, what is due is judged by the clock
/// of the node.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to do about a half message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is too young to be asked about.
    Leave,
    /// Ask its producer.
    Ask,
    /// Nobody will decide it.
    GiveUp,
}

/// When rounds of checks are due. Plain state: time is an argument.
#[derive(Debug)]
pub(super) struct Rounds {
    last_ms: i64,
    goes: bool,
}

impl Rounds {
    /// The first round is due one interval from now on.
    pub(super) fn from(now_ms: i64) -> Rounds {
        Rounds { last_ms: now_ms, goes: false }
    }

    /// Whether a round begins now: the last one began an interval ago, and has ended.
    pub(super) fn begins(&mut self, now_ms: i64, interval_ms: i64) -> bool {
        if self.goes || now_ms.saturating_sub(self.last_ms) < interval_ms {
            return false;
        }
        (self.last_ms, self.goes) = (now_ms, true);
        true
    }

    /// The round has ended.
    pub(super) fn ended(&mut self) {
        self.goes = false;
    }
}

/// Goes round once, and says so.
pub(super) async fn go_round(cast: Arc<BrokerCast>, checker: Addr<TransactionChecker>) {
    if let Err(refusal) = round(&cast, &checker).await {
        tracing::warn!(remark = refusal.remark, "a round of transaction checks was cut short");
    }
    // An actor that is gone needs no news.
    let _ = checker.send(RoundEnded).await;
}

async fn round(cast: &BrokerCast, checker: &Addr<TransactionChecker>) -> Result<(), Refusal> {
    let started_ms = cast.now_ms();
    let mut from = 0;
    loop {
        let open = checker.send(OpenFrom(from)).await?;
        let Some(last) = open.queue_offsets.last() else { return Ok(()) };
        from = last + 1;
        for (queue_offset, log_offset) in &places(cast, open.queue_offsets).await? {
            let Some(log_offset) = log_offset else {
                checker.send(Forget(*queue_offset)).await?;
                continue;
            };
            let bytes = match cast.lookups.record(&cast.log, *log_offset).await {
                // One that the disk cannot read now does not hold up those behind it: the next round looks again.
                Err(refusal) if refusal.code == ResponseCode::SYSTEM_ERROR => {
                    let remark = refusal.remark;
                    tracing::error!(queue_offset, log_offset, remark, "a half message cannot be read now");
                    continue;
                }
                read => read?,
            };
            let view = bytes.as_ref().and_then(|bytes| HalfView::parse(bytes));
            let Some(view) = view.filter(|half| half.is_at(*queue_offset)) else {
                tracing::warn!(queue_offset, log_offset, "a half message cannot be read any more");
                checker.send(Forget(*queue_offset)).await?;
                continue;
            };
            if view.record.store_timestamp_ms() >= started_ms {
                return Ok(());
            }
            let place = (*queue_offset, *queue_offset < open.move_below);
            match look_at(cast, checker, place, &view).await {
                // One that cannot be stored again does not hold up those behind it.
                Err(refusal) if refusal.code == ResponseCode::MESSAGE_ILLEGAL => {
                    let remark = refusal.remark;
                    tracing::warn!(queue_offset, log_offset, remark, "a half message is left as it is");
                }
                looked => looked?,
            }
        }
    }
}

/// Where these half messages are in the log; nowhere, if the log has lost one. One whose unit the disk cannot read now
/// is left out: the next round looks again.
async fn places(cast: &BrokerCast, queue_offsets: Vec<i64>) -> Result<Vec<(i64, Option<u64>)>, Refusal> {
    let Some(queue) = cast.queues.get(HALF_TOPIC, 0) else { return Ok(Vec::new()) };
    let place = move |queue_offset: i64| match queue.read_unit(queue_offset) {
        Ok(unit) => Some((queue_offset, unit.filter(|unit| !unit.is_hole()).map(|unit| unit.log_offset))),
        Err(error) => {
            tracing::error!(%error, queue_offset, "where a half message is cannot be read now");
            None
        }
    };
    cast.lookups.run(move || queue_offsets.into_iter().filter_map(place).collect()).await
}

async fn look_at(
    cast: &BrokerCast,
    checker: &Addr<TransactionChecker>,
    (queue_offset, is_in_the_way): (i64, bool),
    view: &HalfView<'_>,
) -> Result<(), Refusal> {
    let age_ms = cast.now_ms() - view.record.born_timestamp_ms();
    let mut verdict =
        verdict(&cast.config.load(), cast.reserved_ms(), (view.checks, view.immunity_s), age_ms);
    let mut links = Vec::new();
    if verdict == Verdict::Ask {
        links = producers(cast, view.group).await?;
        if links.is_empty() {
            let group = view.group;
            tracing::info!(group, queue_offset, "nobody is there to be asked about a transaction");
            verdict = Verdict::Leave;
        }
    }
    match verdict {
        Verdict::Leave if is_in_the_way => copy_uncounted(cast, checker, view, queue_offset).await,
        Verdict::Leave => Ok(()),
        Verdict::Ask => ask(cast, checker, view, (queue_offset, &links)).await,
        Verdict::GiveUp => match begin(checker, view, queue_offset).await? {
            Some(open) => settle(checker, open, give_up(cast, view, open).await).await,
            None => Ok(()),
        },
    }
}

/// The half message that is open now of a transaction that nobody else decides meanwhile.
async fn begin(
    checker: &Addr<TransactionChecker>,
    view: &HalfView<'_>,
    queue_offset: i64,
) -> Result<Option<i64>, Refusal> {
    match checker.send(Decide { queue_offset, uniq_key: Text::from(view.uniq_key) }).await? {
        Decision::Begun(open) => Ok(Some(open)),
        Decision::Busy | Decision::Over => Ok(None),
    }
}

/// Tells the owner of the half messages what became of a decision: the op message of one that is stored, if there is
/// one.
pub(super) async fn settle(
    checker: &Addr<TransactionChecker>,
    queue_offset: i64,
    stored: Result<Option<i64>, Refusal>,
) -> Result<(), Refusal> {
    let decided = match &stored {
        Ok(Some(op_offset)) => Decided::Stored { queue_offset, op_offset: *op_offset },
        Ok(None) => Decided::Unnoted { queue_offset },
        Err(_) => Decided::Failed { queue_offset },
    };
    checker.send(decided).await?;
    stored.map(drop)
}

/// Puts a copy with the number of checks as `view` tells it in the place of a half message.
async fn copy_uncounted(
    cast: &BrokerCast,
    checker: &Addr<TransactionChecker>,
    view: &HalfView<'_>,
    queue_offset: i64,
) -> Result<(), Refusal> {
    let Some(open) = begin(checker, view, queue_offset).await? else { return Ok(()) };
    let copied = copy(cast, view, Copied { checks: view.checks, instead_of: Some(open) }).await;
    settle(checker, open, copied.map(|copied| copied.op_offset)).await
}

/// The producers of the group whose connections live, beginning with another one each time.
async fn producers(cast: &BrokerCast, group: &str) -> Result<Vec<Arc<Link>>, Refusal> {
    let links = cast.heartbeats.send(ProducersInTurn(Text::from(group))).await?;
    Ok(links.into_iter().filter_map(|id| cast.directory.link(id)).filter(|link| !link.is_closed()).collect())
}

/// A copy of a half message to be made at the end of the half topic.
pub(super) struct Copied {
    /// How often it was checked.
    pub(super) checks: i32,
    /// The half message that it replaces, if there is one that is open.
    pub(super) instead_of: Option<i64>,
}

/// Where a copy is, and the op message about the half message it replaces; none if it replaces none, or the op message
/// is not stored yet.
pub(super) struct Copy {
    at: StoredOwn,
    pub(super) op_offset: Option<i64>,
    properties: Properties,
}

/// Puts a copy at the end of the half topic.
pub(super) async fn copy(cast: &BrokerCast, view: &HalfView<'_>, how: Copied) -> Result<Copy, Refusal> {
    let properties = view.with_checks(how.checks).unwrap_or_else(|| view.properties());
    let pieces = [&properties.encoded()[..]];
    let again = view.copied(HALF_TOPIC, &pieces, how.instead_of);
    let body = how.instead_of.map(|old| format!("{old},"));
    let stored = match &body {
        Some(body) => store(cast, &[again, op(cast, body.as_bytes())]).await?,
        None => store(cast, &[again]).await?,
    };
    let at = *stored.first().ok_or_else(|| Refusal::gone("the half topic"))?;
    let op_offset = stored.get(1).map(|done| done.queue_offset);
    let told = IsCopy { queue_offset: at.queue_offset, uniq_key: Text::from(view.uniq_key) };
    // Who is gone reads at the next start that it is one.
    let _ = cast.transactions.send(told).await;
    Ok(Copy { at, op_offset, properties })
}

/// Puts a counted copy at the end of the half topic and asks the first producer that takes the question about it.
/// A half message that has no room for the number is asked about where it is, until it is too old.
async fn ask(
    cast: &BrokerCast,
    checker: &Addr<TransactionChecker>,
    view: &HalfView<'_>,
    (old, links): (i64, &[Arc<Link>]),
) -> Result<(), Refusal> {
    let checks = view.checks.saturating_add(1);
    if view.with_checks(checks).is_none() {
        let here = (old, view.record.log_offset().cast_unsigned());
        hand(links, view, question(cast, view, here, view.properties()));
        return Ok(());
    }
    let Some(old) = begin(checker, view, old).await? else { return Ok(()) };
    let counted = match copy(cast, view, Copied { checks, instead_of: Some(old) }).await {
        Ok(counted) => counted,
        Err(refusal) => return settle(checker, old, Err(refusal)).await,
    };
    let at = (counted.at.queue_offset, counted.at.log_offset);
    let is_asked = hand(links, view, question(cast, view, at, counted.properties));
    settle(checker, old, Ok(counted.op_offset)).await?;
    if is_asked { Ok(()) } else { copy_uncounted(cast, checker, view, at.0).await }
}

/// Hands a question to the first producer that takes it; tells whether one did.
fn hand(links: &[Arc<Link>], view: &HalfView<'_>, question: Command) -> bool {
    let is_asked = links.iter().any(|link| link.hand(ToSession::Push(question.clone())).is_ok());
    if !is_asked {
        let (group, id) = (view.group, view.uniq_key);
        tracing::info!(group, id, "no producer took the question about a transaction");
    }
    is_asked
}

fn question(cast: &BrokerCast, view: &HalfView<'_>, at: (i64, u64), mut properties: Properties) -> Command {
    // As Java's question says.
    set_if_room(&mut properties, WAIT, "false");
    let id = Text::from(view.uniq_key);
    let header = CheckTransactionStateHeader {
        topic: Some(Text::from_static(HALF_TOPIC)),
        queue_offset: at.0,
        log_offset: at.1.cast_signed(),
        message_id: Some(id.clone()),
        transaction_id: Some(id),
        offset_message_id: Some(Text::from(cast.message_ids.of(at.1).as_str())),
        broker_name: Some(cast.broker_name.clone()),
    };
    let body = view.question(&properties.encoded()[..], at, cast.now_ms());
    Command::request::<CheckTransactionState>(&header).oneway().with_body(body)
}

/// Puts the message where an operator finds it.
async fn give_up(cast: &BrokerCast, view: &HalfView<'_>, old: i64) -> Result<Option<i64>, Refusal> {
    let topic = Text::from_static(GIVEN_UP_TOPIC);
    if cast.directory.topic(&topic).is_none() {
        cast.topics.send(EnsureGroupTopic { topic, queue_nums: 1, sys_flag: 0, order: false }).await??;
    }
    let pieces = [view.record.properties().as_bytes()];
    let body = format!("{old},");
    let given_up = view.copied(GIVEN_UP_TOPIC, &pieces, Some(old));
    let stored = store(cast, &[given_up, op(cast, body.as_bytes())]).await?;
    Ok(stored.get(1).map(|done| done.queue_offset))
}

fn verdict(
    config: &BrokerConfig,
    reserved_ms: i64,
    (checks, immunity_s): (i32, Option<i64>),
    age_ms: i64,
) -> Verdict {
    if checks >= config.transaction_check_max || age_ms > reserved_ms {
        return Verdict::GiveUp;
    }
    // -1 is no time of the producer's own, as in Java.
    let own_s = immunity_s.filter(|seconds| *seconds != -1);
    let immunity_ms = own_s.map_or(config.transaction_time_out, |seconds| seconds.saturating_mul(1000));
    // A producer whose clock is ahead is asked at once.
    if (0..=immunity_ms).contains(&age_ms) { Verdict::Leave } else { Verdict::Ask }
}

#[cfg(test)]
mod tests {
    use troupemq_codec::message::properties::TRANSACTION_CHECK_TIMES;
    use troupemq_codec::message::{Message, OffsetId};
    use troupemq_codec::request::SendMessageReplyHeader;

    use super::*;
    use crate::query::record_now;
    use crate::testing::{Client, start_broker};

    #[test]
    fn a_round_begins_an_interval_after_the_last_and_never_while_one_goes() {
        let mut rounds = Rounds::from(1000);
        let begins = [1000, 30_999, 31_000, 31_001, 70_000].map(|now_ms| rounds.begins(now_ms, 30_000));
        assert_eq!(begins, [false, false, true, false, false], "the second still goes");
        rounds.ended();
        assert!(rounds.begins(70_000, 30_000));
        rounds.ended();
        assert!(!rounds.begins(99_999, 30_000));
        assert!(rounds.begins(99_999, 29_999), "the setting counts at once");
    }

    /// 3.11 #106, #108.
    #[test]
    fn a_half_message_is_asked_about_when_it_is_old_enough_and_not_for_ever() {
        let config = BrokerConfig::default();
        let verdict =
            |checks, immunity_s, age_ms| verdict(&config, 72 * 3_600_000, (checks, immunity_s), age_ms);
        assert_eq!(verdict(0, None, 6000), Verdict::Leave);
        assert_eq!(verdict(0, None, 6001), Verdict::Ask);
        assert_eq!(verdict(0, Some(60), 60_000), Verdict::Leave);
        assert_eq!(verdict(0, Some(60), 60_001), Verdict::Ask);
        assert_eq!(verdict(0, None, -1), Verdict::Ask);
        assert_eq!(verdict(0, Some(-1), 6000), Verdict::Leave);
        assert_eq!(verdict(0, Some(-1), 6001), Verdict::Ask);
        assert_eq!(verdict(0, Some(-2), 1), Verdict::Ask);
        assert_eq!(verdict(14, None, 7000), Verdict::Ask);
        assert_eq!(verdict(15, None, 7000), Verdict::GiveUp);
        assert_eq!(verdict(0, None, 73 * 3_600_000), Verdict::GiveUp);
    }

    /// 3.11 #107: between the copy and the question the last producer went away.
    #[test]
    fn a_check_that_no_producer_takes_is_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        let node = start_broker(dir.path());
        let mut client = Client::of(&node);
        let properties = "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}Payers\u{2}UNIQ_KEY\u{1}U\u{2}";
        let answer = client.produce("Paid", 0, b"half", properties);
        let header: SendMessageReplyHeader = answer.header().expect("it is stored");
        let log_offset = header.message_id.parse::<OffsetId>().expect("an offset id").log_offset;
        let cast = node.broker().expect("a broker");
        let bytes = record_now(&cast.log, log_offset.cast_unsigned()).unwrap().expect("a record");
        let view = HalfView::parse(&bytes).expect("a half message");
        let gone = [Link::loose(7, cast.advertised)];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(ask(cast, &cast.transactions, &view, (0, &gone))).expect("two copies are stored");
        let halves = Message::decode_all(client.pull(HALF_TOPIC, 0, 0, "*").body).expect("records");
        let checks: Vec<_> = halves.iter().map(|half| half.properties.get(TRANSACTION_CHECK_TIMES)).collect();
        assert_eq!(checks, [None, Some("1"), Some("0")]);
        let open = runtime.block_on(cast.transactions.send(OpenFrom(0))).expect("its owner lives");
        assert_eq!(open.queue_offsets, [2], "the last copy stands for all");
    }
}
