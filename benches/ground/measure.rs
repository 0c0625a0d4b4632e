//! Says what was measured, and how much of the processors this process has used.
//!
//! Invariants:
//! - what is printed goes to standard output, one line at a time, as long as somebody reads it.

#[path = "said.rs"]
mod said;

use std::io::Write;
use std::ops::Sub;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use said::said;

/// Ticks of a second, as Linux counts them for every program.
const TICKS: f64 = 100.0;

/// Processor time, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    /// Of this process, a broker in it included.
    pub(crate) all: f64,
    /// Of the thread that asks.
    pub(crate) here: f64,
    /// Of this process, in the kernel, to a hundredth of a second.
    pub(crate) kernel: f64,
}

impl Spent {
    /// So far.
    pub(crate) fn now() -> Spent {
        let seconds = |clock| {
            let spent = clock_gettime(clock);
            Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or(0))
                .as_secs_f64()
        };
        let (all, here) = (seconds(ClockId::ProcessCPUTime), seconds(ClockId::ThreadCPUTime));
        let stat = std::fs::read_to_string("/proc/self/stat").expect("this is Linux");
        // Behind the name, which may hold blanks, the 13th field is the time in the kernel.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks: u32 = fields.split_whitespace().nth(12).and_then(|ticks| ticks.parse().ok()).unwrap_or(0);
        Spent { all, here, kernel: f64::from(ticks) / TICKS }
    }
}

impl Sub for Spent {
    type Output = Spent;

    fn sub(self, before: Spent) -> Spent {
        Spent {
            all: self.all - before.all,
            here: self.here - before.here,
            kernel: self.kernel - before.kernel,
        }
    }
}

pub(crate) fn say(line: &str) {
    said(writeln!(std::io::stdout().lock(), "{line}"));
}
