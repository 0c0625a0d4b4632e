//! `troupemq store`: looking at the folder of a broker that does not run.
//!
//! Invariants:
//! - `check` and `dump` change nothing; `rebuild` changes only what derives from the log;
//! - a store in use is refused by the store itself;
//! - the settings are those of its broker, read as the broker reads them: what a file may look like depends on them.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use troupemq_actors::settings::with_changes;
use troupemq_codec::message::RecordView;
use troupemq_store::inspect::{Damage, Finding, StoreView, rebuild};
use troupemq_store::{StoreConfig, StoreError, SystemClock};

use super::Failure;
use super::output::Output;
use super::settings::Settings;
use super::table::Form;

/// Look at the folder of a broker that does not run
#[derive(Debug, Subcommand)]
pub(super) enum Store {
    /// Say in words what is wrong with a store
    Check(Folder),
    /// Delete queues, index and timer files and make them anew from the log
    Rebuild(Folder),
    /// Print records of the log, or units of a queue
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

/// A record of the log.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Dumped<'a> {
    log_offset: i64,
    size: usize,
    topic: &'a str,
    queue_id: i32,
    queue_offset: i64,
    store_timestamp_ms: i64,
    body_size: usize,
    properties: String,
}

/// A range of the log without records.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lost {
    from: u64,
    to: u64,
    why: &'static str,
}

/// Where the dump of a log ends, and why there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ended {
    log_end: u64,
    why: &'static str,
}

/// A unit of a queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unit {
    byte: u64,
    size: u32,
    log_offset: u64,
    tags_code: i64,
}

impl Folder {
    /// The settings of the broker whose store it is, with those that were changed while it ran.
    fn config(&self) -> Result<StoreConfig, Failure> {
        let mut config = Settings::load(self.config.as_deref())?.store;
        if let Some(dir) = &self.dir {
            config.dir.clone_from(dir);
        }
        with_changes(config).map_err(failure)
    }

    fn view(&self) -> Result<StoreView, Failure> {
        let config = self.config()?;
        Ok(StoreView::open(&config.dir).map_err(failure)?.with_settings(&config))
    }
}

/// What to print.
#[derive(Debug, Args)]
pub(super) struct Dump {
    #[command(flatten)]
    folder: Folder,
    /// Log offset of the record to begin with
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    from: u64,
    /// Print at most this many lines
    #[arg(long, value_name = "N", default_value_t = u64::MAX)]
    count: u64,
    /// Print the units of this queue instead of records
    #[arg(long, value_name = "TOPIC:QUEUE")]
    queue: Option<String>,
}

impl Store {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut out = Output::new();
        match self {
            Store::Check(folder) => check(&folder, &mut out)?,
            Store::Rebuild(folder) => {
                let report = rebuild(folder.config()?, Arc::new(SystemClock::new())).map_err(failure)?;
                let rebuilt = Rebuilt { records: report.replayed, log_end: report.log_end };
                say(folder.form, &mut out, &rebuilt, || {
                    format!("{} records read, the log ends at {}", rebuilt.records, rebuilt.log_end)
                })?;
            }
            Store::Dump(dump) => match &dump.queue {
                Some(queue) => units(&dump, queue, &mut out)?,
                None => records(&dump, &mut out)?,
            },
        }
        out.flush()
    }
}

fn check(folder: &Folder, out: &mut Output) -> Result<(), Failure> {
    let mut findings: Vec<Finding> = Vec::new();
    let view = folder.view()?;
    let summary = view.check(&mut |finding| findings.push(finding)).map_err(failure)?;
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

fn records(dump: &Dump, out: &mut Output) -> Result<(), Failure> {
    let (view, form) = (dump.folder.view()?, dump.folder.form);
    let (mut left, mut failed) = (dump.count, None);
    let visit = |record: &RecordView<'_>| {
        if left == 0 {
            return false;
        }
        left -= 1;
        let dumped = Dumped {
            log_offset: record.log_offset(),
            size: record.total_size(),
            topic: record.topic(),
            queue_id: record.queue_id(),
            queue_offset: record.queue_offset(),
            store_timestamp_ms: record.store_timestamp_ms(),
            body_size: record.body().len(),
            properties: String::from_utf8_lossy(record.properties().as_bytes()).into_owned(),
        };
        failed = say(form, out, &dumped, || dumped.line()).err();
        failed.is_none()
    };
    let mut lost = Vec::new();
    let (end, why) = view.records(dump.from, visit, |damage| lost.push(*damage)).map_err(failure)?;
    failed.map_or(Ok(()), Err)?;
    for Damage { from, to, why } in lost {
        say(form, out, &Lost { from, to, why }, || format!("{from} to {to} hold no record: {why}"))?;
    }
    say(form, out, &Ended { log_end: end, why }, || format!("{end} {why}"))
}

impl Dumped<'_> {
    fn line(&self) -> String {
        format!(
            "{} {} bytes, {} {} {}, stored {}, body {}, properties {:?}",
            self.log_offset,
            self.size,
            self.topic,
            self.queue_id,
            self.queue_offset,
            self.store_timestamp_ms,
            self.body_size,
            self.properties,
        )
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

fn units(dump: &Dump, queue: &str, out: &mut Output) -> Result<(), Failure> {
    let wrong = || Failure::Other(format!("\"{queue}\" is no TOPIC:QUEUE"));
    let (topic, number) = queue.rsplit_once(':').ok_or_else(wrong)?;
    let queue_id = number.parse().map_err(|_| wrong())?;
    let view = dump.folder.view()?;
    let (mut left, mut failed) = (dump.count, None);
    view.units(topic, queue_id, |unit| {
        if left == 0 {
            return false;
        }
        left -= 1;
        let (byte, log_offset, size, tags_code) = (unit.at, unit.log_offset, unit.size, unit.tags_code);
        failed = say(dump.folder.form, out, &Unit { byte, size, log_offset, tags_code }, || {
            format!("byte {byte}: {size} bytes at {log_offset}, tags code {tags_code}")
        })
        .err();
        failed.is_none()
    })
    .map_err(failure)?;
    failed.map_or(Ok(()), Err)
}

fn failure(error: StoreError) -> Failure {
    Failure::Other(error.to_string())
}
