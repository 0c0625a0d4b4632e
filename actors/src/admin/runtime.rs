//! The state of a broker in numbers: GET_BROKER_RUNTIME_INFO (28).
//!
//! Invariants:
//! - every key that a tool parses is there, with a value it can parse;
//! - this broker has no thread pools: for the way in of sends the bytes in flight and their limit are told, for
//!   the others that nothing waits.

use std::collections::BTreeMap;
use std::path::Path;

use troupemq_codec::Text;
use troupemq_codec::message::RecordView;
use troupemq_codec::request::KvTable;
use troupemq_codec::version::{OUR_VERSION, version_name};
use troupemq_store::dispatch::SCHEDULE_TOPIC;
use troupemq_store::retention::{DiskUse, disk_total_bytes, disk_use};

use super::clients::body;
use crate::cast::BrokerCast;
use crate::dispatcher::Settle;
use crate::net::{Answer, Call, Refusal};
use crate::query::fetch_record;
use crate::schedule::AllPlaces;
use crate::stats::SPANS_MS;
use crate::stats::rates::{Rates, TellRates};
use crate::timer::{Report, TimerReport};

/// The pools that Java has; the queues of all but the first are always empty here.
const POOLS: [&str; 5] = ["send", "pull", "litePull", "query", "ack"];
const GIB: u64 = 1 << 30;

/// GET_BROKER_RUNTIME_INFO.
pub async fn runtime_info(cast: &BrokerCast, _: &Call) -> Answer {
    let rates = cast.sampler.send(TellRates).await?;
    let reached = cast.log.wrote_to();
    // What was appended before this question is dispatched when it is answered.
    cast.dispatcher.send(Settle).await?;
    let (dir, log) = (cast.store_dir.clone(), cast.log.clone());
    let look = move || {
        let first = fetch_record(&log, log.min_offset()).unwrap_or_else(|error| {
            tracing::error!(%error, "the first message of the log cannot be read");
            None
        });
        (disk_use(&dir).and_then(|used| Ok((used, disk_total_bytes(&dir)?))).ok(), first)
    };
    let looked = actix_rt::task::spawn_blocking(look).await.map_err(|_| Refusal::gone("the reader"))?;
    let (disk, first) = looked;
    let earliest_ms =
        first.and_then(|bytes| RecordView::parse(&bytes).ok().map(|record| record.store_timestamp_ms()));
    let mut table = Table::default();
    counts(&mut table, &rates);
    log_of(&mut table, cast, reached, earliest_ms.unwrap_or(-1));
    timers(&mut table, &cast.timer.send(Report).await?, cast.now_ms());
    disk_of(&mut table, &cast.store_dir, disk);
    pools(&mut table, cast);
    for (level, place) in cast.schedule.send(AllPlaces).await?.offset_table {
        let max = cast.queues.get(SCHEDULE_TOPIC, level - 1).map_or(0, |queue| queue.max_offset());
        table.put(format!("scheduleMessageOffset_{level}"), format!("{place},{max}"));
    }
    let runtime = cast.now_ms() - rates.started_ms;
    table.put("bootTimestamp", rates.started_ms);
    table.put("runtime", span(runtime));
    table.put("brokerVersion", OUR_VERSION);
    table.put("brokerVersionDesc", version_name(OUR_VERSION));
    table.put("brokerActive", cast.poison.cause().is_none());
    body(&KvTable { table: table.0 })
}

#[derive(Default)]
struct Table(BTreeMap<Text, Text>);

impl Table {
    fn put(&mut self, key: impl Into<Text>, value: impl std::fmt::Display) {
        self.0.insert(key.into(), Text::from(value.to_string()));
    }
}

/// What was put and got.
#[expect(clippy::cast_precision_loss, reason = "an average is told with few digits")]
fn counts(table: &mut Table, rates: &Rates) {
    let now = &rates.now;
    table.put("putTps", rates.of(|reading| reading.puts));
    table.put("getFoundTps", rates.of(|reading| reading.found_pulls));
    table.put("getMissTps", rates.of(|reading| reading.pulls - reading.found_pulls));
    table.put("getTotalTps", rates.of(|reading| reading.pulls));
    table.put("getTransferredTps", rates.of(|reading| reading.gets));
    table.put("putMessageTimesTotal", now.puts);
    table.put("putMessageFailedTimes", now.refused_puts);
    table.put("deliveriesPutOff", now.put_off);
    table.put("putMessageSizeTotal", now.put_bytes);
    let average = if now.puts == 0 { 0.0 } else { now.put_bytes as f64 / now.puts as f64 };
    table.put("putMessageAverageSize", format!("{average:?}"));
    table.put("putMessageEntireTimeMax", now.slowest_put_ms);
    table.put("getMessageEntireTimeMax", now.slowest_get_ms);
    table.put("putMessageDistributeTime", spans(&now.put_spans));
    table.put("commitsIgnored", now.ignored_commits);
    table.put("commitsRefused", now.refused_commits);
    table.put("putLatency99", share(&now.put_spans, 99, 100));
    table.put("putLatency999", share(&now.put_spans, 999, 1000));
    for (key, put, got) in [
        ("TotalYesterdayMorning", rates.yesterday_morning.puts, rates.yesterday_morning.gets),
        ("TotalTodayMorning", rates.this_morning.puts, rates.this_morning.gets),
        ("TotalTodayNow", now.puts, now.gets),
    ] {
        table.put(format!("msgPut{key}"), put);
        table.put(format!("msgGet{key}"), got);
    }
}

