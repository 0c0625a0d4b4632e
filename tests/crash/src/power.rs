//! A loss of power: of what was never forced to the disk, each page may be gone; derived files may be anything.
//!
//! Invariants:
//! - what the checkpoint calls flushed stays, and with synchronous flush what was acknowledged after a wait for
//!   the disk;
//! - what was forced to the disk within a file of the index stays, as nothing but a rebuild reads it all: whole files
//!   are lost, cut or grown, new and old ones;
//! - the store itself is changed: the broker is to recover it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use troupemq_store::inspect::StoreView;

use crate::Fault;
use crate::chance::Chance;
use crate::model::Model;

const PAGE_BYTES: u64 = 4096;
const SEGMENT_BYTES: u64 = 262_144;

/// What is left for sure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    /// Everything in front of this offset of the log.
    pub(crate) durable_to: u64,
}

/// Takes the power away.
pub(crate) fn lose(store: &Path, model: &Model, is_sync: bool, chance: &mut Chance) -> Result<Lost, Fault> {
    let (durable_to, end) = durable(store, model, is_sync)?;
    for page in (durable_to.next_multiple_of(PAGE_BYTES)..end).step_by(4096).filter(|_| chance.once_in(2)) {
        let name = format!("{:020}", page / SEGMENT_BYTES * SEGMENT_BYTES);
        let segment = OpenOptions::new().write(true).open(store.join("commitlog").join(name));
        let zeroed = segment.and_then(|file| file.write_all_at(&[0; 4096], page % SEGMENT_BYTES));
        zeroed.map_err(Fault::of("cannot lose a page"))?;
    }
    for folder in ["consumequeue", "batchconsumequeue", "index", "checkpoint"] {
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
    Ok(Lost { durable_to })
}

/// Up to where the log is on the disk for sure, and where it ends.
fn durable(store: &Path, model: &Model, is_sync: bool) -> Result<(u64, u64), Fault> {
    let places = model.queues.values().flat_map(|queue| queue.values());
    let waited = places.filter(|place| is_sync && place.waited).map(|place| place.log_offset).max();
    let view = StoreView::open(store).map_err(Fault::of("cannot look at the store"))?;
    let checkpoint = view.checkpoint().map_err(Fault::of("cannot read the checkpoint"))?;
    // A checkpoint that is lost takes nothing of the log with it.
    let mut durable_to = checkpoint.reached.map_or(0, |reached| reached.flushed_to).max(model.durable_to);
    let walked = view.records(
        0,
        |record| {
            let log_offset = record.log_offset().cast_unsigned();
            if Some(log_offset) == waited {
                durable_to = durable_to.max(log_offset + record.total_size() as u64);
            }
            true
        },
        |_damage| (),
    );
    let (end, _) = walked.map_err(Fault::of("cannot read the log"))?;
    Ok((durable_to.min(end), end))
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
