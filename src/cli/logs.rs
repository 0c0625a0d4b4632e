//! Logs of the program: lines on standard error.
//!
//! Invariants:
//! - only the binary sets up logging; the library never does.

use std::io::IsTerminal;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::progress::Percents;

/// Starts logging what `levels` lets through, but for what is shown on a bar; the error is for the user.
pub(super) fn start(levels: &str, bar: Option<Percents>) -> Result<(), String> {
    let targets: Targets = levels.parse().map_err(|why| format!("--log {levels}: {why}"))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(std::io::stderr().is_terminal());
    let has_bar = bar.is_some();
    let lines = lines.with_filter(filter_fn(move |metadata| !has_bar || !Percents::are_in(metadata)));
    let all = tracing_subscriber::registry().with(targets).with(lines).with(bar);
    all.try_init().map_err(|why| why.to_string())
}
