//! Crash points: the process ends as by `kill -9`, at a moment that the environment names; or the operating system
//! seems to refuse, from such a moment on.
//!
//! Invariants:
//! - without the variables `TROUPEMQ_CRASH_AT` and `TROUPEMQ_REFUSE_AT` nothing ever ends or is refused here;
//! - a text that names no moment ends the process at once: a test that means nothing must not pass.
//!
//! `TROUPEMQ_CRASH_AT` is `WHEN:OP:PLACE:N` or `WHEN:OP:PLACE:N:PHASE`: `before`, `midst` or `after`; an operation in
//! lower case, or `any`; a part of the file's path; how many such moments pass before it; `start`, `serve` or `stop`,
//! if those of the other phases do not count. Examples: `after:rename:consumerOffset:1`, `before:any:/index/:40:start`.
//!
//! `TROUPEMQ_REFUSE_AT` is `OP:PLACE:N:TIMES:ERRNO`: how many operations pass, how many are refused then, and with
//! which error. Example: `write:/commitlog/:5:10:28`.

#[cfg(feature = "crash-points")]
use std::path::Path;
#[cfg(feature = "crash-points")]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Op, Phase, When};

/// The phase that the process is in.
#[cfg(feature = "crash-points")]
static PHASE: AtomicU8 = AtomicU8::new(Phase::Start as u8);

/// The moment at which the process ends.
#[derive(Debug)]
struct Plan {
    when: When,
    /// None for any.
    op: Option<Op>,
    place: String,
    nth: u64,
    /// The one that counts, if not all do.
    phase: Option<Phase>,
    seen: AtomicU64,
}

impl Plan {
    fn parse(text: &str) -> Option<Plan> {
        let parts: Vec<&str> = text.split(':').collect();
        let (&[when, op, place, nth], phase) = parts.split_first_chunk()?;
        let when = match when {
            "before" => When::Before,
            "midst" => When::Midst,
            "after" => When::After,
            _ => return None,
        };
        let op = if op == "any" { None } else { Some(op_of(op)?) };
        let phase = match phase {
            [] => None,
            ["start"] => Some(Phase::Start),
            ["serve"] => Some(Phase::Serve),
            ["stop"] => Some(Phase::Stop),
            _ => return None,
        };
        let (place, nth) = (place.to_owned(), nth.parse().ok()?);
        Some(Plan { when, op, place, nth, phase, seen: AtomicU64::new(0) })
    }

    /// Whether this is the moment.
    fn strikes(&self, when: When, op: Op, path: &str, phase: Phase) -> bool {
        when == self.when
            && self.op.is_none_or(|wanted| op == wanted)
            && self.phase.is_none_or(|wanted| phase == wanted)
            && path.contains(&self.place)
            && self.seen.fetch_add(1, Ordering::Relaxed) == self.nth
    }
}

/// Operations that are refused.
#[derive(Debug)]
struct Refusals {
    op: Op,
    place: String,
    nth: u64,
    times: u64,
    errno: i32,
    seen: AtomicU64,
}

impl Refusals {
    fn parse(text: &str) -> Option<Refusals> {
        let [op, place, nth, times, errno] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
        Some(Refusals {
            op: op_of(op)?,
            place: place.to_owned(),
            nth: nth.parse().ok()?,
            times: times.parse().ok()?,
            errno: errno.parse().ok()?,
            seen: AtomicU64::new(0),
        })
    }

    /// The refusal of this operation, if it is one of those.
    fn at(&self, op: Op, path: &str) -> std::io::Result<()> {
        if op != self.op || !path.contains(&self.place) {
            return Ok(());
        }
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        match seen.checked_sub(self.nth) {
            Some(nth) if nth < self.times => Err(std::io::Error::from_raw_os_error(self.errno)),
            _ => Ok(()),
        }
    }
}

fn op_of(text: &str) -> Option<Op> {
    Some(match text {
        "create" => Op::Create,
        "allocate" => Op::Allocate,
        "write" => Op::Write,
        "flush" => Op::Flush,
        "rename" => Op::Rename,
        "remove" => Op::Remove,
        "store" => Op::Store,
        "open" => Op::Open,
        "read" => Op::Read,
        _ => return None,
    })
}