/// How many sends took how long, in Java's form.
fn spans(counts: &[u64]) -> String {
    let seconds = |ms: u64| if ms < 1000 { format!("{ms}ms") } else { format!("{}s", ms / 1000) };
    let named = |(at, count): (usize, &u64)| match at {
        0 => format!("[<=0ms]:{count} "),
        _ if at == SPANS_MS.len() => format!("[10s~]:{count} "),
        _ if SPANS_MS[at] == 10 => format!("[0~10ms]:{count} "),
        _ => {
            let (from, to) = (SPANS_MS[at - 1], SPANS_MS[at]);
            let from = if (from < 1000) == (to < 1000) {
                (if from < 1000 { from } else { from / 1000 }).to_string()
            } else {
                seconds(from)
            };
            format!("[{from}~{}]:{count} ", seconds(to))
        }
    };
    counts.iter().enumerate().map(named).collect()
}

/// The end of the span, in ms, within which so large a share of the sends was done.
fn share(counts: &[u64], part: u64, whole: u64) -> String {
    let total: u64 = counts.iter().sum();
    let mut seen = 0;
    for (at, count) in counts.iter().enumerate() {
        seen += count;
        if total > 0 && seen.saturating_mul(whole) >= total.saturating_mul(part) {
            return format!("{}.00", SPANS_MS.get(at).copied().unwrap_or(SPANS_MS[SPANS_MS.len() - 1]));
        }
    }
    "0.00".to_owned()
}

/// Where the log begins and ends.
fn log_of(table: &mut Table, cast: &BrokerCast, reached: u64, earliest_ms: i64) {
    table.put("commitLogMinOffset", cast.log.min_offset());
    table.put("commitLogMaxOffset", reached);
    table.put("dispatchBehindBytes", 0);
    table.put("dispatchMaxBuffer", 0);
    table.put("earliestMessageTimeStamp", earliest_ms);
    let behind = reached.saturating_sub(cast.log.flushed_to());
    table.put("remainHowManyDataToCommit", "0 B");
    table.put("remainHowManyDataToFlush", format!("{behind} B"));
    table.put("remainTransientStoreBufferNumbs", i32::MAX);
    table.put("pageCacheLockTimeMills", 0);
    let from_ms = cast.config.load().start_accept_send_request_time_stamp;
    table.put("startAcceptSendRequestTimeStamp", from_ms);
}

/// How far the timers are.
fn timers(table: &mut Table, report: &TimerReport, now_ms: i64) {
    table.put("timerReadBehind", (now_ms - report.checkpoint.last_read_ms).max(0) / 1000);
    table.put("timerOffsetBehind", report.behind);
    table.put("timerCongestNum", report.pending);
    table.put("timerEnqueueTps", format!("{:?}", report.enters_a_second));
    table.put("timerDequeueTps", format!("{:?}", report.leaves_a_second));
}

/// How full the disk is.
#[expect(clippy::cast_precision_loss, reason = "sizes of disks are told with one digit")]
fn disk_of(table: &mut Table, dir: &Path, disk: Option<(DiskUse, u64)>) {
    let Some((disk, total_bytes)) = disk else { return };
    let ratio = format!("{:?}", f64::from(disk.used_percent) / 100.0);
    table.put("commitLogDiskRatio", &ratio);
    table.put(format!("commitLogDiskRatio_{}", dir.join("commitlog").display()), &ratio);
    table.put("consumeQueueDiskRatio", &ratio);
    let gib = |bytes: u64| bytes as f64 / GIB as f64;
    let (total, free) = (gib(total_bytes), gib(disk.free_bytes));
    table.put("commitLogDirCapacity", format!("Total : {total:.1} GiB, Free : {free:.1} GiB."));
}

fn pools(table: &mut Table, cast: &BrokerCast) {
    for pool in POOLS {
        let waiting = if pool == "send" { cast.credits.used_bytes() } else { 0 };
        table.put(format!("{pool}ThreadPoolQueueSize"), waiting);
        table.put(format!("{pool}ThreadPoolQueueCapacity"), cast.credits.limit_bytes());
        table.put(format!("{pool}ThreadPoolQueueHeadWaitTimeMills"), 0);
    }
    table.put("EndTransactionQueueSize", 0);
    table.put("EndTransactionThreadPoolQueueCapacity", cast.credits.limit_bytes());
}

/// A duration in Java's words.
fn span(ms: i64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("[ {days} days, {hours} hours, {minutes} minutes, {} seconds ]", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_java_writes_them() {
        let text = spans(&[3, 12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            text,
            "[<=0ms]:3 [0~10ms]:12 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 \
             [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
        );
        assert_eq!(share(&[3, 96, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 99, 100), "10.00");
        assert_eq!(share(&[0; 13], 99, 100), "0.00");
    }

    #[test]
    fn the_time_since_the_start_is_told_in_words() {
        assert_eq!(span(58_000), "[ 0 days, 0 hours, 0 minutes, 58 seconds ]");
        assert_eq!(span(90_061_000), "[ 1 days, 1 hours, 1 minutes, 1 seconds ]");
    }
}
