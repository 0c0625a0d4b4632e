//! What a topic counts while it is used: messages and bytes that came, and that went to each group; both by queue too.
//!
//! Invariants:
//! - counters only grow, and are raised where a message is stored or handed out, with no actor between;
//! - a counter is raised once per batch and queue, or once per pull, never per message;
//! - of more than `GROUPS_MAX` groups of a topic the rest is not counted, of queues above `QUEUES_MAX` and of too many
//!   pairs of a group and a queue the rest is not counted apart.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use troupemq_codec::Text;
use troupemq_store::light;

/// Groups that are counted in one topic.
const GROUPS_MAX: usize = 10_000;
/// Queues of a topic that are counted apart: those with the lowest numbers.
pub const QUEUES_MAX: usize = 1024;
/// Queues whose counters lie together.
const ROW: usize = 16;
/// Rows of groups in one topic; each counts a group in a row of queues.
const GROUP_ROWS_MAX: usize = 512;
/// Shards of the table of groups: few threads write to one topic.
const SHARDS: usize = 2;

/// The counters of one topic, shared by its view and its actor.
#[derive(Debug, Default)]
pub struct Counters {
    puts: Counter,
    queues: Shelf,
    groups: OnceLock<DashMap<Text, OfGroup>>,
    group_rows: AtomicUsize,
    is_sampled: AtomicBool,
    /// What was counted when the last who took samples ended.
    rested: ArcSwapOption<Counted>,
}

#[derive(Debug, Default)]
struct OfGroup {
    all: Counter,
    queues: Shelf,
}

#[derive(Debug, Default)]
struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
    calls: AtomicU64,
    took_ms: AtomicU64,
    sent_back: AtomicU64,
    dead: AtomicU64,
}

/// Counters by the number of a queue, found without a hash.
#[derive(Debug, Default)]
struct Shelf(OnceLock<Box<[OnceLock<Row>; QUEUES_MAX / ROW]>>);

type Row = Box<[Counter; ROW]>;

/// What is counted: of a topic, or of one of its queues, or of a group in either.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The group, if it is about one.
    pub group: Option<Text>,
    /// The queue, if it is about one.
    pub queue_id: Option<i32>,
}

/// Messages and bytes, and in how many calls they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pair {
    /// Messages.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Sends or pulls.
    pub calls: u64,
    /// How long those took together, ms.
    pub took_ms: u64,
    /// Messages that consumers sent back.
    pub sent_back: u64,
    /// Of these, dead letters.
    pub dead: u64,
}

/// All counters of a topic at one time, those that are zero left out; in no order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted(pub Vec<(Key, Pair)>);

impl Counted {
    /// What was counted of something; none if that is nothing.
    pub fn pair(&self, key: &Key) -> Option<&Pair> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, pair)| pair)
    }
}

impl Pair {
    /// Messages and their bytes, in so many calls that took so long together.
    pub fn of(messages: usize, bytes: usize, calls: usize, took_ms: u64) -> Pair {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Pair {
            messages: number(messages),
            bytes: number(bytes),
            calls: number(calls),
            took_ms,
            ..Pair::default()
        }
    }
}

impl Counters {
    /// Counts messages that were stored in a queue.
    pub fn put(&self, queue_id: i32, sends: &Pair) {
        self.puts.add(sends);
        if let Some(counter) = self.queues.counter(queue_id, || true) {
            counter.add(sends);
        }
    }

    /// Counts messages of a queue that a pull handed to a group, and how long it took.
    pub fn got(&self, group: &str, queue_id: i32, pulls: &Pair) {
        self.of_group(group, |of_group| {
            of_group.all.add(pulls);
            if let Some(counter) = of_group.queues.counter(queue_id, || self.takes_row()) {
                counter.add(pulls);
            }
        });
    }

    /// Counts a message that a consumer of a group sent back, for the last time if it is dead.
    pub fn sent_back(&self, group: &str, is_dead: bool) {
        self.of_group(group, |of_group| {
            let pair = Pair { sent_back: 1, dead: u64::from(is_dead), ..Pair::default() };
            of_group.all.add(&pair);
        });
    }

    /// Whether one more row of a group fits.
    fn takes_row(&self) -> bool {
        self.group_rows.fetch_add(1, Ordering::Relaxed) < GROUP_ROWS_MAX
    }

    fn of_group(&self, group: &str, count: impl FnOnce(&OfGroup)) {
        // As in Java, readers of light queues count as one.
        let group = if light::is_light(group) { light::PREFIX } else { group };
        let groups = self.groups.get_or_init(|| DashMap::with_shard_amount(SHARDS));
        if let Some(of_group) = groups.get(group) {
            return count(&of_group);
        }
        if groups.len() < GROUPS_MAX {
            count(&groups.entry(Text::from(group)).or_default());
        }
    }

