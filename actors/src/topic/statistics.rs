//! Sums of one topic: TOPIC_PUT_NUMS, TOPIC_PUT_SIZE; by group GROUP_GET_NUMS, GROUP_GET_SIZE, SNDBCK_PUT_NUMS,
//! SNDBCK2DLQ_TIMES; by queue QUEUE_PUT_NUMS, QUEUE_PUT_SIZE, TOPIC_PUT_LATENCY; by both QUEUE_GET_NUMS,
//! QUEUE_GET_SIZE, GROUP_GET_LATENCY. Java: `BrokerStatsManager`, `StatsItemSet`.
//!
//! Invariants:
//! - sums are differences of two samples of the same item: every 10 s for the minute, 10 min for the hour, 1 h for
//!   the day;
//! - what was counted before an item's first sample counts, but for what was counted when the topic came to rest;
//! - statistics are at rest when no sum would change however long one waits.

use std::collections::{HashMap, VecDeque};

use troupemq_codec::request::{BrokerStats, BrokerStatsItem};

use super::counters::{Counted, Key, Pair};

/// From one sample to the next, ms: of the minute, of the hour and of the day.
const STEPS_MS: [i64; 3] = [10_000, 600_000, 3_600_000];
/// Samples, every 10 s, that make a minute; every 10 min, an hour.
const SIX: usize = 6;
/// Samples, every hour, that make a day.
const DAY: usize = 24;

/// Samples of the counters of one topic.
#[derive(Debug, Default)]
pub struct Statistics {
    items: HashMap<Key, Item>,
    /// What was counted when the topic last came to rest.
    rested: Counted,
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
    /// Milliseconds that sends or pulls took.
    Latency,
    /// Messages sent back.
    SentBack,
    /// Of these, dead letters.
    Dead,
}

impl Statistics {
    /// Statistics of a topic of which so much was counted when it came to rest.
    pub fn since(rested: Counted) -> Statistics {
        Statistics { rested, ..Statistics::default() }
    }

    /// Takes a sample; one is due every 10 s.
    pub fn sample(&mut self, now_ms: i64, counted: Counted) {
        for (key, pair) in counted.0 {
            let rested = &self.rested;
            let item = self.items.entry(key);
            let item = item
                .or_insert_with_key(|key| Item::begun(rested.pair(key).copied().unwrap_or_default(), now_ms));
            item.sample(pair, now_ms, self.ticks);
        }
        self.ticks += 1;
    }

    /// The sums of one item; zero if there is no sample of it yet.
    pub fn of(&self, key: &Key, of: Of) -> BrokerStats {
        self.items.get(key).map_or_else(BrokerStats::default, |item| item.stats(of))
    }

    /// Whether all sums are zero and stay so, with these counters now.
    pub fn is_at_rest(&self, counted: &Counted) -> bool {
        counted.0.iter().all(|(key, pair)| match self.items.get(key) {
            Some(item) => item.rests(pair),
            None => self.rested.pair(key) == Some(pair),
        })
    }
}

impl Item {
    /// An item of which so much was counted one step before its first sample.
    fn begun(pair: Pair, first_ms: i64) -> Item {
        let [minute, hour, day] =
            STEPS_MS.map(|step_ms| VecDeque::from([Sample { at_ms: first_ms - step_ms, pair }]));
        Item { now: pair, minute, hour, day }
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
            Of::Dead => self.dead,
        }
    }

    /// In how many calls it came: a message that is sent back is one.
    fn calls(&self, of: Of) -> u64 {
        match of {
            Of::SentBack => self.sent_back,
            Of::Dead => self.dead,
            Of::Messages | Of::Bytes | Of::Latency => self.calls,
        }
    }
}

