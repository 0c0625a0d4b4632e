//! Counts by topic and by group: TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, GROUP_GET_NUMS, GROUP_GET_SIZE.
//! Java: `BrokerStatsManager`, `StatsItemSet`.
//!
//! Invariants:
//! - a pair is raised once per batch and queue, or once per pull, never per message;
//! - an item is made by its first message; of more than `ITEMS_MAX` topics or groups the rest is not counted;
//! - sums are differences of two samples of the same item: every 10 s for the minute, 10 min for the hour, 1 h for
//!   the day.

use std::collections::VecDeque;

use dashmap::DashMap;
use troupemq_codec::Text;
use troupemq_codec::request::{BrokerStats, BrokerStatsItem};

/// Topics, and pairs of topic and group, that are counted.
const ITEMS_MAX: usize = 100_000;
/// Samples, every 10 s, that make a minute; every 10 min, an hour.
const SIX: usize = 6;
/// Samples, every hour, that make a day.
const DAY: usize = 24;

/// Items of one broker.
#[derive(Debug, Default)]
pub struct Items {
    puts: DashMap<Text, Item>,
    gets: DashMap<Text, DashMap<Text, Item>>,
}

#[derive(Debug, Default)]
struct Item {
    now: Pair,
    minute: VecDeque<Sample>,
    hour: VecDeque<Sample>,
    day: VecDeque<Sample>,
}

/// Messages and bytes, and in how many calls they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pair {
    messages: u64,
    bytes: u64,
    calls: u64,
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
}

impl Items {
    /// Counts messages that were stored in a topic.
    pub fn put(&self, topic: &Text, messages: usize, bytes: usize) {
        if let Some(mut item) = self.puts.get_mut(topic) {
            return item.now.add(messages, bytes);
        }
        if self.puts.len() < ITEMS_MAX {
            self.puts.entry(topic.clone()).or_default().now.add(messages, bytes);
        }
    }

    /// Counts messages of a topic that were handed to a group.
    pub fn got(&self, topic: &Text, group: &str, messages: usize, bytes: usize) {
        if let Some(groups) = self.gets.get(topic) {
            if let Some(mut item) = groups.get_mut(group) {
                return item.now.add(messages, bytes);
            }
            if groups.len() < ITEMS_MAX {
                groups.entry(Text::from(group)).or_default().now.add(messages, bytes);
            }
            return;
        }
        if self.gets.len() < ITEMS_MAX {
            let groups = self.gets.entry(topic.clone()).or_default();
            groups.entry(Text::from(group)).or_default().now.add(messages, bytes);
        }
    }

    /// Takes samples: `tick` counts the rounds of 10 s.
    pub fn sample(&self, now_ms: i64, tick: u64) {
        for mut item in self.puts.iter_mut() {
            item.sample(now_ms, tick);
        }
        for groups in &self.gets {
            for mut item in groups.iter_mut() {
                item.sample(now_ms, tick);
            }
        }
    }

    /// The sums of a topic; none if it was never written to.
    pub fn of_topic(&self, topic: &str, of: Of) -> Option<BrokerStats> {
        self.puts.get(topic).map(|item| item.stats(of))
    }

    /// The sums of a group in a topic; none if it never read there.
    pub fn of_group(&self, topic: &str, group: &str, of: Of) -> Option<BrokerStats> {
        Some(self.gets.get(topic)?.get(group)?.stats(of))
    }
}

impl Pair {
    fn add(&mut self, messages: usize, bytes: usize) {
        self.messages += u64::try_from(messages).unwrap_or(0);
        self.bytes += u64::try_from(bytes).unwrap_or(0);
        self.calls += 1;
    }

    fn value(&self, of: Of) -> u64 {
        match of {
            Of::Messages => self.messages,
            Of::Bytes => self.bytes,
        }
    }
}

impl Item {
    fn sample(&mut self, at_ms: i64, tick: u64) {
        let sample = Sample { at_ms, pair: self.now };
        keep(&mut self.minute, sample, SIX);
        if tick.is_multiple_of(60) {
            keep(&mut self.hour, sample, SIX);
        }
        if tick.is_multiple_of(360) {
            keep(&mut self.day, sample, DAY);
        }
    }

    fn stats(&self, of: Of) -> BrokerStats {
        BrokerStats {
            stats_day: over(&self.day, of),
            stats_hour: over(&self.hour, of),
            stats_minute: over(&self.minute, of),
        }
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
    let (calls, ms) = (last.pair.calls - first.pair.calls, last.at_ms - first.at_ms);
    BrokerStatsItem {
        avgpt: if calls == 0 { 0.0 } else { sum as f64 / calls as f64 },
        sum: i64::try_from(sum).unwrap_or(i64::MAX),
        tps: if ms <= 0 { 0.0 } else { sum as f64 * 1000.0 / ms as f64 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_the_difference_of_its_ends() {
        let items = Items::default();
        let topic = Text::from_static("orders");
        items.put(&topic, 4, 400);
        for tick in 0..10 {
            items.sample(10_000 * i64::try_from(tick).unwrap(), tick);
            items.put(&topic, 2, 200);
        }
        let stats = items.of_topic("orders", Of::Messages).unwrap();
        assert_eq!(stats.stats_minute, BrokerStatsItem { avgpt: 2.0, sum: 12, tps: 0.2 });
        assert_eq!(stats.stats_day.sum, 0);
        assert_eq!(items.of_topic("orders", Of::Bytes).unwrap().stats_minute.sum, 1200);
        assert_eq!(items.of_topic("others", Of::Messages), None);
    }

    #[test]
    fn groups_are_counted_by_topic() {
        let items = Items::default();
        let topic = Text::from_static("orders");
        items.got(&topic, "billing", 3, 30);
        items.sample(0, 0);
        items.got(&topic, "billing", 5, 50);
        items.sample(10_000, 1);
        let stats = items.of_group("orders", "billing", Of::Messages).unwrap();
        assert_eq!((stats.stats_minute.sum, stats.stats_minute.tps), (5, 0.5));
        assert_eq!(items.of_group("orders", "others", Of::Messages), None);
    }
}
