//! How far a long command is, on standard error: a bar on a terminal, lines with percents elsewhere.
//!
//! Invariants:
//! - nothing of it goes to standard output;
//! - off a terminal a command tells nothing in its first two seconds, and then one line for every ten percent, unless
//!   `--progress` says otherwise;
//! - of a store, the lines of the log are what is told off a terminal; on one a bar stands in their place, other lines
//!   of the log stand above it, and it is gone before the result is printed.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;

use super::output::complain;

/// How long a command that may be a short one tells nothing.
const QUIET: Duration = Duration::from_secs(2);
/// Percents from one line to the next.
const STEP_PERCENT: u64 = 10;
/// The field of events that say how far a walk is.
const PERCENT: &str = "percent";

/// Whether a command tells how far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum When {
    /// If it takes more than 2 seconds
    #[default]
    Auto,
    /// From the beginning
    Always,
    /// Not at all
    Never,
}

/// The flag of commands that may take long.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Telling {
    /// Whether to tell on standard error how far it is
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    progress: When,
}

/// How far a command is.
pub(super) struct Progress {
    what: &'static str,
    done: u64,
    bar: ProgressBar,
    lines: Option<Lines>,
    begun: Instant,
}

impl Telling {
    /// Begins to tell of work of which there is so much; none at all if that is not known.
    pub(super) fn begin(self, what: &'static str, all: u64) -> Progress {
        let is_told = self.progress != When::Never && all > 0;
        let is_terminal = io::stderr().is_terminal();
        let bar = if is_told && is_terminal { bar(all) } else { ProgressBar::hidden() };
        let after = if self.progress == When::Always { Duration::ZERO } else { QUIET };
        let lines = (is_told && !is_terminal).then_some(Lines { all, after, next: STEP_PERCENT });
        Progress { what, done: 0, bar, lines, begun: Instant::now() }
    }
}

impl Progress {
    /// So much more is done.
    pub(super) fn more(&mut self, count: u64) {
        self.to(self.done.saturating_add(count));
    }

    /// So much is done.
    pub(super) fn to(&mut self, done: u64) {
        self.done = done;
        self.bar.set_position(done);
        let elapsed = self.begun.elapsed();
        if let Some(percent) = self.lines.as_mut().and_then(|lines| lines.at(done, elapsed)) {
            complain(format_args!("{}: {percent} %", self.what));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Which percents are told in lines.
#[derive(Debug)]
struct Lines {
    all: u64,
    after: Duration,
    /// The next percent that is told.
    next: u64,
}

impl Lines {
    /// The percent to tell when so much is done after this time.
    fn at(&mut self, done: u64, elapsed: Duration) -> Option<u64> {
        let percent = done.min(self.all).saturating_mul(100) / self.all.max(1);
        if elapsed < self.after || percent < self.next {
            return None;
        }
        self.next = percent - percent % STEP_PERCENT + STEP_PERCENT;
        Some(percent)
    }
}

fn bar(all: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:40} {percent} %").expect("the template is fixed and right");
    ProgressBar::new(all).with_style(style)
}

/// Shows on a bar what events say of how far a walk is; clones are of one bar.
#[derive(Clone)]
pub(super) struct Percents(ProgressBar);

impl Percents {
    /// A bar for a command that walks over a store, if there is a terminal to draw it on.
    pub(super) fn on_terminal() -> Option<Percents> {
        io::stderr().is_terminal().then(|| Percents(bar(100)))
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }

    /// Whether an event says how far a walk is.
    pub(super) fn are_in(metadata: &Metadata<'_>) -> bool {
        metadata.fields().iter().any(|field| field.name() == PERCENT)
    }
}

impl<S: Subscriber> Layer<S> for Percents {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = Seen(None);
        event.record(&mut seen);
        if let Some(percent) = seen.0 {
            self.0.set_position(percent);
        }
    }
}

/// Standard error, above the bar if there is one.
pub(super) struct AboveBar(pub(super) Option<Percents>);

impl<'a> MakeWriter<'a> for AboveBar {
    type Writer = AboveBar;

    fn make_writer(&'a self) -> AboveBar {
        AboveBar(self.0.clone())
    }
}

impl Write for AboveBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(Percents(bar)) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The percent of an event.
struct Seen(Option<u64>);

impl Visit for Seen {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == PERCENT {
            self.0 = Some(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_line_is_told_for_every_ten_percent_and_none_before_its_time() {
        let mut lines = Lines { all: 200, after: QUIET, next: STEP_PERCENT };
        assert_eq!(lines.at(100, QUIET / 2), None);
        let told: Vec<u64> = (0..=200).filter_map(|done| lines.at(done, QUIET)).collect();
        assert_eq!(told, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        let mut leaps = Lines { all: 3, after: Duration::ZERO, next: STEP_PERCENT };
        let told: Vec<u64> = (0..=9).filter_map(|done| leaps.at(done, Duration::ZERO)).collect();
        assert_eq!(told, [33, 66, 100]);
    }

    #[test]
    fn a_bar_follows_what_events_of_the_store_say() {
        let bar = ProgressBar::hidden();
        let registry = tracing_subscriber::registry().with(Percents(bar.clone()));
        tracing::subscriber::with_default(registry, || {
            tracing::info!(
                percent = 35_u64,
                log_offset = 7_u64,
                "queues and index are compared with the log"
            );
            tracing::info!(log_offset = 9_u64, "another event");
        });
        assert_eq!(bar.position(), 35);
    }
}
