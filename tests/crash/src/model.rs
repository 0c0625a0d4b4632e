//! What the broker has acknowledged.
//!
//! Invariants:
//! - a message is known by its number, which tells its whole body;
//! - two messages never have one place: that alone is a fault;
//! - an inner batch takes a place for each of its messages.

use std::collections::{BTreeMap, BTreeSet};

use crate::Fault;

/// A queue of a topic.
pub(crate) type QueueKey = (String, i32);

/// Told by the clients while they work.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message was acknowledged.
    Stored(String, Place),
    /// A message that waits was acknowledged.
    Waits {
        number: u64,
        log_offset: u64,
    },
    /// A message that names its time was acknowledged.
    Timed {
        number: u64,
        timer: Timer,
    },
    /// A message that names light queues is about to be sent.
    Named {
        number: u64,
        queues: Vec<String>,
    },
    /// A message that waited was taken back.
    Recalled {
        number: u64,
    },
    /// A message was sent back, to come again or as a dead letter.
    SentBack {
        number: u64,
        is_dead: bool,
    },
    /// A half message is about to be sent that nobody will decide.
    Undecided {
        number: u64,
    },
    /// The end of a transaction was acknowledged.
    Decided {
        number: u64,
        is_committed: bool,
    },
    /// A topic was made.
    Made(String),
    /// A topic was deleted, or is about to be made again.
    Gone(String),
    Revived(String),
    /// A group was made.
    Formed(String),
    /// The group's progress in a queue was acknowledged, at this time (epoch ms).
    Committed {
        queue: QueueKey,
        queue_offset: i64,
        at_ms: i64,
    },
    /// A client saw what must not be.
    Wrong(String),
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) queue_id: i32,
    pub(crate) queue_offset: i64,
    pub(crate) log_offset: u64,
    pub(crate) number: u64,
    /// Messages in the record, if it is an inner batch: this one's number is that of the first.
    pub(crate) batch: Option<i64>,
    /// The answer waited for the disk, where the broker is set up so.
    pub(crate) waited: bool,
}

impl Place {
    /// Offset of the message behind it.
    pub(crate) fn next_offset(&self) -> i64 {
        self.queue_offset + self.batch.unwrap_or(1)
    }
}

/// A message that waits for a time it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timer {
    /// Where it lies while it waits.
    pub(crate) log_offset: u64,
    /// When it is to come, epoch ms.
    pub(crate) due_ms: i64,
}

/// All that was acknowledged in one life.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) queues: BTreeMap<QueueKey, BTreeMap<i64, Place>>,
    pub(crate) waiting: BTreeMap<u64, u64>,
    pub(crate) timers: BTreeMap<u64, Timer>,
    pub(crate) committed: BTreeSet<u64>,
    /// Messages that were rolled back or never decided.
    pub(crate) rolled_back: BTreeSet<u64>,
    /// The light queues that messages name.
    pub(crate) names: BTreeMap<u64, Vec<String>>,
    pub(crate) recalled: BTreeSet<u64>,
    /// Messages that come again, and those that were given up.
    pub(crate) retries: BTreeSet<u64>,
    pub(crate) dead: BTreeSet<u64>,
    pub(crate) topics: BTreeSet<String>,
    /// Topics that were deleted.
    pub(crate) gone: BTreeSet<String>,
    pub(crate) groups: BTreeSet<String>,
    /// Minimum and end of each queue when it was last looked at: neither ever goes back.
    pub(crate) reached: BTreeMap<QueueKey, (i64, i64)>,
    /// Offsets of consumers as the last table on the disk had them.
    pub(crate) progress: BTreeMap<QueueKey, i64>,
    /// Commits of the broker that was killed last: when they were acknowledged (epoch ms), and the offset.
    pub(crate) commits: BTreeMap<QueueKey, Vec<(i64, i64)>>,
    /// Up to where the log was on the disk at the last loss of power.
    pub(crate) durable_to: u64,
    /// A loss of power took messages in front of others that stayed: queues keep holes for them.
    pub(crate) has_holes: bool,
}

impl Model {
    /// Takes an event in.
    pub(crate) fn take(&mut self, event: Event) -> Result<(), Fault> {
        match event {
            Event::Stored(topic, place) => return self.store(topic, place),
            Event::Waits { number, log_offset } => drop(self.waiting.insert(number, log_offset)),
            Event::Timed { number, timer } => drop(self.timers.insert(number, timer)),
            Event::Named { number, queues } => drop(self.names.insert(number, queues)),
            Event::Recalled { number } => self.recalled.extend([number]),
            Event::SentBack { number, is_dead: true } => self.dead.extend([number]),
            Event::SentBack { number, is_dead: false } => self.retries.extend([number]),
            Event::Decided { number, is_committed: true } => self.committed.extend([number]),
            Event::Undecided { number } | Event::Decided { number, is_committed: false } => {
                self.rolled_back.extend([number]);
            }
            Event::Made(topic) => self.topics.extend([topic]),
            Event::Gone(topic) => self.gone.extend([topic]),
            Event::Revived(topic) => self.gone.retain(|gone| *gone != topic),
            Event::Formed(group) => self.groups.extend([group]),
            Event::Committed { queue, queue_offset, at_ms } => {
                self.commits.entry(queue).or_default().push((at_ms, queue_offset));
            }
            Event::Wrong(what) => return Err(Fault(what)),
        }
        Ok(())
    }

    fn store(&mut self, topic: String, place: Place) -> Result<(), Fault> {
        let queue = self.queues.entry((topic.clone(), place.queue_id)).or_default();
        let before = queue.range(..place.next_offset()).next_back();
        if let Some((_, other)) = before.filter(|(_, other)| other.next_offset() > place.queue_offset) {
            return Err(Fault(format!("{topic}: {place:?} has the place of {other:?}")));
        }
        queue.insert(place.queue_offset, place);
        Ok(())
    }

    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        let messages = |place: &Place| usize::try_from(place.batch.unwrap_or(1)).unwrap_or(0);
        self.queues.values().flat_map(BTreeMap::values).map(messages).sum()
    }

    /// Forgets messages that do not lie in the log any more, because it was cut at its front or its end.
    pub(crate) fn keep(&mut self, log: std::ops::Range<u64>) {
        self.retain(|log_offset| log.contains(&log_offset));
    }

    /// Forgets messages of a stretch of the log that is lost.
    pub(crate) fn lose(&mut self, log: std::ops::Range<u64>) {
        self.retain(|log_offset| !log.contains(&log_offset));
    }

    fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        for queue in self.queues.values_mut() {
            queue.retain(|_, place| is_kept(place.log_offset));
        }
        self.waiting.retain(|_, log_offset| is_kept(*log_offset));
        self.timers.retain(|_, timer| is_kept(timer.log_offset));
    }
}

/// The body of a message: its number, then bytes that follow from it.
pub(crate) fn body(number: u64) -> Vec<u8> {
    let len = usize::try_from(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54).expect("ten bits fit");
    let mut body = format!("{number}:").into_bytes();
    let fill = number.to_be_bytes();
    body.extend(fill.iter().cycle().take(len));
    body
}

/// The number that a body begins with.
pub(crate) fn number_of(body: &[u8]) -> Option<u64> {
    let end = body.iter().position(|byte| *byte == b':')?;
    std::str::from_utf8(&body[..end]).ok()?.parse().ok()
}
