//! What is asked of the timers: RECALL_MESSAGE (370), and by tools and slaves GET_TIMER_CHECK_POINT (60) and
//! GET_TIMER_METRICS (61).
//!
//! Invariants:
//! - the wheel and the timer log are read on a thread that may wait;
//! - an answer is bounded however much waits: seconds of an hour, minutes of all time.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use troupemq_codec::filter::java_hash;
use troupemq_codec::request::{
    GetTimerCheckPoint, GetTimerMetrics, RecallMessage, TimerMetrics, TimingCount,
};
use troupemq_codec::{Command, Request, ResponseCode, Text};
use troupemq_store::StoreError;

use super::recall::recall;
use super::{Report, TimerReport};
use crate::admin::clients::body;
use crate::cast::BrokerCast;
use crate::net::{Answer, Call, Refusal};

/// Answers whatever is asked of the timers.
pub async fn answer(cast: &BrokerCast, call: &Call) -> Answer {
    match call.command.code {
        RecallMessage::CODE => recall(cast, call).await,
        GetTimerCheckPoint::CODE => check_point(cast).await,
        GetTimerMetrics::CODE => metrics(cast).await,
        code => Err(Refusal::unsupported(code)),
    }
}

async fn check_point(cast: &BrokerCast) -> Answer {
    let report = cast.timer.send(Report).await?;
    let bytes = Bytes::copy_from_slice(&report.checkpoint.encode());
    Ok(Command::response(ResponseCode::SUCCESS).with_body(bytes))
}

async fn metrics(cast: &BrokerCast) -> Answer {
    let report = cast.timer.send(Report).await?;
    let topics = cast.directory.topics();
    let names: HashMap<i32, Text> =
        topics.iter().map(|topic| (java_hash(&topic.name), topic.name.clone())).collect();
    let now_ms = cast.now_ms();
    let counted = actix_rt::task::spawn_blocking(move || count(&report, &names, now_ms)).await;
    let failed = |error: StoreError| Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string());
    body(&counted.map_err(|_| Refusal::gone("the reader"))?.map_err(failed)?)
}

/// Counts what waits, slot by slot and topic by topic; reads the timer log.
pub(super) fn count(
    report: &TimerReport,
    names: &HashMap<i32, Text>,
    now_ms: i64,
) -> Result<TimerMetrics, StoreError> {
    let read_to_ms = report.checkpoint.last_read_ms;
    let slots = report.view.counts(read_to_ms)?;
    // A slot is for the times behind its beginning.
    let first_ms = slots.keys().next().map(|slot_ms| slot_ms + 1);
    let mut by_hash: BTreeMap<i32, i64> = BTreeMap::new();
    let mut metrics = TimerMetrics {
        pending: report.pending,
        read_to_ms,
        behind: report.behind,
        delivered: report.delivered,
        recalled: report.recalled,
        given_up: report.given_up,
        ..TimerMetrics::default()
    };
    for (slot_ms, timers) in slots {
        metrics.add(slot_ms, i64::from(timers), now_ms);
        report.view.slot(slot_ms)?.each(|unit| {
            *by_hash.entry(unit.topic_hash).or_default() += if unit.is_delete() { -1 } else { 1 };
        })?;
    }
    let next_ms = report.next_ms.or(first_ms);
    metrics.next_due_ms = next_ms.unwrap_or(0);
    metrics.lag_ms = next_ms.map_or(0, |next_ms| (now_ms - next_ms).max(0));
    for (hash, count) in by_hash {
        let name = names.get(&hash).cloned().unwrap_or_else(|| Text::from(format!("#{hash}")));
        metrics.timing_count.insert(name, TimingCount { count, time_stamp: now_ms });
    }
    Ok(metrics)
}
