//! Asks producers what became of their transactions, and gives those up that nobody decides.
//!
//! Invariants:
//! - a half message is asked about when it is old enough, once a round, and at most as often as configured;
//! - who is asked gets the offsets of the newest copy, so that its answer finds it.

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, WeakAddr};
use troupemq_codec::request::{CheckTransactionState, CheckTransactionStateHeader};
use troupemq_codec::{Command, Text};

use super::halves::Half;
use super::records::{GIVEN_UP_TOPIC, HalfView, op};
use super::{Decide, Decided, OpenFrom, TransactionChecker};
use crate::cast::BrokerCast;
use crate::config::BrokerConfig;
use crate::detour::HALF_TOPIC;
use crate::heartbeat::ProducersInTurn;
use crate::net::{Link, Refusal};
use crate::query::record_at;
use crate::send::{StoredOwn, store};
use crate::topics::EnsureGroupTopic;

/// Half messages looked at together.
pub(super) const TAKEN_MAX: usize = 256;
/// How often it is looked whether a round is due.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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

/// Goes round as long as the actor lives.
pub(super) async fn rounds(cast: Arc<BrokerCast>, checker: WeakAddr<TransactionChecker>) {
    let mut last_ms = cast.now_ms();
    loop {
        // Real time only says when to look; what is due is judged by the clock of the node, which tests set.
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(checker) = checker.upgrade() else { return };
        let interval_ms = cast.config.load().transaction_check_interval;
        if cast.now_ms().saturating_sub(last_ms) < interval_ms || cast.poison.cause().is_some() {
            continue;
        }
        last_ms = cast.now_ms();
        if let Err(refusal) = round(&cast, &checker).await {
            tracing::warn!(remark = refusal.remark, "a round of transaction checks was cut short");
        }
    }
}

async fn round(cast: &BrokerCast, checker: &Addr<TransactionChecker>) -> Result<(), Refusal> {
    let started_ms = cast.now_ms();
    let mut from = 0;
    loop {
        let open = checker.send(OpenFrom(from)).await?;
        let Some((last, _)) = open.last() else { return Ok(()) };
        from = last + 1;
        for (queue_offset, half) in &open {
            let Some(bytes) = record_at(&cast.log, half.log_offset) else { continue };
            let Some(view) = HalfView::parse(&bytes) else { continue };
            if view.record.store_timestamp_ms() >= started_ms {
                return Ok(());
            }
            look_at(cast, checker, (*queue_offset, half), &view).await?;
        }
    }
}

async fn look_at(
    cast: &BrokerCast,
    checker: &Addr<TransactionChecker>,
    (queue_offset, half): (i64, &Half),
    view: &HalfView<'_>,
) -> Result<(), Refusal> {
    let age_ms = cast.now_ms() - view.record.born_timestamp_ms();
    let link = match verdict(&cast.config.load(), cast.reserved_ms, (view.checks, view.immunity_s), age_ms) {
        Verdict::Leave => return Ok(()),
        Verdict::GiveUp => None,
        Verdict::Ask => match producer(cast, view.group).await? {
            None => {
                tracing::info!(
                    group = view.group,
                    queue_offset,
                    "nobody is there to be asked about a transaction"
                );
                return Ok(());
            }
            link => link,
        },
    };
    let wanted = Decide { queue_offset, uniq_key: half.uniq_key.clone() };
    let Some(queue_offset) = checker.send(wanted).await? else { return Ok(()) };
    let replaced = match link {
        Some(link) => ask(cast, view, (queue_offset, &link)).await,
        None => give_up(cast, view, queue_offset).await,
    };
    let decided = match &replaced {
        Ok(op_offset) => Decided::Stored { queue_offset, op_offset: *op_offset },
        Err(_) => Decided::Failed { queue_offset },
    };
    checker.send(decided).await?;
    replaced.map(|_| ())
}

/// A producer of the group whose connection lives, another one each time.
async fn producer(cast: &BrokerCast, group: &str) -> Result<Option<Arc<Link>>, Refusal> {
    let links = cast.heartbeats.send(ProducersInTurn(Text::from(group))).await?;
    Ok(links.into_iter().filter_map(|id| cast.directory.link(id)).find(|link| !link.is_closed()))
}

/// Puts a copy at the end of the half topic and asks about that one.
async fn ask(cast: &BrokerCast, view: &HalfView<'_>, (old, link): (i64, &Link)) -> Result<i64, Refusal> {
    let properties = view.counted_up();
    let pieces = [&properties.encoded()[..]];
    let body = format!("{old},");
    let stored = store(cast, &[view.copied(HALF_TOPIC, &pieces), op(cast, &body)]).await?;
    let [copy, done] = &stored[..] else { return Err(Refusal::gone("the half topic")) };
    link.send(question(cast, view, (copy, &properties.encoded()[..])));
    Ok(done.queue_offset)
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
        cast.topics.send(EnsureGroupTopic { topic, queue_nums: 1, sys_flag: 0 }).await??;
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
