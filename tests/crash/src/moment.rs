//! The operations of the store at which the broker can be told to die.
//!
//! Invariants:
//! - each line names an operation that a life with its settings reaches: one that is never met is told of.

use crate::chance::Chance;

/// An operation on a part of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) op: &'static str,
    /// Part of the file's path.
    pub(crate) path: &'static str,
    /// How many of these a life of a second or so has, roughly.
    often: u64,
}

const fn place(op: &'static str, path: &'static str, often: u64) -> Place {
    Place { op, path, often }
}

/// Where the broker can die.
pub(crate) const PLACES: &[Place] = &[
    place("write", "/commitlog/", 300),
    place("create", "/commitlog/", 3),
    place("allocate", "/commitlog/", 3),
    place("flush", "/commitlog", 12),
    place("rename", "/commitlog/", 1),
    place("rename", "/recycled/", 1),
    place("remove", "/commitlog/", 2),
    place("create", "/consumequeue/", 12),
    place("allocate", "/consumequeue/", 12),
    place("store", "/consumequeue/", 300),
    place("flush", "/consumequeue/", 30),
    place("remove", "/consumequeue/", 2),
    place("create", "/batchconsumequeue/", 2),
    place("allocate", "/batchconsumequeue/", 2),
    place("store", "/batchconsumequeue/", 60),
    place("flush", "/batchconsumequeue/", 8),
    place("remove", "/batchconsumequeue/", 1),
    place("create", "/index/", 2),
    place("allocate", "/index/", 2),
    place("store", "/index/", 400),
    place("flush", "/index/", 2),
    place("remove", "/index/", 1),
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
    place("create", "/abort", 1),
    place("flush", "", 30),
];

/// A moment of such an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    when: &'static str,
    pub(crate) place: Place,
    nth: u64,
}

impl Moment {
    pub(crate) fn by(chance: &mut Chance) -> Moment {
        let place = *chance.one_of(PLACES);
        let times: &[&str] = match place.op {
            "write" | "store" => &["before", "midst", "after"],
            _ => &["before", "after"],
        };
        let mut when = *chance.one_of(times);
        if place.op == "store" && when == "midst" {
            when = "after";
        }
        // Early ones more often: those of the recovery are among them.
        let limit = chance.below(place.often) + 1;
        Moment { when, place, nth: chance.below(limit) }
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}:{}:{}", self.when, self.place.op, self.place.path, self.nth)
    }
}