impl Counted {
    /// Whether this was ever counted.
    pub fn has(&self, key: &Key, of: Of) -> bool {
        let is_rare = matches!(of, Of::SentBack | Of::Dead);
        self.pair(key).is_some_and(|pair| if is_rare { pair.value(of) > 0 } else { pair.calls > 0 })
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
    use troupemq_codec::loose_json::to_fastjson;
    use troupemq_codec::request::{ViewBrokerStatsData, ViewBrokerStatsDataHeader};
    use troupemq_codec::{Request, Text};

    use super::super::counters::Counters;
    use super::*;
    use crate::golden::conversation;
    use crate::golden::replay::{Asked, asked};

    #[test]
    fn a_minute_is_the_difference_of_its_ends() {
        let (counters, mut statistics) = (Counters::default(), Statistics::default());
        counters.put(0, &Pair::of(4, 400, 1, 0));
        for tick in 0..10 {
            statistics.sample(10_000 * tick, counters.read());
            counters.put(0, &Pair::of(2, 200, 1, 0));
        }
        let stats = statistics.of(&Key::default(), Of::Messages);
        assert_eq!(stats.stats_minute, BrokerStatsItem { avgpt: 2.0, sum: 12, tps: 0.2 });
        assert_eq!(stats.stats_day.sum, 4, "what came before the first sample");
        assert_eq!(statistics.of(&Key::default(), Of::Bytes).stats_minute.sum, 1200);
    }

    fn key(group: &str, queue_id: Option<i32>) -> Key {
        Key { group: (!group.is_empty()).then(|| Text::from(group)), queue_id }
    }

    #[test]
    fn groups_and_queues_are_counted_each_for_itself() {
        let (counters, mut statistics) = (Counters::default(), Statistics::default());
        statistics.sample(0, counters.read());
        counters.got("billing", 3, &Pair::of(5, 50, 1, 7));
        counters.got("billing", 4, &Pair::of(1, 10, 1, 2));
        counters.put(3, &Pair::of(8, 80, 4, 12));
        counters.sent_back("billing", false);
        counters.sent_back("billing", true);
        statistics.sample(10_000, counters.read());
        let minute = |group, queue_id, of| statistics.of(&key(group, queue_id), of).stats_minute;
        let item = |avgpt, sum, tps| BrokerStatsItem { avgpt, sum, tps };
        assert_eq!(minute("billing", None, Of::Messages), item(3.0, 6, 0.6));
        assert_eq!(minute("billing", Some(3), Of::Messages), item(5.0, 5, 0.5));
        assert_eq!(minute("billing", Some(3), Of::Bytes).sum, 50);
        assert_eq!(minute("billing", Some(3), Of::Latency), item(7.0, 7, 0.7));
        assert_eq!(minute("billing", None, Of::SentBack), item(1.0, 2, 0.2));
        assert_eq!(minute("billing", None, Of::Dead), item(1.0, 1, 0.1));
        assert_eq!(minute("", Some(3), Of::Latency), item(3.0, 12, 1.2));
        assert_eq!(minute("", Some(3), Of::Messages), item(2.0, 8, 0.8));
        assert_eq!(statistics.of(&key("others", None), Of::Messages), BrokerStats::default());
    }

    /// Java's broker was sent two messages in each 10 s, one by one, and had them pulled so.
    #[test]
    fn the_sums_that_java_told_of_such_a_minute_are_told() {
        let (counters, mut statistics) = (Counters::default(), Statistics::default());
        for tick in 0..=6 {
            statistics.sample(10_000 * tick, counters.read());
            for _ in 0..2 {
                counters.put(0, &Pair::of(1, 100, 1, 0));
                counters.got("pg_adm_c", 0, &Pair::of(1, 100, 1, 0));
            }
        }
        let mut compared = 0;
        let frames = conversation("mqadmin-statsAll-2", "broker");
        for Asked { request, java } in asked(&frames) {
            let Some(java) = java.filter(|_| request.command.code == ViewBrokerStatsData::CODE) else {
                continue;
            };
            let header: ViewBrokerStatsDataHeader = request.command.header().unwrap();
            let group = header.key.split_once('@').map_or("", |(_, group)| group);
            let ours = statistics.of(&key(group, None), Of::Messages);
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
        counters.put(0, &Pair::of(1, 10, 1, 0));
        counters.got("billing", 0, &Pair::of(1, 10, 1, 1));
        assert!(!statistics.is_at_rest(&counters.read()));
        let mut tick = 1;
        while !statistics.is_at_rest(&counters.read()) {
            statistics.sample(10_000 * tick, counters.read());
            tick += 1;
        }
        let hours = tick / 360;
        assert!((24..=25).contains(&hours), "{hours} h");
        assert_eq!(statistics.of(&Key::default(), Of::Messages).stats_day.sum, 0);
        let rested = counters.read();
        counters.got("audit", 0, &Pair::of(1, 10, 1, 1));
        assert!(!statistics.is_at_rest(&counters.read()), "another group has come");
        let mut next = Statistics::since(rested.clone());
        assert!(next.is_at_rest(&rested));
        assert!(!next.is_at_rest(&counters.read()));
        next.sample(10_000 * tick, counters.read());
        let sum = |key| next.of(&key, Of::Messages).stats_minute.sum;
        assert_eq!((sum(Key::default()), sum(key("audit", None))), (0, 1), "only what came since the rest");
    }
}
