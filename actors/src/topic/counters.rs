//! What a topic counts while it is used: messages and bytes that came, and that went to each group.
//!
//! Invariants:
//! - counters only grow, and are raised where a message is stored or handed out, with no actor between;
//! - a pair is raised once per batch and topic, or once per pull, never per message;
//! - of more than `GROUPS_MAX` groups of a topic the rest is not counted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use dashmap::DashMap;
use troupemq_codec::Text;
use troupemq_store::light;

/// Groups that are counted in one topic.
const GROUPS_MAX: usize = 10_000;
/// Shards of the table of groups: few threads write to one topic.
const SHARDS: usize = 2;

/// The counters of one topic, shared by its view and its actor.
#[derive(Debug, Default)]
pub struct Counters {
    puts: Counter,
    gets: OnceLock<DashMap<Text, Counter>>,
    is_sampled: AtomicBool,
}

#[derive(Debug, Default)]
struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
    calls: AtomicU64,
    took_ms: AtomicU64,
    sent_back: AtomicU64,
}

/// Messages and bytes, and in how many calls they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pair {
    /// Messages.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Batches or pulls.
    pub calls: u64,
    /// How long the pulls took together, ms.
    pub took_ms: u64,
    /// Messages that consumers sent back.
    pub sent_back: u64,
}

/// All counters of a topic at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// What was stored.
    pub puts: Pair,
    /// What was handed to groups, in no order.
    pub gets: Vec<(Text, Pair)>,
}

impl Counted {
    /// What was stored, or handed to a group; none if that is nothing.
    pub fn pair(&self, group: Option<&Text>) -> Option<&Pair> {
        match group {
            Some(group) => self.gets.iter().find(|(other, _)| other == group).map(|(_, pair)| pair),
            None => Some(&self.puts).filter(|puts| **puts != Pair::default()),
        }
    }
}

impl Counters {
    /// Counts messages that were stored.
    pub fn put(&self, messages: usize, bytes: usize) {
        self.puts.add(messages, bytes);
    }

    /// Counts messages that a pull handed to a group, and how long it took.
    pub fn got(&self, group: &str, (messages, bytes): (usize, usize), took_ms: u64) {
        self.of_group(group, |counter| {
            counter.add(messages, bytes);
            counter.took_ms.fetch_add(took_ms, Ordering::Relaxed);
        });
    }

    /// Counts a message that a consumer of a group sent back.
    pub fn sent_back(&self, group: &str) {
        self.of_group(group, |counter| _ = counter.sent_back.fetch_add(1, Ordering::Relaxed));
    }

    fn of_group(&self, group: &str, count: impl FnOnce(&Counter)) {
        // As in Java, readers of light queues count as one.
        let group = if light::is_light(group) { light::PREFIX } else { group };
        let groups = self.gets.get_or_init(|| DashMap::with_shard_amount(SHARDS));
        if let Some(counter) = groups.get(group) {
            return count(&counter);
        }
        if groups.len() < GROUPS_MAX {
            count(&groups.entry(Text::from(group)).or_default());
        }
    }

    /// All of them now.
    pub fn read(&self) -> Counted {
        let groups = self.gets.get().into_iter().flat_map(DashMap::iter);
        Counted {
            puts: self.puts.read(),
            gets: groups.map(|entry| (entry.key().clone(), entry.value().read())).collect(),
        }
    }

    /// Whether the caller is the first since `release`: then it sees to it that somebody takes samples.
    pub fn claim(&self) -> bool {
        !self.is_sampled.load(Ordering::Relaxed) && !self.is_sampled.swap(true, Ordering::AcqRel)
    }

    /// Nobody takes samples any more. What was counted before is seen by a `read` after it.
    pub fn release(&self) {
        self.is_sampled.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Counter {
    fn add(&self, messages: usize, bytes: usize) {
        self.messages.fetch_add(u64::try_from(messages).unwrap_or(0), Ordering::Relaxed);
        self.bytes.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Pair {
        Pair {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
            took_ms: self.took_ms.load(Ordering::Relaxed),
            sent_back: self.sent_back.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_by_topic_and_by_group() {
        let counters = Counters::default();
        counters.put(3, 30);
        counters.put(1, 10);
        counters.got("billing", (2, 20), 5);
        counters.got("billing", (1, 10), 6);
        counters.got("audit", (4, 40), 0);
        counters.sent_back("audit");
        let mut counted = counters.read();
        counted.gets.sort_by(|a, b| a.0.cmp(&b.0));
        let pair = |messages, bytes, calls| Pair { messages, bytes, calls, ..Pair::default() };
        assert_eq!(counted.puts, pair(4, 40, 2));
        let (audit, billing) = (pair(4, 40, 1), pair(3, 30, 2));
        let groups = [
            (Text::from("audit"), Pair { sent_back: 1, ..audit }),
            (Text::from("billing"), Pair { took_ms: 11, ..billing }),
        ];
        assert_eq!(counted.gets, groups);
    }

    #[test]
    fn of_too_many_groups_the_rest_is_not_counted_and_the_others_go_on() {
        let counters = Counters::default();
        for group in 0..=GROUPS_MAX {
            counters.got(&format!("group-{group}"), (1, 10), 0);
        }
        counters.got("group-0", (1, 10), 0);
        counters.sent_back(&format!("group-{GROUPS_MAX}"));
        let counted = counters.read();
        let messages = |group: usize| counted.pair(Some(&Text::from(format!("group-{group}").as_str())));
        assert_eq!(counted.gets.len(), GROUPS_MAX);
        assert_eq!(messages(0).map(|pair| pair.messages), Some(2));
        assert_eq!(messages(GROUPS_MAX), None);
    }

    #[test]
    fn one_of_those_who_count_asks_for_samples() {
        let counters = Counters::default();
        assert!(counters.claim());
        assert!(!counters.claim(), "somebody has asked");
        counters.release();
        assert!(counters.claim(), "the next one asks again");
    }
}
