//! END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE (RocketMQ: `EndTransactionProcessor`, `AdminBrokerProcessor`).
//!
//! Invariants:
//! - an answer that names no half message, or not the right one, changes nothing and is told what is wrong;
//! - a remark begins with RocketMQ's text and goes on with the value and what would be right.

use bytes::Bytes;
use troupemq_codec::message::OffsetId;
use troupemq_codec::request::{
    EndTransactionHeader, EndView, ResumeCheckHalfMessageHeader, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN,
};
use troupemq_codec::{Command, ResponseCode, Text};

use super::check::{Copied, copy, settle};
use super::ends::{End, hand_on};
use super::records::{GIVEN_UP_TOPIC, HalfView};
use super::{Decide, Decision};
use crate::cast::BrokerCast;
use crate::detour::HALF_TOPIC;
use crate::held::hold;
use crate::net::{Answer, Call, Refusal};
use crate::query::record;

/// Answers END_TRANSACTION.
pub async fn end_transaction(cast: &BrokerCast, call: &Call) -> Answer {
    let header: EndTransactionHeader = call.command.header()?;
    match header.outcome {
        TRANSACTION_COMMIT | TRANSACTION_ROLLBACK => {}
        // Java answers nothing at all, and whoever asked for an answer waits in vain.
        TRANSACTION_UNKNOWN => return Ok(Command::response(ResponseCode::SUCCESS)),
        other => {
            let remark = format!(
                "commitOrRollback field wrong: {other} is none of {TRANSACTION_COMMIT} (commit), \
                 {TRANSACTION_ROLLBACK} (roll back) and {TRANSACTION_UNKNOWN} (not known)"
            );
            return Err(refused(remark));
        }
    }
    let bytes = record(cast, header.log_offset).await?;
    let end = end(cast, &EndView::from(&header), bytes)?;
    let (reply, waiting) = hold();
    hand_on(cast, vec![end], reply, !call.command.is_oneway());
    match waiting.await.map_err(|_lost| Refusal::gone("TransactionChecker"))?.pop() {
        Some((_, refusal)) => Err(refusal),
        None => Ok(Command::response(ResponseCode::SUCCESS)),
    }
}

/// What a request to commit or to roll back asks of the owner of the half messages; `bytes` is the record that it
/// names.
pub(super) fn end(cast: &BrokerCast, asked: &EndView<'_>, bytes: Option<Bytes>) -> Result<End, Refusal> {
    let no_half = || {
        let (at, min, end) = (asked.log_offset, cast.log.min_offset(), cast.log.wrote_to());
        let why = format!("no half message begins at commitLogOffset {at} of the log from {min} to {end}");
        refused(format!("Find prepared transaction message failed: {why}"))
    };
    let bytes = bytes.ok_or_else(no_half)?;
    let half = HalfView::parse(&bytes).filter(|half| half.record.topic() == HALF_TOPIC);
    let half = half.ok_or_else(no_half)?;
    check(cast, asked, &half)?;
    let is_committed = asked.outcome == TRANSACTION_COMMIT;
    let goes = is_committed.then(|| half.goes(cast)).transpose()?;
    Ok(End { half: bytes, queue_offset: asked.queue_offset, goes })
}

fn check(cast: &BrokerCast, asked: &EndView<'_>, half: &HalfView<'_>) -> Result<(), Refusal> {
    let config = cast.config.load();
    if let Some(seconds) = half.immunity_s.filter(|_| !asked.from_check) {
        let immunity_ms = seconds.saturating_mul(1000).max(config.transaction_time_out);
        let age_ms = cast.now_ms() - half.record.born_timestamp_ms();
        if age_ms > immunity_ms {
            let remark = format!("the half message is {age_ms} ms old, {immunity_ms} ms are allowed");
            return Err(Refusal::new(ResponseCode::ILLEGAL_OPERATION, remark));
        }
    }
    if half.group != asked.producer_group {
        let (group, own) = (&asked.producer_group, half.group);
        return Err(refused(format!("The producer group wrong: {group}, the half message is of {own}")));
    }
    let own = half.record.queue_offset();
    if own != asked.queue_offset {
        let at = asked.queue_offset;
        return Err(refused(format!(
            "The transaction state table offset wrong: {at}, the half message is at {own}"
        )));
    }
    Ok(())
}

/// Answers RESUME_CHECK_HALF_MESSAGE: the producer is asked again, and as often as if it had never been asked.
pub async fn resume_check(cast: &BrokerCast, call: &Call) -> Answer {
    let header: ResumeCheckHalfMessageHeader = call.command.header()?;
    let text = header.message_id.unwrap_or_default();
    let failed = |why: String| refused(format!("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: {why}"));
    let id: OffsetId = text
        .parse()
        .map_err(|_| failed(format!("msgId \"{text}\" is no offset id of 32 or 56 hex digits")))?;
    let found = record(cast, id.log_offset).await?;
    let bytes = found.ok_or_else(|| failed(format!("no message begins at log offset {}", id.log_offset)))?;
    let topic = troupemq_codec::message::RecordView::parse(&bytes)?.topic().to_owned();
    let half = HalfView::parse(&bytes).filter(|_| [HALF_TOPIC, GIVEN_UP_TOPIC].contains(&topic.as_str()));
    let half = half.ok_or_else(|| {
        let wanted = format!("{HALF_TOPIC} or {GIVEN_UP_TOPIC}");
        failed(format!("a message of {topic} is not half of a transaction; it must be of {wanted}"))
    })?;
    let queue_offset = if topic == HALF_TOPIC { half.record.queue_offset() } else { -1 };
    let wanted = Decide { queue_offset, uniq_key: Text::from(half.uniq_key) };
    match cast.transactions.send(wanted).await? {
        Decision::Begun(open) => {
            let copied = copy(cast, &half, Copied { checks: 0, instead_of: Some(open) }).await;
            settle(&cast.transactions, open, copied.map(|copied| copied.op_offset)).await?;
        }
        Decision::Over if topic == GIVEN_UP_TOPIC => {
            copy(cast, &half, Copied { checks: 0, instead_of: None }).await?;
        }
        Decision::Over => return Err(failed("its transaction was decided before".to_owned())),
        Decision::Busy => return Err(failed(busy(queue_offset))),
    }
    Ok(Command::response(ResponseCode::SUCCESS))
}

/// Why a transaction that was decided is not decided again.
pub(super) fn over(queue_offset: i64) -> Refusal {
    refused(format!(
        "the transaction of half message {queue_offset} was decided before; the first decision counts"
    ))
}

/// Why a decision is not taken while another one is.
pub(super) fn is_busy(queue_offset: i64) -> Refusal {
    refused(busy(queue_offset))
}

fn busy(queue_offset: i64) -> String {
    format!("a decision about half message {queue_offset} is being stored")
}

fn refused(remark: impl Into<String>) -> Refusal {
    Refusal::new(ResponseCode::SYSTEM_ERROR, remark)
}