/// What a variable of the environment says; what cannot be understood ends the process. All of this is told on standard
/// error: the process may end before anybody takes what is traced.
#[cfg(feature = "crash-points")]
fn read<T>(variable: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    let plan = parse(&text);
    if plan.is_none() {
        eprintln!("{variable}={text} names no moment");
        end();
    }
    plan
}

/// Refuses if it is the operation to be refused.
#[cfg(feature = "crash-points")]
pub(super) fn refusal(op: Op, path: &Path) -> std::io::Result<()> {
    static PLAN: std::sync::LazyLock<Option<Refusals>> =
        std::sync::LazyLock::new(|| read("TROUPEMQ_REFUSE_AT", Refusals::parse));
    match &*PLAN {
        Some(plan) => plan.at(op, &path.to_string_lossy()).inspect_err(|_| {
            eprintln!("refused {op:?} {}", path.display());
        }),
        None => Ok(()),
    }
}

/// Ends the process if this is the moment.
#[cfg(feature = "crash-points")]
pub(super) fn at(when: When, op: Op, path: &Path) {
    static PLAN: std::sync::LazyLock<Option<Plan>> =
        std::sync::LazyLock::new(|| read("TROUPEMQ_CRASH_AT", Plan::parse));
    if let Some(plan) = &*PLAN
        && plan.strikes(when, op, &path.to_string_lossy(), phase())
    {
        eprintln!("crash point {when:?} {op:?} {}", path.display());
        end();
    }
}

/// The process has come to this phase.
#[cfg(feature = "crash-points")]
pub(super) fn enter(phase: Phase) {
    PHASE.store(phase as u8, Ordering::Release);
}

#[cfg(feature = "crash-points")]
fn phase() -> Phase {
    match PHASE.load(Ordering::Acquire) {
        phase if phase == Phase::Start as u8 => Phase::Start,
        phase if phase == Phase::Serve as u8 => Phase::Serve,
        _ => Phase::Stop,
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
        let strikes = |when, op, path| plan.strikes(when, op, path, Phase::Serve);
        assert!(!strikes(When::After, Op::Rename, path));
        assert!(!strikes(When::Before, Op::Rename, path));
        assert!(!strikes(When::After, Op::Flush, path));
        assert!(!strikes(When::After, Op::Rename, "/s/commitlog/0"));
        assert!(strikes(When::After, Op::Rename, path));
        assert!(!strikes(When::After, Op::Rename, path));
    }

    #[test]
    fn a_moment_of_any_operation_of_one_phase_passes_over_the_others() {
        let plan = Plan::parse("before:any::1:stop").unwrap();
        let strikes = |op, phase| plan.strikes(When::Before, op, "/s/index/0", phase);
        assert!(!strikes(Op::Flush, Phase::Start) && !strikes(Op::Flush, Phase::Serve));
        assert!(!strikes(Op::Flush, Phase::Stop));
        assert!(strikes(Op::Store, Phase::Stop));
    }

    #[test]
    fn refusals_begin_at_their_turn_and_end_after_their_number() {
        let plan = Refusals::parse("write:/commitlog/:1:2:28").unwrap();
        let refused = |op, path| plan.at(op, path).err().and_then(|error| error.raw_os_error());
        let path = "/s/commitlog/0";
        assert_eq!(refused(Op::Write, path), None);
        assert_eq!((refused(Op::Flush, path), refused(Op::Write, "/s/index/0")), (None, None));
        assert_eq!((refused(Op::Write, path), refused(Op::Write, path)), (Some(28), Some(28)));
        assert_eq!(refused(Op::Write, path), None);
        for text in ["", "write:/x:1:2", "think:/x:1:2:28", "write:/x:1:2:no"] {
            assert!(Refusals::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_names_no_moment_is_refused() {
        let moments =
            ["", "after:rename:config", "now:rename:config:1", "after:think:x:1", "after:rename:x:-1"];
        for text in moments.into_iter().chain(["after:rename:x:1:never", "after:rename:x:1:stop:1"]) {
            assert!(Plan::parse(text).is_none(), "{text}");
        }
    }
}
