//! A loss of power: of what was never forced to the disk, each page may be gone; derived files may be anything, those
//! of the timers among them.
//!
//! Invariants:
//! - what the broker knew to be flushed stays; with synchronous flush what was acknowledged after a wait for the disk
//!   is among it, or that is the fault;
//! - what was forced to the disk within a file of the index stays, as nothing but a rebuild reads it all: whole files
//!   are lost, cut or grown, new and old ones;
//! - of a table that was forced to the disk the present generation may lose bytes, never both: the start is to take the
//!   one before, and what that knows is known; a save of it may have been under way, in any step;
//! - the store itself is changed: the broker is to recover it.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use troupemq_codec::loose_json::from_loose_trusted;
use troupemq_codec::topic::TopicConfigTable;
use troupemq_store::inspect::StoreView;
use troupemq_store::tables::{Table, to_pretty};

use crate::Fault;
use crate::chance::Chance;
use crate::model::Model;
use crate::told::has_log;

const PAGE_BYTES: u64 = 4096;
/// The least that a disk loses.
const SECTOR_BYTES: usize = 512;
const SEGMENT_BYTES: u64 = 262_144;
/// Files and folders that are made from the log and the topics of the broker itself.
const DERIVED: [&str; 8] = [
    "consumequeue",
    "consumequeue_ext",
    "batchconsumequeue",
    "index",
    "checkpoint",
    "timerlog",
    "timerwheel",
    "config/timercheck",
];

/// What is left for sure.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    /// Everything in front of this offset of the log.
    pub(crate) durable_to: u64,
    /// Names of the tables of which the generation before the present one is left.
    pub(crate) torn: BTreeSet<String>,
}

/// Takes the power away from a broker that knew the log to be on the disk up to `flushed_to`.
pub(crate) fn lose(
    store: &Path,
    model: &Model,
    (flushed_to, is_sync): (u64, bool),
    chance: &mut Chance,
) -> Result<Lost, Fault> {
    let (durable_to, end) = durable(store, model, flushed_to)?;
    if let Some(log_offset) = waited(model).filter(|log_offset| is_sync && *log_offset >= durable_to) {
        return Err(Fault(format!(
            "what lies at {log_offset} was acknowledged when the log was on the disk up to {durable_to}"
        )));
    }
    for page in (durable_to.next_multiple_of(PAGE_BYTES)..end).step_by(4096).filter(|_| chance.once_in(2)) {
        let name = format!("{:020}", page / SEGMENT_BYTES * SEGMENT_BYTES);
        let segment = OpenOptions::new().write(true).open(store.join("commitlog").join(name));
        let zeroed = segment.and_then(|file| file.write_all_at(&[0; 4096], page % SEGMENT_BYTES));
        zeroed.map_err(Fault::of("cannot lose a page"))?;
    }
    for folder in DERIVED {
        let mut files = Vec::new();
        below(&store.join(folder), &mut files);
        files.sort();
        let is_index = folder == "index";
        for file in files {
            if chance.once_in(8) {
                damage(&file, is_index, chance)
                    .map_err(Fault::of(format!("cannot damage {}", file.display())))?;
            }
        }
    }
    let config = store.join("config");
    let torn = tear_tables(&config, chance).map_err(Fault::of("cannot tear a table"))?;
    lose_saves(&config, &torn, chance).map_err(Fault::of("cannot damage a table"))?;
    Ok(Lost { durable_to, torn })
}

/// Takes bytes of the present generation of tables that have one before; answers their names.
fn tear_tables(config: &Path, chance: &mut Chance) -> std::io::Result<BTreeSet<String>> {
    let mut torn = BTreeSet::new();
    for (name, file) in tables(config) {
        let Ok(before) = std::fs::read(config.join(format!("{name}.bak"))) else { continue };
        let bytes = std::fs::read(&file)?;
        if !is_whole(&bytes) {
            // It was torn before, and no start has come so far as to put it aside.
            torn.insert(name);
            continue;
        }
        if before.is_empty() || !chance.once_in(6) {
            continue;
        }
        std::fs::write(&file, torn_bytes(bytes, chance))?;
        if name == TopicConfigTable::FILE {
            std::fs::write(config.join(format!("{name}.bak")), without_some(&before, chance))?;
        }
        torn.insert(name);
    }
    Ok(torn)
}

