//! `troupemq store dump`: what lies in the folder of a broker that does not run, line by line.
//!
//! Invariants:
//! - nothing is changed, and what cannot be read is said where it would stand;
//! - one line is one thing, whichever form it takes; at most `--count` are printed, then what could not be read.

use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use troupemq_codec::message::RecordView;
use troupemq_store::inspect::{Damage, StoredEntry, StoredTable, StoredUnit};

use super::{Failure, Folder, Output, failure, say};

/// What to print.
#[derive(Debug, Args)]
pub(in crate::cli) struct Dump {
    #[command(flatten)]
    folder: Folder,
    /// Log offset of the record to begin with; units and entries of older ones are passed over
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    from: u64,
    /// Print at most this many lines [default: all]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print the units of this queue instead of records
    #[arg(long, value_name = "TOPIC:QUEUE")]
    queue: Option<String>,
    /// Print the entries of the index files instead of records
    #[arg(long, conflicts_with = "queue")]
    index: bool,
    /// Print check points and tables instead of records: topics, groups, offsets, metrics
    #[arg(long, conflicts_with_all = ["queue", "index", "from"])]
    tables: bool,
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

/// An entry of the index.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct IndexEntry<'a> {
    file: &'a str,
    number: u32,
    hash: u32,
    log_offset: u64,
    store_timestamp_ms: i64,
    older: u32,
}

/// A value of a table.
#[derive(Debug, Serialize)]
struct Held<'a> {
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    value: &'a Value,
}

/// A file that says nothing.
#[derive(Debug, Serialize)]
struct Unread<'a> {
    file: &'a str,
    why: &'a str,
}

/// Lines that may still be printed, and why no further one could be.
#[derive(Debug)]
struct Left {
    lines: u64,
    failed: Option<Failure>,
}

impl Dump {
    pub(super) fn run(&self, out: &mut Output) -> Result<(), Failure> {
        match &self.queue {
            Some(queue) => units(self, queue, out),
            None if self.index => entries(self, out),
            None if self.tables => tables(self, out),
            None => records(self, out),
        }
    }

    fn left(&self) -> Left {
        Left { lines: self.count.unwrap_or(u64::MAX), failed: None }
    }
}

impl Left {
    /// Prints one more line; whether there may be a next.
    fn print(&mut self, line: impl FnOnce() -> Result<(), Failure>) -> bool {
        if self.lines == 0 {
            return false;
        }
        self.lines -= 1;
        self.failed = line().err();
        self.failed.is_none()
    }

    fn done(self) -> Result<(), Failure> {
        self.failed.map_or(Ok(()), Err)
    }
}

fn records(dump: &Dump, out: &mut Output) -> Result<(), Failure> {
    let (view, form) = (dump.folder.view()?, dump.folder.form);
    let mut left = dump.left();
    let visit = |record: &RecordView<'_>| {
        left.print(|| {
            let dumped = Dumped::of(record);
            say(form, out, &dumped, || dumped.line())
        })
    };
    let mut lost = Vec::new();
    let (end, why) = view.records(dump.from, visit, |damage| lost.push(*damage)).map_err(failure)?;
    left.done()?;
    for Damage { from, to, why } in lost {
        say(form, out, &Lost { from, to, why }, || format!("{from} to {to} hold no record: {why}"))?;
    }
    say(form, out, &Ended { log_end: end, why }, || format!("{end} {why}"))
}

impl<'a> Dumped<'a> {
    fn of(record: &'a RecordView<'a>) -> Dumped<'a> {
        Dumped {
            log_offset: record.log_offset(),
            size: record.total_size(),
            topic: record.topic(),
            queue_id: record.queue_id(),
            queue_offset: record.queue_offset(),
            store_timestamp_ms: record.store_timestamp_ms(),
            body_size: record.body().len(),
            properties: String::from_utf8_lossy(record.properties().as_bytes()).into_owned(),
        }
    }

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

fn units(dump: &Dump, queue: &str, out: &mut Output) -> Result<(), Failure> {
    let wrong = || Failure::Other(format!("\"{queue}\" is no TOPIC:QUEUE"));
    let (topic, number) = queue.rsplit_once(':').ok_or_else(wrong)?;
    let queue_id = number.parse().map_err(|_| wrong())?;
    let (view, form) = (dump.folder.view()?, dump.folder.form);
    let (mut left, mut is_empty) = (dump.left(), true);
    let visit = |unit: &StoredUnit| {
        is_empty = false;
        let (byte, log_offset, size, tags_code) = (unit.at, unit.log_offset, unit.size, unit.tags_code);
        let line = || format!("byte {byte}: {size} bytes at {log_offset}, tags code {tags_code}");
        let is_below = log_offset < dump.from;
        is_below || left.print(|| say(form, out, &Unit { byte, size, log_offset, tags_code }, line))
    };
    view.units(topic, queue_id, visit).map_err(failure)?;
    match is_empty {
        true => Err(Failure::NotFound(format!("queue {queue_id} of {topic} has no units here"))),
        false => left.done(),
    }
}

fn entries(dump: &Dump, out: &mut Output) -> Result<(), Failure> {
    let (view, form) = (dump.folder.view()?, dump.folder.form);
    let (mut left, mut unknown) = (dump.left(), Vec::new());
    let visit = |entry: &StoredEntry<'_>| {
        let file = entry.file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let StoredEntry { number, hash, log_offset, store_ms, older, .. } = *entry;
        let line = || {
            format!("{file} {number}: hash {hash}, record at {log_offset}, stored {store_ms}, older {older}")
        };
        let object = IndexEntry { file, number, hash, log_offset, store_timestamp_ms: store_ms, older };
        let is_below = log_offset < dump.from;
        is_below || left.print(|| say(form, out, &object, line))
    };
    view.entries(visit, |file| unknown.push(file.to_path_buf())).map_err(failure)?;
    left.done()?;
    let why = "it is not full and of no size that is known: name the settings of its broker";
    unknown.iter().try_for_each(|file| unread(dump, file, why, out))
}

fn tables(dump: &Dump, out: &mut Output) -> Result<(), Failure> {
    let mut left = dump.left();
    let all = dump.folder.view()?.tables().map_err(failure)?;
    for StoredTable { file, content } in &all {
        let name = file.display().to_string();
        let goes_on = match content {
            Ok(value) => values(&name, value)
                .iter()
                .all(|held| left.print(|| say(dump.folder.form, out, held, || held.line()))),
            Err(why) => left.print(|| unread(dump, file, why, out)),
        };
        if !goes_on {
            break;
        }
    }
    left.done()
}

/// The lines of a table: each entry of a field that is a map, each other field.
fn values<'a>(file: &'a str, table: &'a Value) -> Vec<Held<'a>> {
    let Value::Object(fields) = table else {
        return vec![Held { file, field: None, key: None, value: table }];
    };
    let mut all = Vec::new();
    for (field, value) in fields {
        let field = Some(field.as_str());
        match value {
            Value::Object(map) if !map.is_empty() => {
                all.extend(map.iter().map(|(key, value)| Held { file, field, key: Some(key), value }));
            }
            value => all.push(Held { file, field, key: None, value }),
        }
    }
    all
}

impl Held<'_> {
    fn line(&self) -> String {
        let names = [Some(self.file), self.field, self.key];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        format!("{} {}", names.join(" "), self.value)
    }
}

fn unread(dump: &Dump, file: &Path, why: &str, out: &mut Output) -> Result<(), Failure> {
    let file = &*file.display().to_string();
    say(dump.folder.form, out, &Unread { file, why }, || format!("{file} cannot be read: {why}"))
}
