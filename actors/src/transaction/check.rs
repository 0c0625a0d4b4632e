//! Asks producers what became of their transactions, and gives those up that nobody decides.
//!
//! Invariants:
//! - a half message is asked about when it is old enough, once a round, and at most as often as configured;
//! - who is asked gets the offsets of the newest copy, so that its answer finds it;
//! - a half message that waits while very many after it are done is moved behind them, uncounted, so that a restart
//!   need not read all of those.

use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use troupemq_codec::message::Properties;
use troupemq_codec::message::properties::WAIT;
use troupemq_codec::request::{CheckTransactionState, CheckTransactionStateHeader};
use troupemq_codec::{Command, Text};

use super::records::{GIVEN_UP_TOPIC, HalfView, op};
use super::{Decide, Decided, Decision, Forget, OpenFrom, RoundEnded, TransactionChecker};
use crate::cast::BrokerCast;
use crate::config::BrokerConfig;
use crate::detour::HALF_TOPIC;
use crate::heartbeat::ProducersInTurn;
use crate::net::{Link, Refusal, ToSession};
use crate::query::record_at;
use crate::send::{StoredOwn, store};
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
        let Some((last, _)) = open.places.last() else { return Ok(()) };
        from = last + 1;
        for (queue_offset, log_offset) in &open.places {
            let bytes = record_at(&cast.log, *log_offset);
            let view = bytes.as_ref().and_then(|bytes| HalfView::parse(bytes));
            let Some(view) = view.filter(|half| half.is_at(*queue_offset)) else {
                tracing::warn!(queue_offset, log_offset, "a half message cannot be read any more");
                checker.send(Forget(*queue_offset)).await?;
                continue;
            };
            if view.record.store_timestamp_ms() >= started_ms {
                return Ok(());
            }
            look_at(cast, checker, (*queue_offset, *queue_offset < open.move_below), &view).await?;
        }
    }
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
    if verdict == Verdict::Leave && !is_in_the_way {
        return Ok(());
    }
    let wanted = Decide { queue_offset, uniq_key: Text::from(view.uniq_key) };
    let Decision::Begun(queue_offset) = checker.send(wanted).await? else { return Ok(()) };
    let replaced = match verdict {
        Verdict::Ask => ask(cast, view, (queue_offset, &links)).await,
        Verdict::GiveUp => give_up(cast, view, queue_offset).await,
        Verdict::Leave => {
            let moved = Copied { checks: view.checks, instead_of: Some(queue_offset) };
            copy(cast, view, moved).await.map(|copied| copied.op_offset)
        }
    };
    let decided = match &replaced {
        Ok(op_offset) => Decided::Stored { queue_offset, op_offset: *op_offset },
        Err(_) => Decided::Failed { queue_offset },
    };
    checker.send(decided).await?;
    replaced.map(|_| ())
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

/// Where a copy is, and the op message about the half message it replaces; -1 if it replaces none.
pub(super) struct Copy {
    at: StoredOwn,
    pub(super) op_offset: i64,
    properties: Properties,
}

/// Puts a copy at the end of the half topic.
pub(super) async fn copy(cast: &BrokerCast, view: &HalfView<'_>, how: Copied) -> Result<Copy, Refusal> {
    let properties = view.with_checks(how.checks);
    let pieces = [&properties.encoded()[..]];
    let again = view.copied(HALF_TOPIC, &pieces);
    let body = how.instead_of.map(|old| format!("{old},"));
    let stored = match &body {
        Some(body) => store(cast, &[again, op(cast, body)]).await?,
        None => store(cast, &[again]).await?,
    };
    match &stored[..] {
        [at] if body.is_none() => Ok(Copy { at: *at, op_offset: -1, properties }),
        [at, done] => Ok(Copy { at: *at, op_offset: done.queue_offset, properties }),
        _ => Err(Refusal::gone("the half topic")),
    }
}

/// Puts a counted copy at the end of the half topic and asks the first producer that takes the question about it.
async fn ask(
    cast: &BrokerCast,
    view: &HalfView<'_>,
    (old, links): (i64, &[Arc<Link>]),
) -> Result<i64, Refusal> {
    let counted = Copied { checks: view.checks.saturating_add(1), instead_of: Some(old) };
    let mut copy = copy(cast, view, counted).await?;
    // As Java's question says.
    copy.properties.set(WAIT, "false");
    let question = question(cast, view, (&copy.at, &copy.properties.encoded()[..]));
    let is_asked = links.iter().any(|link| link.hand(ToSession::Push(question.clone())).is_ok());
    if !is_asked {
        tracing::info!(
            group = view.group,
            queue_offset = old,
            "no producer took the question about a transaction"
        );
    }
    Ok(copy.op_offset)
}

fn question(cast: &BrokerCast, view: &HalfView<'_>, (copy, properties): (&StoredOwn, &[u8])) -> Command {
    let id = Text::from(view.uniq_key);
    let header = CheckTransactionStateHeader {
        topic: Some(Text::from_static(HALF_TOPIC)),
        queue_offset: copy.queue_offset,
        log_offset: copy.log_offset.cast_signed(),
        message_id: Some(id.clone()),
        transaction_id: Some(id),
        offset_message_id: Some(Text::from(cast.message_ids.of(copy.log_offset).as_str())),
        broker_name: Some(cast.broker_name.clone()),
    };
    let body = view.question(properties, copy, cast.now_ms());
    Command::request::<CheckTransactionState>(&header).oneway().with_body(body)
}

/// Puts the message where an operator finds it.
async fn give_up(cast: &BrokerCast, view: &HalfView<'_>, old: i64) -> Result<i64, Refusal> {
    let topic = Text::from_static(GIVEN_UP_TOPIC);
    if cast.directory.topic(&topic).is_none() {
        cast.topics.send(EnsureGroupTopic { topic, queue_nums: 1, sys_flag: 0, order: false }).await??;
    }
    let pieces = [view.record.properties().as_bytes()];
    let body = format!("{old},");
    let stored = store(cast, &[view.copied(GIVEN_UP_TOPIC, &pieces), op(cast, &body)]).await?;
    match &stored[..] {
        [_, done] => Ok(done.queue_offset),
        _ => Err(Refusal::gone("the topic of undecided transactions")),
    }
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
    let immunity_ms = immunity_s.map_or(config.transaction_time_out, |seconds| seconds.saturating_mul(1000));
    // A producer whose clock is ahead is asked at once.
    if (0..=immunity_ms).contains(&age_ms) { Verdict::Leave } else { Verdict::Ask }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(verdict(14, None, 7000), Verdict::Ask);
        assert_eq!(verdict(15, None, 7000), Verdict::GiveUp);
        assert_eq!(verdict(0, None, 73 * 3_600_000), Verdict::GiveUp);
    }
}
