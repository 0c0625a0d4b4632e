//! `troupemq store`: looking at the folder of a broker that does not run.
//!
//! Invariants:
//! - `check` and `dump` change nothing; `rebuild` changes only what derives from the log;
//! - a store in use is refused by the store itself;
//! - the settings are those of its broker, read as the broker reads them: what a file may look like depends on them.

mod dump;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq_actors::settings::with_changes;
use troupemq_store::inspect::{Finding, StoreView, rebuild};
use troupemq_store::{StoreConfig, StoreError, SystemClock};

use self::dump::Dump;
use super::Failure;
use super::output::Output;
use super::progress::Percents;
use super::settings::Settings;
use super::table::Form;

/// Look at the folder of a broker that does not run
#[derive(Debug, Subcommand)]
pub(super) enum Store {
    /// Say in words what is wrong with a store
    Check(Folder),
    /// Delete queues, index and timer files and make them anew from the log
    Rebuild(Folder),
    /// Print records of the log, units of a queue, entries of the index, or tables
    Dump(Dump),
}

/// Which store.
#[derive(Debug, Args)]
pub(super) struct Folder {
    /// Folder of the store [default: that of the settings, ./troupemq-data if they name none]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The settings of its broker: troupemq.toml, or key=value lines as in RocketMQ's broker.conf
    /// [default: troupemq.toml of the current folder, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

/// What was found in a store, in whole.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    records: u64,
    queues: usize,
    log_min: u64,
    log_end: u64,
}

/// Something an operator should know.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    file: String,
    at: u64,
    what: String,
    heals: bool,
}

/// What was read to make queues and index anew.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rebuilt {
    records: u64,
    log_end: u64,
}

impl Folder {
    /// The settings of the broker whose store it is, with those that were changed while it ran.
    fn config(&self) -> Result<StoreConfig, Failure> {
        let settings = Settings::load(self.config.as_deref())?;
        let mut config = settings.store.clone();
        if let Some(dir) = &self.dir {
            config.dir.clone_from(dir);
        }
        settings.check_log_place(&config.dir)?;
        with_changes(config).map_err(failure)
    }

    fn view(&self) -> Result<StoreView, Failure> {
        let config = self.config()?;
        Ok(StoreView::open(&config.dir).map_err(failure)?.with_settings(&config))
    }
}

impl Store {
    pub(super) fn run(self, bar: Option<&Percents>) -> Result<(), Failure> {
        let mut out = Output::new();
        match self {
            Store::Check(folder) => check(&folder, bar, &mut out)?,
            Store::Rebuild(folder) => {
                let rebuilt = rebuild(folder.config()?, Arc::new(SystemClock::new()));
                if let Some(bar) = bar {
                    bar.clear();
                }
                let report = rebuilt.map_err(failure)?;
                let rebuilt = Rebuilt { records: report.replayed, log_end: report.log_end };
                say(folder.form, &mut out, &rebuilt, || {
                    format!("{} records read, the log ends at {}", rebuilt.records, rebuilt.log_end)
                })?;
            }
            Store::Dump(dump) => dump.run(&mut out)?,
        }
        out.flush()
    }
}

fn check(folder: &Folder, bar: Option<&Percents>, out: &mut Output) -> Result<(), Failure> {
    let mut findings: Vec<Finding> = Vec::new();
    let view = folder.view()?;
    let summary = view.check(&mut |finding| findings.push(finding));
    if let Some(bar) = bar {
        bar.clear();
    }
    let summary = summary.map_err(failure)?;
    let held = Held {
        records: summary.records,
        queues: summary.queues,
        log_min: summary.log_min,
        log_end: summary.log_end,
    };
    say(folder.form, out, &held, || {
        let Held { records, queues, log_min, log_end } = held;
        format!("{records} records in {queues} queues, log from {log_min} to {log_end}")
    })?;
    for finding in &findings {
        let found = Found {
            file: finding.file.display().to_string(),
            at: finding.at,
            what: finding.what.clone(),
            heals: finding.heals,
        };
        say(folder.form, out, &found, || finding.to_string())?;
    }
    out.flush()?;
    match findings.iter().filter(|finding| !finding.heals).count() {
        0 => Ok(()),
        count => Err(Failure::Other(format!("{count} findings need an operator"))),
    }
}

/// One line: an object for programs, words for people.
fn say(
    form: Form,
    out: &mut Output,
    object: &impl Serialize,
    words: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match form.is_json() {
        true => out.json(object),
        false => out.line(words().as_bytes()),
    }
}

fn failure(error: StoreError) -> Failure {
    Failure::Store(error)
}
