//! The operations of the store at which the broker can be told to die, or the system to refuse.
//!
//! Invariants:
//! - each line names an operation that every life of its kind reaches: one that is armed twice and never met is a
//!   fault;
//! - those that were armed least often come next, those that were not met come at once, and then at the first such
//!   operation, with time enough;
//! - those of a start or of an orderly stop name a part of the store alone: what is done to it then depends on what
//!   is found.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Fault;
use crate::chance::Chance;

/// How long a broker may take to come to an operation that it surely comes to.
const PATIENCE: Duration = Duration::from_secs(240);

/// ENOSPC.
const NO_SPACE: i32 = 28;
/// EIO.
const INPUT_OUTPUT: i32 = 5;

/// An operation on a part of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) op: &'static str,
    /// Part of the file's path.
    pub(crate) path: &'static str,
    /// How many of these a life of a second or so has, roughly.
    often: u64,
    /// Whether it is reached only where old messages are deleted.
    needs_age: bool,
}

const fn place(op: &'static str, path: &'static str, often: u64) -> Place {
    Place { op, path, often, needs_age: false }
}

const fn of_old(op: &'static str, path: &'static str) -> Place {
    Place { op, path, often: 2, needs_age: true }
}

/// Where the broker can die.
const PLACES: &[Place] = &[
    place("write", "/commitlog/", 300),
    place("create", "/commitlog/", 3),
    place("allocate", "/commitlog/", 3),
    place("flush", "/commitlog", 12),
    of_old("rename", "/commitlog/"),
    of_old("rename", "/recycled/"),
    of_old("remove", "/commitlog/"),
    place("create", "/consumequeue/", 12),
    place("allocate", "/consumequeue/", 12),
    place("store", "/consumequeue/", 300),
    place("flush", "/consumequeue/", 30),
    of_old("remove", "/consumequeue/"),
    place("create", "/batchconsumequeue/", 2),
    place("allocate", "/batchconsumequeue/", 2),
    place("store", "/batchconsumequeue/", 60),
    place("flush", "/batchconsumequeue/", 8),
    of_old("remove", "/batchconsumequeue/"),
    place("create", "/index/", 2),
    place("allocate", "/index/", 2),
    place("store", "/index/", 400),
    place("flush", "/index/", 2),
    of_old("remove", "/index/"),
    place("write", "/timerlog/", 60),
    place("create", "/timerlog/", 2),
    place("flush", "/timerlog/", 2),
    place("allocate", "/timerwheel", 2),
    place("flush", "/timerwheel", 2),
    place("write", "/timercheck", 2),
    place("create", "/checkpoint", 1),
    place("write", "/checkpoint", 1),
    place("flush", "/checkpoint", 1),
    place("create", "/config/", 6),
    place("write", "/config/", 6),
    place("flush", "/config/", 6),
    place("rename", "/config/", 10),
    place("write", "/consumerOffset", 1),
    place("rename", "/consumerOffset", 2),
    place("create", "/abort", 1),
    place("flush", "", 30),
];

/// The parts of the store that every start changes, and how often at most a moment passes there.
const STARTING: &[(&str, u64)] = &[
    ("", 120),
    ("", 30),
    ("/commitlog", 4),
    ("/consumequeue", 60),
    ("/index", 4),
    ("/timer", 12),
    ("/abort", 2),
];
/// The same of a start that finds damage.
const MENDING: &[(&str, u64)] = &[
    ("", 400),
    ("/commitlog", 6),
    ("/consumequeue", 200),
    ("/batchconsumequeue", 60),
    ("/consumequeue_ext", 60),
    ("/index", 300),
    ("/timer", 30),
    ("/config/", 10),
    ("/unreadable", 3),
];
/// The same of an orderly stop.
const STOPPING: &[(&str, u64)] = &[
    ("", 60),
    ("/commitlog", 6),
    ("/consumequeue", 30),
    ("/index", 6),
    ("/timer", 12),
    ("/config/", 16),
    ("/checkpoint", 3),
    ("/abort", 1),
];
/// The parts that a start can do without, and which it makes anew when they cannot be read.
const UNREAD: &[&str] = &[
    "/consumequeue/",
    "/batchconsumequeue/",
    "/consumequeue_ext/",
    "/index/",
    "/checkpoint",
    "/timerlog/",
    "/timerwheel",
    "/timercheck",
];

/// What a broker does with its store when it is to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It recovers, and serves nobody yet.
    Start,
    /// The same where it finds damage.
    Mend,
    /// It stops in order.
    Stop,
}

/// A moment of such an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    when: &'static str,
    place: Place,
    nth: u64,
    /// Those of this phase alone count.
    phase: Option<Phase>,
    /// It is the first of its kind, and is waited for.
    is_due: bool,
}

