//! Sums of one topic: TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, and by group GROUP_GET_NUMS, GROUP_GET_SIZE,
//! GROUP_GET_LATENCY, SNDBCK_PUT_NUMS. Java: `BrokerStatsManager`, `StatsItemSet`.
//!
//! Invariants:
//! - sums are differences of two samples of the same item: every 10 s for the minute, 10 min for the hour, 1 h for
//!   the day;
//! - what a group was given between two samples counts, also before its own first;
//! - statistics are at rest when no sum would change however long one waits.

use std::collections::{HashMap, VecDeque};

use troupemq_codec::Text;
use troupemq_codec::request::{BrokerStats, BrokerStatsItem};

use super::counters::{Counted, Pair};

/// From one sample to the next, ms.
const SAMPLE_MS: i64 = 10_000;
/// Samples, every 10 s, that make a minute; every 10 min, an hour.
const SIX: usize = 6;
/// Samples, every hour, that make a day.
const DAY: usize = 24;

/// Samples of the counters of one topic.
#[derive(Debug, Default)]
pub struct Statistics {
    puts: Item,
    gets: HashMap<Text, Item>,
    ticks: u64,
}

/// Samples of one item, of a topic or of the whole broker.
#[derive(Debug, Default)]
pub struct Item {
    now: Pair,
    minute: VecDeque<Sample>,
    hour: VecDeque<Sample>,
    day: VecDeque<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at_ms: i64,
    pair: Pair,
}

/// What of a pair is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Messages.
    Messages,
    /// Bytes.
    Bytes,
    /// Milliseconds that pulls took.
    Latency,
    /// Messages sent back.
    SentBack,
}

impl Statistics {
    /// Takes a sample; one is due every 10 s.
    pub fn sample(&mut self, now_ms: i64, counted: Counted) {
        self.puts.sample(counted.puts, now_ms, self.ticks);
        for (group, pair) in counted.gets {
            // A group that was not there at the sample before had been given nothing.
            let first = || if self.ticks == 0 { Item::default() } else { Item::begun(now_ms - SAMPLE_MS) };
            self.gets.entry(group).or_insert_with(first).sample(pair, now_ms, self.ticks);
        }
        self.ticks += 1;
    }

    /// The sums of what was stored.
    pub fn of_topic(&self, of: Of) -> BrokerStats {
        self.puts.stats(of)
    }

    /// The sums of what a group was given; zero if there is no sample of it yet.
    pub fn of_group(&self, group: &str, of: Of) -> BrokerStats {
        self.gets.get(group).map_or_else(BrokerStats::default, |item| item.stats(of))
    }

    /// Whether all sums are zero and stay so, with these counters now.
    pub fn is_at_rest(&self, counted: &Counted) -> bool {
        let groups_rest = || {
            counted.gets.iter().all(|(group, pair)| self.gets.get(group).is_some_and(|item| item.rests(pair)))
        };
        self.puts.rests(&counted.puts) && groups_rest()
    }
}

impl Item {
    /// An item of which nothing was counted at that time.
    fn begun(at_ms: i64) -> Item {
        let nothing = VecDeque::from([Sample { at_ms, pair: Pair::default() }]);
        Item { now: Pair::default(), minute: nothing.clone(), hour: nothing.clone(), day: nothing }
    }

    /// Takes a sample; one is due every 10 s, and `tick` counts them.
    pub fn sample(&mut self, pair: Pair, at_ms: i64, tick: u64) {
        self.now = pair;
        let sample = Sample { at_ms, pair };
        keep(&mut self.minute, sample, SIX);
        if tick.is_multiple_of(60) {
            keep(&mut self.hour, sample, SIX);
        }
        if tick.is_multiple_of(360) {
            keep(&mut self.day, sample, DAY);
        }
    }

    /// The sums.
    pub fn stats(&self, of: Of) -> BrokerStats {
        BrokerStats {
            stats_day: over(&self.day, of),
            stats_hour: over(&self.hour, of),
            stats_minute: over(&self.minute, of),
        }
    }

    /// The oldest sample is the first of one of the spans.
    fn rests(&self, now: &Pair) -> bool {
        [&self.minute, &self.hour, &self.day]
            .iter()
            .all(|span| span.front().is_none_or(|first| first.pair == *now) && self.now == *now)
    }
}

impl Pair {
    /// What is wanted of it.
    pub fn value(&self, of: Of) -> u64 {
        match of {
            Of::Messages => self.messages,
            Of::Bytes => self.bytes,
            Of::Latency => self.took_ms,
            Of::SentBack => self.sent_back,
        }
    }

    /// In how many calls it came: a message that is sent back is one.
    fn calls(&self, of: Of) -> u64 {
        if of == Of::SentBack { self.sent_back } else { self.calls }
    }
}

