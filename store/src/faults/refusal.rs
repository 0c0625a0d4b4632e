//! Refusals: the operating system says no, from a chosen moment on, or takes its time.
//!
//! Invariants:
//! - a fault lasts until its handle is dropped;
//! - it strikes below its folder alone;
//! - an operation that was held up can still be refused.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use dashmap::DashMap;

use super::Op;

static PLANS: LazyLock<DashMap<PathBuf, Plan>> = LazyLock::new(DashMap::new);

static GATES: LazyLock<DashMap<PathBuf, Arc<Gate>>> = LazyLock::new(DashMap::new);

/// How often who is held up looks whether it still is.
const LOOK_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Gate {
    op: Op,
    is_open: AtomicBool,
    has_come: AtomicBool,
}

#[derive(Debug)]
struct Plan {
    op: Op,
    strikes: Range<u64>,
    errno: i32,
    seen: AtomicU64,
}

/// A fault that waits for its moment; gone when dropped.
#[derive(Debug)]
pub struct Fault {
    dir: PathBuf,
}

/// Lets the `nth` operation of kind `op` on `dir` or below fail with `errno`, and all after it.
pub fn arm(dir: &Path, op: Op, nth: u64, errno: i32) -> Fault {
    arm_range(dir, op, nth..u64::MAX, errno)
}

/// The same for the `nth` operation alone.
pub fn arm_once(dir: &Path, op: Op, nth: u64, errno: i32) -> Fault {
    arm_range(dir, op, nth..nth + 1, errno)
}

/// Refuses nothing: as long as it lasts, who asks whether something on `dir` or below is in memory hears that it is not
/// there, whatever the system has. Reads go on, and are counted.
pub fn forget(dir: &Path) -> Fault {
    arm(dir, Op::Read, u64::MAX, 0)
}

fn arm_range(dir: &Path, op: Op, strikes: Range<u64>, errno: i32) -> Fault {
    PLANS.insert(dir.to_path_buf(), Plan { op, strikes, errno, seen: AtomicU64::new(0) });
    Fault { dir: dir.to_path_buf() }
}

/// Holds operations up until it is dropped.
#[derive(Debug)]
pub struct HeldUp {
    dir: PathBuf,
    gate: Arc<Gate>,
}

/// Holds every operation of kind `op` on `dir` or below up, as a disk does that does not answer.
pub fn hold_up(dir: &Path, op: Op) -> HeldUp {
    let gate = Arc::new(Gate { op, is_open: AtomicBool::new(false), has_come: AtomicBool::new(false) });
    GATES.insert(dir.to_path_buf(), gate.clone());
    HeldUp { dir: dir.to_path_buf(), gate }
}

impl HeldUp {
    /// Whether such an operation was tried.
    pub fn has_struck(&self) -> bool {
        self.gate.has_come.load(Ordering::Acquire)
    }
}

impl Drop for HeldUp {
    fn drop(&mut self) {
        GATES.remove(&self.dir);
        self.gate.is_open.store(true, Ordering::Release);
    }
}

impl Fault {
    /// How often such an operation was tried so far.
    pub fn seen(&self) -> u64 {
        PLANS.get(&self.dir).map_or(0, |plan| plan.seen.load(Ordering::Relaxed))
    }

    /// Whether it has come to pass.
    pub fn has_struck(&self) -> bool {
        PLANS.get(&self.dir).is_some_and(|plan| plan.seen.load(Ordering::Relaxed) > plan.strikes.start)
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        PLANS.remove(&self.dir);
    }
}

/// Whether such an operation may be refused or is held up.
pub(super) fn is_armed(op: Op, path: &Path) -> bool {
    PLANS.iter().any(|plan| plan.op == op && path.starts_with(plan.key()))
        || GATES.iter().any(|gate| gate.op == op && path.starts_with(gate.key()))
}

/// Refuses, or waits, if a test wants it so.
pub(super) fn at(op: Op, path: &Path) -> io::Result<()> {
    let meets = |gate: &Gate, dir: &Path| gate.op == op && path.starts_with(dir);
    let gates = GATES.iter().filter(|gate| meets(gate, gate.key()));
    let gates: Vec<_> = gates.map(|gate| Arc::clone(&gate)).collect();
    for gate in gates {
        gate.has_come.store(true, Ordering::Release);
        while !gate.is_open.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
    for plan in PLANS.iter().filter(|plan| plan.op == op && path.starts_with(plan.key())) {
        let turn = plan.seen.fetch_add(1, Ordering::Relaxed);
        if plan.strikes.contains(&turn) {
            return Err(io::Error::from_raw_os_error(plan.errno));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::until;

    #[test]
    fn a_fault_of_one_turn_strikes_once() {
        let fault = arm_once(Path::new("/none/once"), Op::Read, 1, 5);
        let hits = [0; 3].map(|_| at(Op::Read, Path::new("/none/once/x")).is_err());
        assert_eq!((hits, fault.has_struck()), ([false, true, false], true));
    }

    #[test]
    fn a_fault_strikes_from_its_turn_on_and_only_in_its_folder() {
        let fault = arm(Path::new("/none/a"), Op::Flush, 2, 5);
        let hit = |op, path| at(op, Path::new(path)).is_err();
        assert!(!hit(Op::Flush, "/none/a/x"));
        assert!(!hit(Op::Write, "/none/a/x"));
        assert!(!hit(Op::Flush, "/none/b/x"));
        assert!(!hit(Op::Flush, "/none/a/x"));
        assert!(!fault.has_struck());
        assert!(hit(Op::Flush, "/none/a/x"));
        assert!(fault.has_struck());
        assert!(hit(Op::Flush, "/none/a/y"));
        drop(fault);
        assert!(!hit(Op::Flush, "/none/a/x"));
    }

    #[test]
    fn what_is_held_up_goes_on_when_it_may_and_can_be_refused_then() {
        let dir = Path::new("/none/held");
        let held = hold_up(dir, Op::Flush);
        assert!(at(Op::Write, dir).is_ok() && !held.has_struck());
        let flush = std::thread::spawn(move || at(Op::Flush, &dir.join("x")));
        until("the flush is held up", || held.has_struck());
        assert!(!flush.is_finished());
        let _refused = arm(&dir.join("x"), Op::Flush, 0, 5);
        drop(held);
        assert!(flush.join().unwrap().is_err());
        assert!(at(Op::Flush, dir).is_ok());
    }
}
