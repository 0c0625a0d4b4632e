//! What a store keeps beside its messages: check points and the files of `config`, whatever they are called.
//!
//! Invariants:
//! - nothing is written or moved: a damaged table stays where it is and is told;
//! - of two generations the one is shown that the next start takes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use troupemq_codec::loose_json::from_loose_trusted;

use super::list_names;
use crate::checkpoint::Checkpoint;
use crate::error::StoreError;
use crate::json_file::{DAMAGED, OLDER, whole};
use crate::paths::{Paths, TIMER_CHECKPOINT};
use crate::timer::read_checkpoint;

/// Endings of what is no generation: half written, or put aside.
const NO_TABLES: [&str; 2] = ["tmp", DAMAGED];

/// A file that is not of the log, and what it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTable {
    /// The file, below the folder of the store.
    pub file: PathBuf,
    /// Its content, or why it cannot be read.
    pub content: Result<Value, String>,
}

/// Check points first, then the tables by name.
pub(super) fn read_all(paths: &Paths) -> Result<Vec<StoredTable>, StoreError> {
    let mut all = Vec::new();
    let file = paths.checkpoint();
    if is_file(&file) {
        all.push(StoredTable { content: Ok(checkpoint(&Checkpoint::read(&file)?)), file });
    }
    let dir = paths.config();
    let names: BTreeSet<String> = list_names(&dir)?
        .into_iter()
        .filter(|name| !NO_TABLES.iter().any(|ending| without(name, ending).is_some()))
        .map(|name| without(&name, OLDER).map(ToOwned::to_owned).unwrap_or(name))
        .collect();
    for name in names {
        match name.as_str() {
            TIMER_CHECKPOINT => all.push(timer_checkpoint(dir.join(name))?),
            _ => generations(&dir, &name, &mut all)?,
        }
    }
    for table in &mut all {
        if let Ok(below) = table.file.strip_prefix(paths.root()) {
            table.file = below.to_path_buf();
        }
    }
    Ok(all)
}

/// The newest generation of a table that can be read, behind those that cannot.
fn generations(dir: &Path, name: &str, all: &mut Vec<StoredTable>) -> Result<(), StoreError> {
    for file in [dir.join(name), dir.join(format!("{name}.{OLDER}"))] {
        if !is_file(&file) {
            continue;
        }
        let bytes = std::fs::read(&file).map_err(StoreError::io("read", &file))?;
        let content = match bytes.iter().all(u8::is_ascii_whitespace) {
            true => Err("it is empty".to_owned()),
            false => whole(&bytes).and_then(from_loose_trusted::<Value>).map_err(|error| error.to_string()),
        };
        let is_read = content.is_ok();
        all.push(StoredTable { file, content });
        if is_read {
            break;
        }
    }
    Ok(())
}

/// The name in front of an ending, if it has that.
fn without<'a>(name: &'a str, ending: &str) -> Option<&'a str> {
    name.strip_suffix(ending)?.strip_suffix('.')
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file())
}

fn checkpoint(checkpoint: &Checkpoint) -> Value {
    let reached = checkpoint.reached.map(|reached| {
        json!({
            "dispatchedTo": reached.dispatched_to,
            "flushedTo": reached.flushed_to,
            "queues": reached.queues,
            "units": reached.units,
        })
    });
    json!({
        "logTimeMs": checkpoint.log_time_ms,
        "queueTimeMs": checkpoint.queue_time_ms,
        "indexTimeMs": checkpoint.index_time_ms,
        "masterFlushedTo": checkpoint.master_flushed_to,
        "confirmedTo": checkpoint.confirmed_to,
        "reached": reached,
    })
}

fn timer_checkpoint(file: PathBuf) -> Result<StoredTable, StoreError> {
    let (checkpoint, ours) = read_checkpoint(&file)?;
    let content = json!({
        "lastReadMs": checkpoint.last_read_ms,
        "flushedTo": checkpoint.flushed_to,
        "queueOffset": checkpoint.queue_offset,
        "masterQueueOffset": checkpoint.master_queue_offset,
        "dataVersion": {
            "stateVersion": checkpoint.state_version,
            "timestamp": checkpoint.version_timestamp_ms,
            "counter": checkpoint.version_counter,
        },
        "precisionMs": ours.map(|ours| ours.precision_ms),
        "logStart": ours.map(|ours| ours.log_start),
    });
    Ok(StoredTable { file, content: Ok(content) })
}
