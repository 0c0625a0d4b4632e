//! Half messages that are not decided yet, by their places in the half topic.
//!
//! Invariants:
//! - plain state: no time, no I/O;
//! - a transaction is decided once: the first answer wins, whichever of its half messages it names;
//! - the saved progress never passes a half message that is still open, and never goes back;
//! - an open half message costs some bits, not a record: what it says stays in the log. Only of the copies that
//!   checks have made is the unique id kept, of [`COPIES_MAX`] at most. A late answer to an older copy of one beyond
//!   that is refused, and its producer is asked again.

#[cfg(test)]
mod halves_test;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use troupemq_codec::Text;

use super::open_set::OpenSet;

/// Copies whose unique ids are kept.
pub const COPIES_MAX: usize = 65_536;
/// Op messages whose progress is kept together.
const OPS_TOGETHER: i64 = 256;
/// Half messages that may lie between the oldest open one and the newest, beside four for each open one.
const SPAN_MIN: i64 = 65_536;

/// What a half message says that its place does not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The unique id, if this is a copy of an earlier half message.
    pub copy_of: Option<Text>,
    /// The earlier place that op messages may name instead of this one. Java moves half messages so.
    pub moved_from: Option<i64>,
    /// The half message for which it stands since, whether an op message says so or not.
    pub instead_of: Option<i64>,
}

/// The half messages of one broker.
#[derive(Debug, Default)]
pub struct Halves {
    /// Those that are open; those of them that are being decided are taken.
    open: OpenSet,
    copies: HashMap<Text, i64>,
    keys: HashMap<i64, Text>,
    /// Where those that Java has moved lie now; known while both topics are read for the first time.
    moved: HashMap<i64, i64>,
    /// Those that copies stand for and no op message has named; known as long, and [`COPIES_MAX`] at most.
    replaced: BTreeSet<i64>,
    /// The last half message that is named, by each [`OPS_TOGETHER`] op messages.
    ops: BTreeMap<i64, i64>,
    read_to: i64,
    ops_read_to: i64,
    ops_progress: i64,
}

impl Halves {
    /// No half message is known; both topics are read from these offsets on.
    pub fn from(read_to: i64, ops_read_to: i64) -> Halves {
        Halves { read_to, ops_read_to, ops_progress: ops_read_to, ..Halves::default() }
    }

    /// The offset from which half messages are not read yet.
    pub fn read_to(&self) -> i64 {
        self.read_to
    }

    /// The same of op messages.
    pub fn ops_read_to(&self) -> i64 {
        self.ops_read_to
    }

    /// A half message was read; none if it cannot be read any more. They are read in their order.
    pub fn read(&mut self, queue_offset: i64, half: Option<Seen>) {
        self.read_to = self.read_to.max(queue_offset + 1);
        let Some(half) = half else { return };
        self.open.insert(queue_offset);
        if let Some(old) = half.instead_of.filter(|old| *old < queue_offset && self.is_open(*old)) {
            self.close(old);
            if self.replaced.len() < COPIES_MAX {
                self.replaced.insert(old);
            }
        }
        if let Some(from) = half.moved_from.filter(|_| self.moved.len() < COPIES_MAX) {
            self.moved.insert(from, queue_offset);
        }
        if let Some(key) = half.copy_of {
            self.is_copy(queue_offset, key);
        }
    }

    /// All half messages below an offset are known to be there, without a look at them. They are no copies, as far as
    /// nobody [says so](Halves::is_copy).
    pub fn came(&mut self, to: i64) {
        (self.read_to..to).for_each(|at| self.open.insert(at));
        self.read_to = self.read_to.max(to);
    }

    /// An open half message is a copy of earlier ones of this unique id.
    pub fn is_copy(&mut self, queue_offset: i64, uniq_key: Text) {
        if self.open.contains(queue_offset) && self.keys.len() < COPIES_MAX {
            self.copies.insert(uniq_key.clone(), queue_offset);
            self.keys.insert(queue_offset, uniq_key);
        }
    }

    /// An op message was read or written: these half messages are done.
    pub fn done(&mut self, op_offset: i64, halves: impl IntoIterator<Item = i64>) {
        self.ops_read_to = self.ops_read_to.max(op_offset + 1);
        let mut last = -1;
        for queue_offset in halves {
            last = last.max(queue_offset);
            self.close(queue_offset);
            if !self.replaced.is_empty() {
                self.replaced.remove(&queue_offset);
            }
            // Mostly none was moved, which costs no hash.
            let moved = if self.moved.is_empty() { None } else { self.moved.remove(&queue_offset) };
            if let Some(now_at) = moved {
                self.close(now_at);
            }
        }
        let together = self.ops.entry(op_offset / OPS_TOGETHER).or_insert(last);
        *together = last.max(*together);
    }

    /// Both topics were read: from now on op messages name the places where half messages lie. Answers those for which
    /// copies stand and which no op message names.
    pub fn all_read(&mut self) -> BTreeSet<i64> {
        self.moved = HashMap::new();
        std::mem::take(&mut self.replaced)
    }

    /// A half message that cannot be read any more, or that something stands for which is stored, is forgotten,
    /// without an op message.
    pub fn forget(&mut self, queue_offset: i64) {
        self.close(queue_offset);
    }

    /// The half messages below an offset are not in the half topic any more.
    pub fn forget_below(&mut self, min: i64) {
        self.read_to = self.read_to.max(min);
        let gone: Vec<i64> = self.open.from(0).take_while(|at| *at < min).collect();
        gone.into_iter().for_each(|at| self.close(at));
    }

    fn close(&mut self, queue_offset: i64) {
        self.open.remove(queue_offset);
        if self.keys.is_empty() {
            return;
        }
        let Some(key) = self.keys.remove(&queue_offset) else { return };
        if self.copies.get(&key) == Some(&queue_offset) {
            self.copies.remove(&key);
        }
    }

    /// Whether a half message is open.
    pub fn is_open(&self, queue_offset: i64) -> bool {
        self.open.contains(queue_offset)
    }

    /// The half message that is open now of the transaction that another one of it names; none if it is decided.
    pub fn current(&self, queue_offset: i64, uniq_key: &str) -> Option<i64> {
        if self.is_open(queue_offset) {
            return Some(queue_offset);
        }
        self.copies.get(uniq_key).copied()
    }

    /// Begins to decide an open half message; false if that has begun already.
    pub fn begin(&mut self, queue_offset: i64) -> bool {
        self.open.take(queue_offset)
    }

    /// The decision could not be stored.
    pub fn undecided(&mut self, queue_offset: i64) {
        self.open.give_back(queue_offset);
    }

    /// Those that are open and not being decided, oldest first, from an offset on.
    pub fn idle_from(&self, from: i64) -> impl Iterator<Item = i64> {
        self.open.free_from(from)
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Open half messages below this offset hold up the progress of too many that are done: they should be moved
    /// to the end of their topic.
    pub fn move_below(&self) -> i64 {
        let open = i64::try_from(self.open.len()).unwrap_or(i64::MAX);
        self.read_to.saturating_sub(open.saturating_mul(4).saturating_add(SPAN_MIN))
    }

    /// Where to begin after a restart: in the half topic and in the op topic.
    pub fn progress(&mut self) -> (i64, i64) {
        let half = self.open.first().unwrap_or(self.read_to);
        while let Some(first) = self.ops.first_entry().filter(|first| *first.get() < half) {
            first.remove();
        }
        let ops = self.ops.first_key_value().map_or(self.ops_read_to, |(first, _)| first * OPS_TOGETHER);
        self.ops_progress = self.ops_progress.max(ops);
        (half, self.ops_progress)
    }
}