impl Moment {
    /// How long the broker may live until then; none if that is not for the moment to say.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.is_due.then_some(PATIENCE)
    }

    /// A moment of a phase, early ones more often.
    pub(crate) fn of(phase: Phase, chance: &mut Chance) -> Moment {
        let (path, often) = *chance.one_of(match phase {
            Phase::Start => STARTING,
            Phase::Mend => MENDING,
            Phase::Stop => STOPPING,
        });
        let when = *chance.one_of(&["before", "after"]);
        let limit = chance.below(often) + 1;
        Moment {
            when,
            place: place("any", path, often),
            nth: chance.below(limit),
            phase: Some(phase),
            is_due: false,
        }
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}:{}:{}", self.when, self.place.op, self.place.path, self.nth)?;
        match self.phase {
            None => Ok(()),
            Some(Phase::Start | Phase::Mend) => write!(out, ":start"),
            Some(Phase::Stop) => write!(out, ":stop"),
        }
    }
}

/// Operations that the system refuses for a while, as a full or a dying disk does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    place: Place,
    nth: u64,
    times: u64,
    errno: i32,
}

impl Refusal {
    pub(crate) fn by(chance: &mut Chance) -> Refusal {
        let can_fail: Vec<_> = PLACES.iter().filter(|place| place.op != "store").collect();
        let place = **chance.one_of(&can_fail);
        let limit = chance.below(place.often) + 1;
        let times = *chance.one_of(&[1, 5, u64::MAX]);
        let errno = match place.op {
            "write" | "create" | "allocate" => *chance.one_of(&[NO_SPACE, INPUT_OUTPUT]),
            _ => INPUT_OUTPUT,
        };
        Refusal { place, nth: chance.below(limit), times, errno }
    }

    /// Some files that a start can do without cannot be opened or read.
    pub(crate) fn of_reading(chance: &mut Chance) -> Refusal {
        let (op, path) = (*chance.one_of(&["open", "read"]), *chance.one_of(UNREAD));
        let nth = chance.below(4);
        Refusal { place: place(op, path, 4), nth, times: 1 + chance.below(3), errno: INPUT_OUTPUT }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Refusal { place, nth, times, errno } = self;
        write!(out, "{}:{}:{nth}:{times}:{errno}", place.op, place.path)
    }
}

/// How often each place was armed and met.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<(Option<Phase>, Place), Count>);

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    armed: u32,
    met: u32,
}

impl Places {
    /// The next moment for a life in which old messages are deleted, or not.
    pub(crate) fn next(&self, ages: bool, chance: &mut Chance) -> Moment {
        let reached = || PLACES.iter().filter(|place| ages || !place.needs_age);
        let due: Vec<_> =
            reached().filter(|place| matches!(self.of(place), Count { armed: 1, met: 0 })).collect();
        let least = reached().map(|place| self.of(place).armed).min().unwrap_or(0);
        let rarest: Vec<_> = reached().filter(|place| self.of(place).armed == least).collect();
        let is_due = !due.is_empty();
        let place = **chance.one_of(if is_due { &due } else { &rarest });
        let times: &[&str] = match place.op {
            "write" => &["before", "midst", "after"],
            _ => &["before", "after"],
        };
        let when = *chance.one_of(times);
        // Early ones more often: those of the recovery are among them.
        let limit = chance.below(place.often) + 1;
        let nth = if is_due { 0 } else { chance.below(limit) };
        Moment { when, place, nth, phase: None, is_due }
    }

    fn of(&self, place: &Place) -> Count {
        self.0.get(&(None, *place)).copied().unwrap_or_default()
    }

    /// Notes whether a moment was met.
    pub(crate) fn note(&mut self, moment: &Moment, met: bool) -> Result<(), Fault> {
        let count = self.0.entry((moment.phase, moment.place)).or_default();
        count.armed += 1;
        count.met += u32::from(met);
        match moment.is_due && !met {
            true => Err(Fault(format!("the crash point {moment} is not met: has the broker crash-points?"))),
            false => Ok(()),
        }
    }

    /// Kills at all of them.
    pub(crate) fn met(&self) -> u32 {
        self.0.values().map(|count| count.met).sum()
    }

    pub(crate) fn print(&self) {
        for place in PLACES {
            let Count { armed, met } = self.of(place);
            let why = match (armed, met) {
                (0, _) => "  the run was too short to arm it",
                (_, 0) => "  the run was too short to arm it again",
                _ => "",
            };
            println!("  {met:>3} of {armed:>3}  {:8} {}{why}", place.op, place.path);
        }
        for ((phase, place), Count { armed, met }) in &self.0 {
            let phase = match phase {
                None => continue,
                Some(Phase::Start) => "start",
                Some(Phase::Mend) => "mend",
                Some(Phase::Stop) => "stop",
            };
            println!("  {met:>3} of {armed:>3}  {phase:8} {}", place.path);
        }
    }
}
