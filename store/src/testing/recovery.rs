//! A store of which one file is replaced by given bytes: it opens or names what is damaged, and never twice.
//!
//! Invariants:
//! - a derived file is never a reason not to open, whatever is in it;
//! - what an open has recovered, the next one finds in order.
//!
//! What was forced to the disk is not read again at a start: bytes that were forged or have rotted there show when they
//! are read, and `troupemq store check` finds them.
//!
//! The first byte chooses the file, the rest is its content, written over its beginning.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;

use super::{Random, Sample, close_well, small_files};
use crate::commit_log::batch::AppendBatch;
use crate::config::StoreConfig;
use crate::open::{Opened, open};
use crate::{StoreError, SystemClock};

/// The files, and whether they derive from the log.
const FILES: [(&str, bool); 6] = [
    ("commitlog/00000000000000000000", false),
    ("commitlog/00000000000000065536", false),
    ("consumequeue/Sample/0/00000000000000000000", true),
    ("consumequeue/Sample/1/00000000000000000020", true),
    ("checkpoint", true),
    ("index/20261129000000000", true),
];

fn config(dir: &Path) -> StoreConfig {
    StoreConfig { index_slots_max: 50, index_entries_max: 400, ..small_files(dir) }
}

fn open_in(dir: &Path) -> Result<Opened, StoreError> {
    open(config(dir), Arc::new(SystemClock::new()))
}

fn fill(opened: &mut Opened, count: usize) {
    let mut random = Random::seeded(1);
    let mut batch = AppendBatch::default();
    for _ in 0..count {
        batch.clear();
        let queue_id = i32::try_from(random.below(2)).expect("one or two");
        let queue = opened.queues.open_or_create(Sample::TOPIC, queue_id).expect("a good name");
        Sample { queue_id, fill: random.byte(), body_bytes: random.below(2_000) }.push(&mut batch, &queue);
        let appended = opened.log.append(&mut batch, 1_795_000_000_000).expect("there is room");
        opened.dispatch.dispatch(&batch, &appended).expect("there is room");
    }
}

/// A killed store, made once.
fn killed() -> &'static Path {
    static KILLED: OnceLock<TempDir> = OnceLock::new();
    let made = KILLED.get_or_init(|| {
        let dir = TempDir::new().expect("a temporary folder can be made");
        let mut opened = open_in(dir.path()).expect("a new store opens");
        fill(&mut opened, 70);
        let _flushed = opened.flusher.flush();
        let saved = opened.marks.save(&opened.flusher.watch(), &opened.queues, opened.dispatch.flusher());
        saved.expect("a checkpoint is saved");
        fill(&mut opened, 20);
        dir
    });
    made.path()
}

/// Copies a folder with all that is in it: what a kill would leave of a store that is open.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
            continue;
        }
        match std::fs::copy(entry.path(), to) {
            // It was made ready for later, and has got its name meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            copied => drop(copied?),
        }
    }
    Ok(())
}

/// Replaces the file, opens, goes on, closes and opens again.
///
/// # Panics
/// If the store does not keep its word.
pub fn recover_from(bytes: &[u8]) {
    let Some((first, content)) = bytes.split_first() else { return };
    let (file, is_derived) = FILES[usize::from(*first) % FILES.len()];
    let dir = TempDir::new().expect("a temporary folder can be made");
    copy(killed(), dir.path()).expect("a store can be copied");
    let path = dir.path().join(file);
    std::fs::create_dir_all(path.parent().expect("a file of the store")).expect("a folder can be made");
    let content = &content[..content.len().min(65_536)];
    let disk = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    disk.expect("it can be opened").write_all_at(content, 0).expect("it can be written");
    let mut opened = match open_in(dir.path()) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(!is_derived, "{file} is a reason not to open: {error}");
            return;
        }
    };
    fill(&mut opened, 3);
    let end = opened.log.wrote_to();
    close_well(opened);
    let again = open_in(dir.path()).expect("it opens again");
    assert!(again.report.was_closed && again.report.log_end == end, "{:?} {end}", again.report);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_any_content_is_recovered_from_or_named() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/recovery");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            assert!(std::panic::catch_unwind(|| recover_from(&bytes)).is_ok(), "{}", path.display());
        }
    }

    #[test]
    fn random_content_is_recovered_from_or_named() {
        for seed in 0..60 {
            let mut random = Random::seeded(seed);
            let len = 1 + random.below(3_000);
            let bytes: Vec<u8> =
                (0..len).map(|_| if random.below(3) == 0 { 0 } else { random.byte() }).collect();
            assert!(std::panic::catch_unwind(|| recover_from(&bytes)).is_ok(), "seed {seed}");
        }
    }
}
