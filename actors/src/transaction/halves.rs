//! Half messages that are not decided yet.
//!
//! Invariants:
//! - plain state: no time, no I/O;
//! - a transaction is decided once: the first answer wins, whichever of its half messages it names;
//! - the saved progress never passes a half message that is still open.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use troupemq_codec::Text;

/// A half message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Half {
    /// Its unique id, by which all half messages of one transaction know each other.
    pub uniq_key: Text,
    /// Where its record is.
    pub log_offset: u64,
    /// Bytes of the record.
    pub size: u32,
}

#[derive(Debug)]
struct Open {
    half: Half,
    is_busy: bool,
}

/// The half messages of one broker, by their queue offsets.
#[derive(Debug, Default)]
pub struct Halves {
    open: BTreeMap<i64, Open>,
    by_key: HashMap<Text, i64>,
    /// Half messages that an op message named before they were read.
    early: BTreeSet<i64>,
    /// Op messages with the last half message each of them names.
    ops: BTreeMap<i64, i64>,
    read_to: i64,
    ops_read_to: i64,
}

impl Halves {
    /// No half message is known; both topics are read from these offsets on.
    pub fn from(read_to: i64, ops_read_to: i64) -> Halves {
        Halves { read_to, ops_read_to, ..Halves::default() }
    }

    /// The offset from which half messages are not read yet.
    pub fn read_to(&self) -> i64 {
        self.read_to
    }

    /// The same of op messages.
    pub fn ops_read_to(&self) -> i64 {
        self.ops_read_to
    }

    /// A half message was read; none if it cannot be read any more.
    pub fn read(&mut self, queue_offset: i64, half: Option<Half>) {
        self.read_to = self.read_to.max(queue_offset + 1);
        let Some(half) = half.filter(|_| !self.early.remove(&queue_offset)) else { return };
        self.by_key.insert(half.uniq_key.clone(), queue_offset);
        self.open.insert(queue_offset, Open { half, is_busy: false });
    }

    /// An op message was read or written: these half messages are done.
    pub fn done(&mut self, op_offset: i64, halves: &[i64]) {
        self.ops_read_to = self.ops_read_to.max(op_offset + 1);
        for queue_offset in halves {
            self.close(*queue_offset);
            if *queue_offset >= self.read_to {
                self.early.insert(*queue_offset);
            }
        }
        self.ops.insert(op_offset, halves.iter().copied().max().unwrap_or(-1));
    }

    fn close(&mut self, queue_offset: i64) {
        let Some(open) = self.open.remove(&queue_offset) else { return };
        if self.by_key.get(&open.half.uniq_key) == Some(&queue_offset) {
            self.by_key.remove(&open.half.uniq_key);
        }
    }

    /// Begins to decide the transaction of a half message: names the one that is open now. None if it is
    /// decided or being decided.
    pub fn decide(&mut self, queue_offset: i64, uniq_key: &str) -> Option<i64> {
        let current = match self.open.contains_key(&queue_offset) {
            true => queue_offset,
            false => *self.by_key.get(uniq_key)?,
        };
        let open = self.open.get_mut(&current)?;
        (!std::mem::replace(&mut open.is_busy, true)).then_some(current)
    }

    /// The decision could not be stored.
    pub fn undecided(&mut self, queue_offset: i64) {
        if let Some(open) = self.open.get_mut(&queue_offset) {
            open.is_busy = false;
        }
    }

    /// Those that are open and not being decided, oldest first, from an offset on.
    pub fn idle_from(&self, from: i64) -> impl Iterator<Item = (i64, &Half)> {
        self.open.range(from..).filter(|(_, open)| !open.is_busy).map(|(at, open)| (*at, &open.half))
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Where to begin after a restart: in the half topic and in the op topic.
    pub fn progress(&mut self) -> (i64, i64) {
        let half = self.open.first_key_value().map_or(self.read_to, |(first, _)| *first);
        while let Some(first) = self.ops.first_entry().filter(|first| *first.get() < half) {
            first.remove();
        }
        (half, self.ops.first_key_value().map_or(self.ops_read_to, |(first, _)| *first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(key: &str) -> Option<Half> {
        Some(Half { uniq_key: Text::from(key), log_offset: 0, size: 1 })
    }

    #[test]
    fn the_first_decision_wins() {
        let mut halves = Halves::default();
        halves.read(0, half("a"));
        assert_eq!(halves.decide(0, "a"), Some(0));
        assert_eq!(halves.decide(0, "a"), None);
        halves.undecided(0);
        assert_eq!(halves.decide(0, "a"), Some(0));
        halves.done(0, &[0]);
        assert_eq!(halves.decide(0, "a"), None);
    }

    #[test]
    fn a_late_answer_to_the_first_half_decides_its_copy() {
        let mut halves = Halves::default();
        halves.read(0, half("a"));
        halves.read(1, half("a"));
        halves.done(0, &[0]);
        assert_eq!(halves.decide(0, "a"), Some(1));
        assert_eq!(halves.decide(1, "a"), None);
    }

    #[test]
    fn progress_stops_at_the_oldest_open_half() {
        let mut halves = Halves::default();
        (0..4).for_each(|at| halves.read(at, half(&format!("k{at}"))));
        halves.done(0, &[2]);
        halves.done(1, &[0]);
        assert_eq!(halves.progress(), (1, 0));
        halves.done(2, &[1]);
        assert_eq!(halves.progress(), (3, 3));
        halves.done(3, &[3, 4]);
        assert_eq!(halves.progress(), (4, 3));
        halves.read(4, half("k4"));
        assert_eq!((halves.progress(), halves.open()), ((5, 4), 0));
    }

    /// Random transactions, answered once, twice or never, with restarts from the saved progress.
    #[test]
    fn whatever_happens_each_transaction_is_decided_at_most_once() {
        for seed in 1..200_u64 {
            let mut dice = seed;
            let mut roll = |sides: u64| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (dice >> 33) % sides
            };
            let (mut log, mut ops, mut decided) = (Vec::new(), Vec::new(), Vec::new());
            let mut halves = Halves::default();
            for _ in 0..60 {
                match roll(4) {
                    0 => {
                        let at = i64::try_from(log.len()).unwrap();
                        let key = format!("k{at}");
                        halves.read(at, half(&key));
                        log.push(key);
                    }
                    1 | 2 if !log.is_empty() => {
                        let at = usize::try_from(roll(log.len() as u64)).unwrap();
                        if let Some(current) = halves.decide(i64::try_from(at).unwrap(), &log[at]) {
                            decided.push(current);
                            halves.done(i64::try_from(ops.len()).unwrap(), &[current]);
                            ops.push(current);
                        }
                    }
                    _ => {
                        let (half_at, op_at) = halves.progress();
                        halves = Halves::from(half_at, op_at);
                        for (at, done) in ops.iter().enumerate().skip(usize::try_from(op_at).unwrap()) {
                            halves.done(i64::try_from(at).unwrap(), &[*done]);
                        }
                        for (at, key) in log.iter().enumerate().skip(usize::try_from(half_at).unwrap()) {
                            halves.read(i64::try_from(at).unwrap(), half(key));
                        }
                    }
                }
            }
            let mut once = decided.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), decided.len(), "seed {seed}");
            assert_eq!(halves.open(), log.len() - decided.len(), "seed {seed}");
        }
    }
}