/// Keeps a sample, and as many before it as make up the span.
fn keep(samples: &mut VecDeque<Sample>, sample: Sample, span: usize) {
    samples.push_back(sample);
    if samples.len() > span + 1 {
        samples.pop_front();
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are told with few digits")]
fn over(samples: &VecDeque<Sample>, of: Of) -> BrokerStatsItem {
    let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
        return BrokerStatsItem::default();
    };
    let sum = last.pair.value(of) - first.pair.value(of);
    let (calls, ms) = (last.pair.calls(of) - first.pair.calls(of), last.at_ms - first.at_ms);
    BrokerStatsItem {
        avgpt: if calls == 0 { 0.0 } else { sum as f64 / calls as f64 },
        sum: i64::try_from(sum).unwrap_or(i64::MAX),
        tps: if ms <= 0 { 0.0 } else { sum as f64 * 1000.0 / ms as f64 },
    }
}

#[cfg(test)]
mod tests {
    use troupemq_codec::Request;
    use troupemq_codec::loose_json::to_fastjson;
    use troupemq_codec::request::{ViewBrokerStatsData, ViewBrokerStatsDataHeader};

    use super::super::counters::Counters;
    use super::*;
    use crate::golden::conversation;
    use crate::golden::replay::{Asked, asked};

    #[test]
    fn a_minute_is_the_difference_of_its_ends() {
        let (counters, mut statistics) = (Counters::default(), Statistics::default());
        counters.put(4, 400);
        for tick in 0..10 {
            statistics.sample(10_000 * tick, counters.read());
            counters.put(2, 200);
        }
        let stats = statistics.of_topic(Of::Messages);
        assert_eq!(stats.stats_minute, BrokerStatsItem { avgpt: 2.0, sum: 12, tps: 0.2 });
        assert_eq!(stats.stats_day.sum, 0);
        assert_eq!(statistics.of_topic(Of::Bytes).stats_minute.sum, 1200);
    }

    #[test]
    fn groups_are_counted_each_for_itself() {
        let (counters, mut statistics) = (Counters::default(), Statistics::default());
        counters.got("billing", (3, 30), 4);
        statistics.sample(0, counters.read());
        counters.got("billing", (5, 50), 7);
        counters.sent_back("billing");
        statistics.sample(10_000, counters.read());
        let stats = statistics.of_group("billing", Of::Messages);
        assert_eq!((stats.stats_minute.sum, stats.stats_minute.tps), (5, 0.5));
        let minute = |of| statistics.of_group("billing", of).stats_minute;
        assert_eq!(minute(Of::Latency), BrokerStatsItem { avgpt: 7.0, sum: 7, tps: 0.7 });
        assert_eq!(minute(Of::SentBack), BrokerStatsItem { avgpt: 1.0, sum: 1, tps: 0.1 });
        assert_eq!(statistics.of_group("others", Of::Messages), BrokerStats::default());
    }

    /// Java's broker was sent two messages in each 10 s, one by one, and had them pulled so.
    #[test]
    fn the_sums_that_java_told_of_such_a_minute_are_told() {
        let (counters, mut statistics) = (Counters::default(), Statistics::default());
        for tick in 0..=6 {
            statistics.sample(10_000 * tick, counters.read());
            for _ in 0..2 {
                counters.put(1, 100);
                counters.got("pg_adm_c", (1, 100), 0);
            }
        }
        let mut compared = 0;
        let frames = conversation("mqadmin-statsAll-2", "broker");
        for Asked { request, java } in asked(&frames) {
            let Some(java) = java.filter(|_| request.command.code == ViewBrokerStatsData::CODE) else {
                continue;
            };
            let header: ViewBrokerStatsDataHeader = request.command.header().unwrap();
            let ours = match header.key.split_once('@') {
                Some((_, group)) => statistics.of_group(group, Of::Messages),
                None => statistics.of_topic(Of::Messages),
            };
            assert_eq!(to_fastjson(&ours), java.body, "{header:?}");
            compared += 1;
        }
        assert_eq!(compared, 2, "TOPIC_PUT_NUMS and GROUP_GET_NUMS");
    }

    #[test]
    fn statistics_rest_when_a_day_has_passed_since_the_last_message() {
        let (counters, mut statistics) = (Counters::default(), Statistics::default());
        assert!(statistics.is_at_rest(&counters.read()));
        statistics.sample(0, counters.read());
        counters.put(1, 10);
        counters.got("billing", (1, 10), 1);
        assert!(!statistics.is_at_rest(&counters.read()));
        let mut tick = 1;
        while !statistics.is_at_rest(&counters.read()) {
            statistics.sample(10_000 * tick, counters.read());
            tick += 1;
        }
        let hours = tick / 360;
        assert!((24..=25).contains(&hours), "{hours} h");
        assert_eq!(statistics.of_topic(Of::Messages).stats_day.sum, 0);
        counters.got("audit", (1, 10), 1);
        assert!(!statistics.is_at_rest(&counters.read()), "another group has come");
    }
}
