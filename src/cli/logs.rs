//! Logs of the program: lines on standard error.
//!
//! Invariants:
//! - only the binary sets up logging; the library never does.

use std::io::IsTerminal;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging what `levels` lets through; the error is for the user.
pub(super) fn start(levels: &str) -> Result<(), String> {
    let targets: Targets = levels.parse().map_err(|why| format!("--log {levels}: {why}"))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(std::io::stderr().is_terminal());
    tracing_subscriber::registry().with(targets).with(lines).try_init().map_err(|why| why.to_string())
}