    /// All of them now.
    pub fn read(&self) -> Counted {
        let mut counted = Vec::new();
        let mut note = |group: Option<&Text>, queue_id, pair: Pair| {
            if pair != Pair::default() {
                counted.push((Key { group: group.cloned(), queue_id }, pair));
            }
        };
        note(None, None, self.puts.read());
        self.queues.read(|queue_id, pair| note(None, Some(queue_id), pair));
        for entry in self.groups.get().into_iter().flat_map(DashMap::iter) {
            note(Some(entry.key()), None, entry.all.read());
            entry.queues.read(|queue_id, pair| note(Some(entry.key()), Some(queue_id), pair));
        }
        Counted(counted)
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

    /// Who took samples ends, having seen so much: what is counted from here on is new to the next.
    pub fn rest(&self, counted: Counted) {
        self.rested.store(Some(counted.into()));
    }

    /// What was counted when the last who took samples ended.
    pub fn rested(&self) -> Counted {
        self.rested.load().as_deref().cloned().unwrap_or_default()
    }
}

impl Shelf {
    /// The counter of a queue; none if it is not counted apart. `takes_row` is asked before memory is.
    fn counter(&self, queue_id: i32, takes_row: impl FnOnce() -> bool) -> Option<&Counter> {
        let at = usize::try_from(queue_id).ok().filter(|at| *at < QUEUES_MAX)?;
        let rows = self.0.get_or_init(|| Box::new([const { OnceLock::new() }; QUEUES_MAX / ROW]));
        let row = &rows[at / ROW];
        if row.get().is_none() && !takes_row() {
            return None;
        }
        Some(&row.get_or_init(Box::default)[at % ROW])
    }

    fn read(&self, mut take: impl FnMut(i32, Pair)) {
        let Some(rows) = self.0.get() else { return };
        for (first, row) in (0..).step_by(ROW).zip(rows.iter()) {
            for (queue_id, counter) in (first..).zip(row.get().into_iter().flat_map(|row| row.iter())) {
                take(queue_id, counter.read());
            }
        }
    }
}

impl Counter {
    fn add(&self, pair: &Pair) {
        let counters = [
            (&self.messages, pair.messages),
            (&self.bytes, pair.bytes),
            (&self.calls, pair.calls),
            (&self.took_ms, pair.took_ms),
            (&self.sent_back, pair.sent_back),
            (&self.dead, pair.dead),
        ];
        for (counter, more) in counters.into_iter().filter(|(_, more)| *more > 0) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Pair {
        Pair {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
            took_ms: self.took_ms.load(Ordering::Relaxed),
            sent_back: self.sent_back.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: &str, queue_id: impl Into<Option<i32>>) -> Key {
        Key { group: (!group.is_empty()).then(|| Text::from(group)), queue_id: queue_id.into() }
    }

    #[test]
    fn counters_add_up_by_topic_by_queue_and_by_group() {
        let counters = Counters::default();
        counters.put(0, &Pair::of(3, 30, 2, 7));
        counters.put(17, &Pair::of(1, 10, 1, 0));
        counters.got("billing", 17, &Pair::of(2, 20, 1, 5));
        counters.got("billing", 0, &Pair::of(1, 10, 1, 6));
        counters.got("audit", 0, &Pair::of(4, 40, 1, 0));
        counters.sent_back("audit", false);
        counters.sent_back("audit", true);
        let mut counted = counters.read().0;
        counted.sort_by(|a, b| a.0.cmp(&b.0));
        let wanted = [
            (key("", None), Pair::of(4, 40, 3, 7)),
            (key("", 0), Pair::of(3, 30, 2, 7)),
            (key("", 17), Pair::of(1, 10, 1, 0)),
            (key("audit", None), Pair { sent_back: 2, dead: 1, ..Pair::of(4, 40, 1, 0) }),
            (key("audit", 0), Pair::of(4, 40, 1, 0)),
            (key("billing", None), Pair::of(3, 30, 2, 11)),
            (key("billing", 0), Pair::of(1, 10, 1, 6)),
            (key("billing", 17), Pair::of(2, 20, 1, 5)),
        ];
        assert_eq!(counted, wanted);
    }

    #[test]
    fn of_too_many_groups_the_rest_is_not_counted_and_the_others_go_on() {
        let counters = Counters::default();
        for group in 0..=GROUPS_MAX {
            counters.got(&format!("group-{group}"), 0, &Pair::of(1, 10, 1, 0));
        }
        counters.got("group-0", 0, &Pair::of(1, 10, 1, 0));
        counters.sent_back(&format!("group-{GROUPS_MAX}"), false);
        let counted = counters.read();
        let messages = |group: usize, queue_id: Option<i32>| {
            counted.pair(&key(&format!("group-{group}"), queue_id)).map(|pair| pair.messages)
        };
        assert_eq!(counted.0.iter().filter(|(key, _)| key.queue_id.is_none()).count(), GROUPS_MAX);
        assert_eq!((messages(0, None), messages(0, Some(0))), (Some(2), Some(2)));
        assert_eq!(messages(GROUPS_MAX, None), None);
        let last = GROUPS_MAX - 1;
        assert_eq!((messages(last, None), messages(last, Some(0))), (Some(1), None), "too many are apart");
        assert_eq!(counted.0.len(), GROUPS_MAX + GROUP_ROWS_MAX);
    }

    #[test]
    fn queues_with_high_numbers_are_counted_with_their_topic_only() {
        let counters = Counters::default();
        let last = i32::try_from(QUEUES_MAX).unwrap() - 1;
        for queue_id in [-1, 0, last, last + 1, i32::MAX] {
            counters.put(queue_id, &Pair::of(1, 10, 1, 0));
        }
        let counted = counters.read();
        assert_eq!(counted.pair(&Key::default()).unwrap().messages, 5);
        let queues = counted.0.iter().filter_map(|(key, _)| key.queue_id);
        assert_eq!(queues.collect::<Vec<_>>(), [0, last]);
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
