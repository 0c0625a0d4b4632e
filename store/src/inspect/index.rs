//! The index as it lies on the disk, compared with the log entry by entry.
//!
//! Invariants:
//! - one pass: entries are in the order of the log, so each file is read once from front to end;
//! - nothing is written, and no more of a file is held than the ends of its chains.

use std::path::{Path, PathBuf};

use troupemq_codec::message::RecordView;

use super::{Finding, finding};
use crate::dispatch::glance;
use crate::error::StoreError;
use crate::index::sound::is_indexed;
use crate::index::{ENTRIES_AT_ONCE, Geometry, IndexFile, key_hashes, topic_seed};

/// Findings told of one file; the rest is counted.
const TOLD_MAX: u64 = 5;

/// All index files, oldest first, while the records go by.
#[derive(Debug)]
pub(super) struct StoredIndex {
    dir: PathBuf,
    files: std::vec::IntoIter<PathBuf>,
    open: Option<Open>,
    known: Vec<Geometry>,
    /// A file whose entries cannot be told from its slots was passed over: nothing is said of what is missing.
    is_blind: bool,
    wrong: u64,
}

/// The file whose entries are due.
#[derive(Debug)]
struct Open {
    file: IndexFile,
    next: u32,
    /// Entries before this one can be read.
    ready_to: u32,
    wrong: u64,
    /// For each chain its newest entry so far.
    newest: Vec<u32>,
}

impl StoredIndex {
    pub(super) fn below(dir: &Path, known: &[Geometry]) -> Result<StoredIndex, StoreError> {
        let (dir, known) = (dir.to_path_buf(), known.to_vec());
        let files = crate::index::list(&dir)?.into_iter();
        Ok(StoredIndex { dir, files, open: None, known, is_blind: false, wrong: 0 })
    }

    /// Compares the entries of a record with its keys.
    pub(super) fn compare(
        &mut self,
        record: &RecordView<'_>,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<(), StoreError> {
        if !is_indexed(record) {
            return Ok(());
        }
        let log_offset = record.log_offset().cast_unsigned();
        let [unique_key, keys] = glance::keys(record.properties().as_bytes());
        let mut wanted: Vec<u32> = key_hashes(topic_seed(record.topic()), unique_key, keys).collect();
        while let Some((hash, of)) = self.peek(tell)? {
            if of > log_offset && !self.is_out_of_order() {
                break;
            }
            if of == log_offset
                && let Some(at) = wanted.iter().position(|wanted| *wanted == hash)
            {
                wanted.swap_remove(at);
            }
            self.pass(tell);
        }
        if !wanted.is_empty() && !self.is_blind {
            let what = format!("{} keys of the message at {log_offset} of the log are missing", wanted.len());
            self.tell(0, &what, tell);
        }
        Ok(())
    }

    /// Tells what is left over.
    pub(super) fn finish(mut self, log_end: u64, tell: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        while let Some((_, of)) = self.peek(tell)? {
            if of >= log_end {
                self.tell(0, &format!("entries go on behind the end of the log, to {of}"), tell);
                break;
            }
            self.pass(tell);
        }
        if self.wrong > TOLD_MAX {
            let what = format!("{} findings in all about the index", self.wrong);
            tell(finding(&self.dir, 0, &what, false));
        }
        Ok(())
    }

    /// Hash and log offset of the next entry.
    fn peek(&mut self, tell: &mut dyn FnMut(Finding)) -> Result<Option<(u32, u64)>, StoreError> {
        loop {
            if let Some(open) = self.open.as_mut().filter(|open| open.next < open.file.entries()) {
                // The one behind it is looked at too.
                if open.next + 2 > open.ready_to {
                    open.file.ready_entries(open.next)?;
                    open.ready_to = open.next + ENTRIES_AT_ONCE;
                }
                let entry = open.file.entry(open.next);
                return Ok(Some((entry.hash, entry.log_offset)));
            }
            self.close(tell)?;
            let Some(path) = self.files.next() else { return Ok(None) };
            let Some(file) = IndexFile::open_any(path.clone(), &self.known)? else {
                self.is_blind = true;
                let what = "it is not full and of no size that is known, so the index is not checked";
                tell(finding(&path, 0, what, true));
                continue;
            };
            let newest = vec![0; file.slots() as usize];
            self.known.push(file.geometry());
            self.known.dedup();
            self.open = Some(Open { file, next: 1, ready_to: 0, wrong: 0, newest });
        }
    }

    /// Goes on to the next entry, after a look at the one before.
    fn pass(&mut self, tell: &mut dyn FnMut(Finding)) {
        let Some(open) = &mut self.open else { return };
        let (number, entry) = (open.next, open.file.entry(open.next));
        open.next += 1;
        let newest = &mut open.newest[open.file.slot_of(entry.hash) as usize];
        let older = std::mem::replace(newest, number);
        if entry.older != older {
            let what = format!("entry {number} leads to entry {} instead of {older}", entry.older);
            self.tell(u64::from(number), &what, tell);
        }
    }

    /// Whether the next entry is further on in the log than the one behind it.
    fn is_out_of_order(&self) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let behind = open.next + 1;
            let of = |number| open.file.entry(number).log_offset;
            behind < open.file.entries().min(open.ready_to) && of(behind) < of(open.next)
        })
    }

    /// Looks at where the chains of a file begin.
    fn close(&mut self, tell: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        let Some(Open { file, newest, .. }) = self.open.take() else { return Ok(()) };
        file.ready_slots()?;
        let wrong = (0..).zip(&newest).filter(|(slot, newest)| file.newest(*slot) != **newest).count();
        if wrong > 0 {
            self.wrong += 1;
            tell(finding(
                file.path(),
                0,
                &format!("{wrong} chains do not begin at their newest entry"),
                false,
            ));
        }
        Ok(())
    }

    fn tell(&mut self, at: u64, what: &str, tell: &mut dyn FnMut(Finding)) {
        self.wrong += 1;
        let (file, wrong) = match &mut self.open {
            Some(open) => {
                open.wrong += 1;
                (open.file.path(), open.wrong)
            }
            None => (self.dir.as_path(), self.wrong),
        };
        if wrong <= TOLD_MAX {
            tell(finding(file, at, what, false));
        }
    }
}
