//! GET_TIMER_METRICS (61): how many timer messages each topic has.
//!
//! Invariants:
//! - the body of the answer is [`TimerMetrics`]; what Java's brokers do not know of it they pass over.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::header::NoHeader;
use crate::request::{Direction, Request};
use crate::text::Text;
use crate::topic::DataVersion;

/// GET_TIMER_METRICS.
pub struct GetTimerMetrics;

impl Request for GetTimerMetrics {
    const CODE: i32 = 61;
    const NAME: &'static str = "GET_TIMER_METRICS";
    const TO: Direction = Direction::BrokerToBroker;
    type Header = NoHeader;
    type Reply = NoHeader;
}

/// Timers that wait (`TimerMetrics.TimerMetricsSerializeWrapper`), and how far delivery is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimerMetrics {
    /// Of the whole table.
    pub data_version: DataVersion,
    /// By topic.
    pub timing_count: BTreeMap<Text, TimingCount>,
    /// All that wait. Ours only, like all that follows.
    pub pending: i64,
    /// When the next one is due, epoch ms; 0 for none.
    pub next_due_ms: i64,
    /// Timers are delivered up to this time, epoch ms.
    pub read_to_ms: i64,
    /// By how much the earliest timer that waits is late, ms.
    pub lag_ms: i64,
    /// Messages that are stored and not entered into the wheel yet.
    pub behind: i64,
    /// Delivered since the start of the broker.
    pub delivered: u64,
    /// Recalled since the start of the broker.
    pub recalled: u64,
    /// Given up since the start of the broker: the disk has not read them for as long as messages are kept.
    pub given_up: u64,
    /// Timers of the coming hour by the second in which they are due, epoch s.
    pub by_second: BTreeMap<i64, i64>,
    /// All timers by the minute in which they are due, epoch s of its beginning.
    pub by_minute: BTreeMap<i64, i64>,
}

/// Timers of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimingCount {
    /// How many wait.
    pub count: i64,
    /// When they were counted, epoch ms.
    pub time_stamp: i64,
}

impl TimerMetrics {
    /// Adds timers due behind `slot_ms`, as seen at `now_ms`.
    pub fn add(&mut self, slot_ms: i64, timers: i64, now_ms: i64) {
        let second = slot_ms.div_euclid(1000);
        if slot_ms < now_ms.saturating_add(3_600_000) {
            let of_second = self.by_second.entry(second).or_default();
            *of_second = of_second.saturating_add(timers);
        }
        let minute = second.saturating_sub(second.rem_euclid(60));
        let of_minute = self.by_minute.entry(minute).or_default();
        *of_minute = of_minute.saturating_add(timers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_counted_by_second_for_an_hour_and_by_minute_for_ever() {
        let mut metrics = TimerMetrics::default();
        for slot_ms in [61_000, 61_900, 62_000, 3_661_000] {
            metrics.add(slot_ms, 2, 60_000);
        }
        assert_eq!(metrics.by_second, BTreeMap::from([(61, 4), (62, 2)]));
        assert_eq!(metrics.by_minute, BTreeMap::from([(60, 6), (3660, 2)]));
    }

    #[test]
    fn what_java_writes_is_read() {
        let text = r#"{"dataVersion":{"counter":1},"timingCount":{"T":{"count":4,"timeStamp":5}}}"#;
        let metrics: TimerMetrics = serde_json::from_str(text).unwrap();
        assert_eq!(metrics.timing_count[&Text::from("T")], TimingCount { count: 4, time_stamp: 5 });
    }
}
