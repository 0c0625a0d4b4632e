//! Units of a queue one after the other.
//!
//! Invariants:
//! - they are those that were published when the walk began, in the order of their offsets, none twice;
//! - a walk holds no lock: retention may take a file away, then the walk ends there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::extension::is_address;
use super::files::QueueFile;
use super::unit::{BATCH_UNIT_BYTES, BatchUnit, PlainUnit, UNIT_BYTES, Unit};
use super::{ConsumeQueue, QueueKind};
use crate::mmap::WordMap;

/// Words of 32 bits of a plain unit.
const UNIT_WORDS: usize = UNIT_BYTES / 4;

/// Consecutive units of a queue.
#[derive(Debug)]
pub struct Units<'a> {
    queue: &'a ConsumeQueue,
    position: u64,
    below: i64,
    left: usize,
    file: Option<Arc<QueueFile>>,
}

impl ConsumeQueue {
    /// The units from the message `from` on, at most `max`; nothing if `from` cannot be read.
    pub fn units(&self, from: i64, max: usize) -> Units<'_> {
        let below = self.max_offset();
        let readable = from >= self.min_offset() && from < below;
        let position = if readable { self.position_of(from) } else { None };
        Units {
            queue: self,
            position: position.unwrap_or(0),
            below,
            left: max * usize::from(position.is_some()),
            file: None,
        }
    }

    /// Reads the unit at a byte position below the end.
    pub(super) fn unit_in(&self, file: &QueueFile, position: u64) -> Option<Unit> {
        let mut unit = self.unit_as_it_stands(file, position)?;
        if self.kind() == QueueKind::Plain && is_address(unit.tags_code) {
            unit.tags_code = self.tags_in_extension(unit.tags_code);
        }
        Some(unit)
    }

    /// The same; its tags may be in the extension.
    pub(super) fn unit_as_it_stands(&self, file: &QueueFile, position: u64) -> Option<Unit> {
        let (map, at) = (readable(file)?, file.at(position));
        match self.kind() {
            QueueKind::Plain => {
                let [words] = map.words(at, UNIT_WORDS).as_chunks().0 else { return None };
                let queue_offset = i64::try_from(position / UNIT_BYTES as u64).ok()?;
                Some(plain_unit(words, queue_offset))
            }
            QueueKind::Batch => {
                let mut bytes = [0; BATCH_UNIT_BYTES];
                map.read(at, &mut bytes);
                Some(BatchUnit::from_bytes(&bytes).unit())
            }
        }
    }

    /// The hash of tags that the extension keeps at an address.
    #[cold]
    pub(super) fn tags_in_extension(&self, address: i64) -> i64 {
        self.read_extension(address).map_or(0, |found| found.tags_code)
    }
}

/// The unit of a plain queue as it stands in the words of its file.
#[inline]
fn plain_unit(words: &[AtomicU32; UNIT_WORDS], queue_offset: i64) -> Unit {
    let read = |word: &AtomicU32| u32::from_be(word.load(Ordering::Relaxed));
    let [a, b, c, d, e] = words;
    PlainUnit::from_words([read(a), read(b), read(c), read(d), read(e)]).at(queue_offset)
}

fn readable(file: &QueueFile) -> Option<&WordMap> {
    match file.map() {
        Ok(map) => Some(map),
        Err(error) => {
            tracing::error!(%error, "queue file cannot be read");
            None
        }
    }
}

impl Units<'_> {
    /// Hands the units to `look` until it says false. The same units as the iterator's; those of a plain queue that
    /// stand side by side in a file are read as one piece of it.
    pub fn each_while(mut self, mut look: impl FnMut(&Unit) -> bool) {
        if self.queue.kind() == QueueKind::Batch {
            self.all(|unit| look(&unit));
            return;
        }
        while self.left > 0 && self.each_of_file(&mut look).is_some() {}
    }

    /// The units of a plain queue that are in one file; none when the walk is over.
    fn each_of_file(&mut self, look: &mut impl FnMut(&Unit) -> bool) -> Option<()> {
        let file = self.queue.files.at(self.position)?;
        let first = i64::try_from(self.position / UNIT_BYTES as u64).ok()?;
        let in_file = usize::try_from((file.end() - self.position) / UNIT_BYTES as u64).ok()?;
        let to_read = usize::try_from(self.below - first).ok()?.min(self.left);
        let count = in_file.min(to_read);
        let words = readable(&file)?.words(file.at(self.position), count * UNIT_WORDS);
        for (queue_offset, words) in (first..).zip(words.as_chunks().0) {
            let mut unit = plain_unit(words, queue_offset);
            if is_address(unit.tags_code) {
                unit.tags_code = self.queue.tags_in_extension(unit.tags_code);
            }
            if !look(&unit) {
                return None;
            }
        }
        self.left = to_read - count;
        self.position += (count * UNIT_BYTES) as u64;
        (count > 0).then_some(())
    }
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        if self.left == 0 {
            return None;
        }
        let inside = self.file.as_ref().is_some_and(|file| self.position < file.end());
        if !inside {
            self.file = self.queue.files.at(self.position);
        }
        let unit = self.queue.unit_in(self.file.as_deref()?, self.position)?;
        self.left -= 1;
        self.position += self.queue.kind().unit_bytes();
        if unit.queue_offset >= self.below {
            self.left = 0;
            return None;
        }
        if unit.next_offset() >= self.below {
            self.left = 0;
        }
        Some(unit)
    }
}
