//! Says what was measured, and how much of the processors this process has used.
//!
//! Invariants:
//! - what is printed goes to standard output, one line at a time.

use std::io::Write;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(crate) fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").expect("the terminal takes a line");
}

/// Processor time of this process so far, a broker in it included.
pub(crate) fn processor() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or(0))
}
