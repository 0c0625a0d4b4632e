//! Crash points: the process ends as by `kill -9`, at a moment that the environment names.
//!
//! Invariants:
//! - without the variable `TROUPEMQ_CRASH_AT` nothing ever ends here;
//! - a text that names no moment ends the process at once: a test that means nothing must not pass.
//!
//! The text is `WHEN:OP:PLACE:N`: `before`, `midst` or `after`; an operation in lower case; a part of the file's
//! path; how many such moments pass before it. Example: `after:rename:consumerOffset:1`.

#[cfg(feature = "crash-points")]
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Op, When};

/// The moment at which the process ends.
#[derive(Debug)]
struct Plan {
    when: When,
    op: Op,
    place: String,
    nth: u64,
    seen: AtomicU64,
}

impl Plan {
    fn parse(text: &str) -> Option<Plan> {
        let [when, op, place, nth] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
        let when = match when {
            "before" => When::Before,
            "midst" => When::Midst,
            "after" => When::After,
            _ => return None,
        };
        let op = match op {
            "create" => Op::Create,
            "allocate" => Op::Allocate,
            "write" => Op::Write,
            "flush" => Op::Flush,
            "rename" => Op::Rename,
            "remove" => Op::Remove,
            "store" => Op::Store,
            _ => return None,
        };
        Some(Plan { when, op, place: place.to_owned(), nth: nth.parse().ok()?, seen: AtomicU64::new(0) })
    }

    /// Whether this is the moment.
    fn strikes(&self, when: When, op: Op, path: &str) -> bool {
        when == self.when
            && op == self.op
            && path.contains(&self.place)
            && self.seen.fetch_add(1, Ordering::Relaxed) == self.nth
    }
}

/// Ends the process if this is the moment.
#[cfg(feature = "crash-points")]
pub(super) fn at(when: When, op: Op, path: &Path) {
    static PLAN: std::sync::LazyLock<Option<Plan>> = std::sync::LazyLock::new(|| {
        let text = std::env::var("TROUPEMQ_CRASH_AT").ok()?;
        let plan = Plan::parse(&text);
        if plan.is_none() {
            eprintln!("TROUPEMQ_CRASH_AT={text} names no moment");
            end();
        }
        plan
    });
    if let Some(plan) = &*PLAN
        && plan.strikes(when, op, &path.to_string_lossy())
    {
        eprintln!("crash point {when:?} {op:?} {}", path.display());
        end();
    }
}

/// As `kill -9` from outside: no handler, no flush, no farewell.
#[cfg(feature = "crash-points")]
fn end() -> ! {
    let _sent = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_met_once_at_its_turn() {
        let plan = Plan::parse("after:rename:config:1").unwrap();
        let path = "/s/config/topics.json";
        assert!(!plan.strikes(When::After, Op::Rename, path));
        assert!(!plan.strikes(When::Before, Op::Rename, path));
        assert!(!plan.strikes(When::After, Op::Flush, path));
        assert!(!plan.strikes(When::After, Op::Rename, "/s/commitlog/0"));
        assert!(plan.strikes(When::After, Op::Rename, path));
        assert!(!plan.strikes(When::After, Op::Rename, path));
    }

    #[test]
    fn what_names_no_moment_is_refused() {
        for text in ["", "after:rename:config", "now:rename:config:1", "after:think:x:1", "after:rename:x:-1"]
        {
            assert!(Plan::parse(text).is_none(), "{text}");
        }
    }
}