/// A table of topics as it was before some topics of the load were made: any of them may have been the last.
fn without_some(table: &[u8], chance: &mut Chance) -> Vec<u8> {
    let Ok(mut table) = from_loose_trusted::<TopicConfigTable>(table) else { return table.to_vec() };
    let is_of_load = |topic: &str| topic.starts_with("Crash") || topic.contains("%crash");
    table.topic_config_table.retain(|topic, _| !is_of_load(topic) || !chance.once_in(4));
    to_pretty(&table)
}

/// Whether a table can be read.
fn is_whole(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && from_loose_trusted::<serde_json::Value>(bytes).is_ok()
}

/// What is left of a file of which the disk has lost a part.
fn torn_bytes(mut bytes: Vec<u8>, chance: &mut Chance) -> Vec<u8> {
    let at = usize::try_from(chance.below(bytes.len() as u64)).unwrap_or(0);
    match chance.below(4) {
        0 => bytes.clear(),
        1 => bytes.truncate(at),
        2 => bytes[at..].fill(0),
        _ => {
            let sector = at / SECTOR_BYTES * SECTOR_BYTES;
            let end = bytes.len().min(sector + SECTOR_BYTES);
            bytes[sector..end].fill(0);
        }
    }
    bytes
}

/// The tables of a broker: name and file of the present generation.
fn tables(config: &Path) -> Vec<(String, PathBuf)> {
    let mut files = Vec::new();
    below(config, &mut files);
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    let name = |file: &PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned());
    files.into_iter().filter_map(|file| Some((name(&file)?, file))).collect()
}

/// Has saves of tables be under way: the new generation may be written in part, and the present one may be the old one
/// already.
fn lose_saves(config: &Path, torn: &BTreeSet<String>, chance: &mut Chance) -> std::io::Result<()> {
    for (name, file) in tables(config) {
        if torn.contains(&name) || !chance.once_in(4) {
            continue;
        }
        let beside = |ending: &str| file.with_extension(format!("json.{ending}"));
        let bytes = std::fs::read(&file)?;
        let front = &bytes[..usize::try_from(chance.below(bytes.len() as u64)).unwrap_or(0)];
        let fresh = match chance.below(4) {
            0 => Vec::new(),
            1 => front.to_vec(),
            // Its length was on the disk before its bytes were.
            2 => [front, &vec![0; bytes.len() - front.len()]].concat(),
            _ => bytes.clone(),
        };
        std::fs::write(beside("tmp"), fresh)?;
        if chance.once_in(2) {
            std::fs::rename(&file, beside("bak"))?;
        }
    }
    Ok(())
}

/// Log offset of the last message whose acknowledgement waits for the disk with synchronous flush.
fn waited(model: &Model) -> Option<u64> {
    let places = model.queues.values().flat_map(|queue| queue.values()).filter(|place| place.waited);
    let others = model.timers.values().map(|timer| timer.log_offset).chain(model.waiting.values().copied());
    places.map(|place| place.log_offset).chain(others).max()
}

/// Up to where the log is on the disk for sure, and where it ends.
fn durable(store: &Path, model: &Model, flushed_to: u64) -> Result<(u64, u64), Fault> {
    if !has_log(store) {
        return Ok((0, 0));
    }
    let view = StoreView::open(store).map_err(Fault::of("cannot look at the store"))?;
    let checkpoint = view.checkpoint().map_err(Fault::of("cannot read the checkpoint"))?;
    let saved_to = checkpoint.reached.map_or(0, |reached| reached.flushed_to);
    let (end, _) = view.records(0, |_| true, |_| ()).map_err(Fault::of("cannot read the log"))?;
    // A checkpoint that is lost takes nothing of the log with it.
    Ok((saved_to.max(flushed_to).max(model.durable_to).min(end), end))
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    if folder.is_file() {
        found.push(folder.to_path_buf());
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        below(&entry.path(), found);
    }
}

/// Damages a file in one of the ways that crashes and people know.
fn damage(path: &Path, is_index: bool, chance: &mut Chance) -> std::io::Result<()> {
    let len = std::fs::metadata(path)?.len();
    let file = OpenOptions::new().write(true).open(path)?;
    match chance.below(if is_index { 4 } else { 5 }) {
        0 => std::fs::remove_file(path),
        1 => file.set_len(0),
        2 => file.set_len(len / 2),
        3 => file.set_len(len + 1_000),
        _ => {
            let at = chance.below(len);
            file.set_len(at)?;
            file.set_len(len)
        }
    }
}
