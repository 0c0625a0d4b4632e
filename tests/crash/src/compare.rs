//! Whether two stores have the same derived files.
//!
//! Invariants:
//! - where nothing has expired, files are compared byte by byte;
//! - where something has, a rebuild knows less than the broker did: then what both can know is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use troupemq_store::inspect::StoreView;

use crate::Fault;
use crate::load::gone::GONE;

/// Filler in front of the first message of a queue.
const FILLER_BYTES: u32 = i32::MAX.unsigned_abs();

/// What is below is no tags, but a place in an extension.
const TAGS_MIN: i64 = i32::MIN as i64;

/// Compares all files of these folders.
pub(crate) fn same_files(one: &Path, other: &Path, folders: &[&str]) -> Result<(), Fault> {
    for folder in folders {
        let (ours, theirs) = (files(&one.join(folder))?, files(&other.join(folder))?);
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        if names(&ours) != names(&theirs) {
            let (ours, theirs) = (names(&ours), names(&theirs));
            return Err(Fault(format!("{folder}: files are {ours:?}, a rebuild makes {theirs:?}")));
        }
        for (name, bytes) in &ours {
            let rebuilt = &theirs[name];
            let differs = bytes.iter().zip(rebuilt).position(|(one, other)| one != other);
            if let Some(at) = differs.or((bytes.len() != rebuilt.len()).then_some(0)) {
                let (name, ours, theirs) = (name.display(), around(bytes, at), around(rebuilt, at));
                return Err(Fault(format!(
                    "{folder}/{name} differs from a rebuild at byte {at}:\n{ours:?}\n{theirs:?}"
                )));
            }
        }
    }
    Ok(())
}

fn around(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at / 20 * 20..(at / 20 * 20 + 40).min(bytes.len())]
}

/// The files below a folder that hold anything, by their path in it.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, Fault> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for entry in entries {
            let path = entry.map_err(Fault::of("cannot list"))?.path();
            // What could not be read stands beside; a rebuild brings back what was deleted.
            let is_gone = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(GONE));
            if is_gone || path.extension().is_some_and(|ending| ending == "unreadable") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).map_err(Fault::of("cannot read"))?;
            // A file that was made for a unit that never came is no difference.
            if bytes.iter().any(|byte| *byte != 0) {
                let name = path.strip_prefix(folder).expect("it lies in the folder").to_path_buf();
                found.insert(name, bytes);
            }
        }
    }
    Ok(found)
}

/// Compares the units of all queues whose records are still in the log.
pub(crate) fn same_units(one: &Path, other: &Path, log_min: u64) -> Result<(), Fault> {
    let ours = units(one, log_min)?;
    let theirs = units(other, log_min)?;
    let queues: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for queue in queues {
        let of = |units: &Units| units.get(queue).cloned().unwrap_or_default();
        let (have, rebuilt) = (of(&ours), of(&theirs));
        let differs = |at: &usize| have.get(*at) != rebuilt.get(*at);
        if let Some(at) = (0..have.len().max(rebuilt.len())).find(differs) {
            let (count, others) = (have.len(), rebuilt.len());
            let (have, rebuilt) = (have.get(at), rebuilt.get(at));
            return Err(Fault(format!(
                "{queue:?}: unit {at} of {count} is {have:?}, a rebuild makes {rebuilt:?} of {others}"
            )));
        }
    }
    Ok(())
}

/// Units by their queue.
type Units = BTreeMap<(String, i32), Vec<UnitParts>>;
/// Place in the queue, place in the log, size and tags of a unit.
type UnitParts = (u64, u64, u32, i64);

fn units(store: &Path, log_min: u64) -> Result<Units, Fault> {
    let view = StoreView::open(store).map_err(Fault::of("cannot look at the store"))?;
    let mut found = BTreeMap::new();
    let folders = ["consumequeue", "batchconsumequeue"].map(|folder| store.join(folder));
    let topics = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    for topic in topics.flatten() {
        // Where a unit of a batch queue stands depends on those that were in front of it.
        let has_place = topic.path().starts_with(&folders[0]);
        for queue in std::fs::read_dir(topic.path()).map_err(Fault::of("cannot list a queue"))?.flatten() {
            let Some(topic) = topic.file_name().to_str().map(str::to_owned) else { continue };
            if topic.starts_with(GONE) || topic.ends_with(".unreadable") {
                continue;
            }
            let Some(queue_id) = queue.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let mut units = Vec::new();
            let read = view.units(&topic, queue_id, |unit| {
                if unit.size != FILLER_BYTES && unit.log_offset >= log_min {
                    let tags_code = if unit.tags_code < TAGS_MIN { 0 } else { unit.tags_code };
                    units.push((unit.at * u64::from(has_place), unit.log_offset, unit.size, tags_code));
                }
                true
            });
            read.map_err(Fault::of("cannot read the units"))?;
            found.insert((topic, queue_id), units);
        }
    }
    Ok(found)
}
