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
    /// Whether anything was ever stored, or handed to a group.
    pub fn has(&self, group: Option<&Text>) -> bool {
        match group {
            Some(group) => self.gets.iter().any(|(other, _)| other == group),
            None => self.puts != Pair::default(),
        }
    }
}

impl Counters {
    /// Counts messages that were stored.
    pub fn put(&self, messages: usize, bytes: usize) {
        self.puts.add(messages, bytes);
    }

    /// Counts messages that were handed to a group.
    pub fn got(&self, group: &str, messages: usize, bytes: usize) {
        // As in Java, readers of light queues count as one.
        let group = if light::is_light(group) { light::PREFIX } else { group };
        let groups = self.gets.get_or_init(|| DashMap::with_shard_amount(SHARDS));
        if let Some(counter) = groups.get(group) {
            return counter.add(messages, bytes);
        }
        if groups.len() < GROUPS_MAX {
            groups.entry(Text::from(group)).or_default().add(messages, bytes);
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
        counters.got("billing", 2, 20);
        counters.got("billing", 1, 10);
        counters.got("audit", 4, 40);
        let mut counted = counters.read();
        counted.gets.sort_by(|a, b| a.0.cmp(&b.0));
        let pair = |messages, bytes, calls| Pair { messages, bytes, calls };
        assert_eq!(counted.puts, pair(4, 40, 2));
        let groups = [(Text::from("audit"), pair(4, 40, 1)), (Text::from("billing"), pair(3, 30, 2))];
        assert_eq!(counted.gets, groups);
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
