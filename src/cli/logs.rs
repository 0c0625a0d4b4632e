//! Logs of the program: lines on standard error.
//!
//! Invariants:
//! - only the binary sets up logging; the library never does.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::progress::{AboveBar, Percents};

/// Whose events are shown on a bar.
const SHOWN: &str = "troupemq_store";

/// Starts logging what `levels` lets through, but for what is shown on a bar; the error is for the user.
pub(super) fn start(levels: &str, bar: Option<&Percents>) -> Result<(), String> {
    let targets: Targets = levels.parse().map_err(|why| format!("--log {levels}: {why}"))?;
    let has_bar = bar.is_some();
    let wanted = targets.and(filter_fn(move |metadata| !has_bar || !Percents::are_in(metadata)));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(AboveBar(bar.cloned()))
        .with_ansi(false)
        .with_target(std::io::stderr().is_terminal())
        .with_filter(wanted);
    let shown = Targets::new().with_target(SHOWN, LevelFilter::DEBUG);
    let bar = bar.cloned().map(|bar| bar.with_filter(shown));
    tracing_subscriber::registry().with(lines).with(bar).try_init().map_err(|why| why.to_string())
}
