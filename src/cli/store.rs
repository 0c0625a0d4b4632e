//! `troupemq store`: looking at the folder of a broker that does not run.
//!
//! Invariants:
//! - `check` and `dump` change nothing; `rebuild` changes only what derives from the log;
//! - a store in use is refused by the store itself;
//! - the settings are those of its broker, read as the broker reads them: what a file may look like depends on them.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use troupemq_codec::message::RecordView;
use troupemq_store::inspect::{Damage, Finding, StoreView, rebuild};
use troupemq_store::{StoreConfig, StoreError, SystemClock};

use super::Failure;
use super::output::Output;
use super::settings::Settings;

/// Look at the folder of a broker that does not run
#[derive(Debug, Subcommand)]
pub(super) enum Store {
    /// Say in words what is wrong with a store
    Check(Folder),
    /// Delete queues and index and make them anew from the log
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
}

impl Folder {
    /// The settings of the broker whose store it is.
    fn config(&self) -> Result<StoreConfig, Failure> {
        let mut config = Settings::load(self.config.as_deref())?.store;
        if let Some(dir) = &self.dir {
            config.dir.clone_from(dir);
        }
        Ok(config)
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
                let (records, end) = (report.replayed, report.log_end);
                out.line(format!("{records} records read, the log ends at {end}").as_bytes())?;
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
    let (records, queues) = (summary.records, summary.queues);
    let range = format!("{} to {}", summary.log_min, summary.log_end);
    out.line(format!("{records} records in {queues} queues, log from {range}").as_bytes())?;
    for finding in &findings {
        out.line(finding.to_string().as_bytes())?;
    }
    out.flush()?;
    match findings.iter().filter(|finding| !finding.heals).count() {
        0 => Ok(()),
        count => Err(Failure::Other(format!("{count} findings need an operator"))),
    }
}

fn records(dump: &Dump, out: &mut Output) -> Result<(), Failure> {
    let view = dump.folder.view()?;
    let (mut left, mut failed) = (dump.count, None);
    let visit = |record: &RecordView<'_>| {
        if left == 0 {
            return false;
        }
        left -= 1;
        let line = format!(
            "{} {} bytes, {} {} {}, stored {}, body {}, properties {:?}",
            record.log_offset(),
            record.total_size(),
            record.topic(),
            record.queue_id(),
            record.queue_offset(),
            record.store_timestamp_ms(),
            record.body().len(),
            String::from_utf8_lossy(record.properties().as_bytes()),
        );
        failed = out.line(line.as_bytes()).err();
        failed.is_none()
    };
    let mut lost = Vec::new();
    let (end, why) = view.records(dump.from, visit, |damage| lost.push(*damage)).map_err(failure)?;
    failed.map_or(Ok(()), Err)?;
    for Damage { from, to, why } in lost {
        out.line(format!("{from} to {to} hold no record: {why}").as_bytes())?;
    }
    out.line(format!("{end} {why}").as_bytes())
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
        let (at, log_offset, size, tags_code) = (unit.at, unit.log_offset, unit.size, unit.tags_code);
        let line = format!("byte {at}: {size} bytes at {log_offset}, tags code {tags_code}");
        failed = out.line(line.as_bytes()).err();
        failed.is_none()
    })
    .map_err(failure)?;
    failed.map_or(Ok(()), Err)
}

fn failure(error: StoreError) -> Failure {
    Failure::Other(error.to_string())
}
