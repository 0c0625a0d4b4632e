//! Whether the files of an index can be what the log asks for, as far as a start sees without reading them.
//!
//! Invariants:
//! - a look costs a page or two of each file and a few records of the log, however long both are;
//! - from the first file that is not sound on the index is made anew from the log, and so is what a missing file held;
//! - damage within a file goes unnoticed here: who asks compares records with the key, and `troupemq store check`
//!   reads all.

use std::sync::Arc;

use troupemq_codec::message::{RecordView, sys_flag};

use super::file::IndexFile;
use super::writer::IndexWriter;
use crate::dispatch::glance;
use crate::error::StoreError;
use crate::reader::LogReader;

/// Records that are looked at where the log may have something between two files.
const LOOKED_AT_MAX: u32 = 256;

/// Whether the index holds keys of a record, if it is complete.
pub(crate) fn is_indexed(record: &RecordView<'_>) -> bool {
    let [unique_key, keys] = glance::keys(record.properties().as_bytes());
    let has_keys = unique_key.is_some() || keys.is_some_and(|keys| keys.iter().any(|byte| *byte != b' '));
    has_keys && sys_flag::transaction(record.sys_flag()) != sys_flag::TRANSACTION_ROLLBACK
}

impl IndexWriter {
    /// Drops files from the first on that does not fit the log or follow the one before it; the log makes them again.
    /// `log_end` is how far the log was indexed, if it was indexed at all.
    pub(crate) fn drop_unsound(&mut self, reader: &LogReader, log_end: u64) -> Result<(), StoreError> {
        let list = self.reader().files.load_full();
        let mut indexed_to = reader.min_offset();
        for (at, file) in list.iter().enumerate() {
            let is_last = at + 1 == list.len();
            let why = match follows(reader, file, is_last).unwrap_or_else(|error| {
                tracing::warn!(%error, "a file of the index cannot be looked at");
                Some("it cannot be read")
            }) {
                Some(why) => why,
                None if lacks(reader, indexed_to, file.header().begin_log_offset) => {
                    "what comes before it is missing"
                }
                None => {
                    indexed_to = indexed_to.max(record_end(reader, file.end_log_offset()));
                    continue;
                }
            };
            tracing::warn!(file = %file.path().display(), why, "the index is made anew from here on");
            return self.drop_from(&list[at..]);
        }
        // Of an index that is behind, what is said to be complete nevertheless.
        let sure_to = if self.is_behind() { self.complete_to().min(log_end) } else { log_end };
        if lacks(reader, indexed_to, sure_to) {
            tracing::warn!(from = indexed_to, "the end of the index is missing and made anew");
            self.fell_behind();
        }
        Ok(())
    }

    fn drop_from(&mut self, files: &[Arc<IndexFile>]) -> Result<(), StoreError> {
        // From the end on: a crash in between leaves no gap.
        for file in files.iter().rev() {
            self.forget(file)?;
        }
        self.fell_behind();
        self.doubt_last()
    }
}

/// Why a file is not what a writer of this log leaves behind, if it is not.
fn follows(reader: &LogReader, file: &IndexFile, is_last: bool) -> Result<Option<&'static str>, StoreError> {
    let header = file.header();
    let ends = [header.begin_log_offset, header.end_log_offset];
    let is_expired = |log_offset: u64| log_offset < reader.min_offset();
    // What the disk cannot read just now proves nothing against the file.
    let is_record =
        |log_offset: u64| look(reader, log_offset, is_indexed).unwrap_or(Some(true)).unwrap_or(false);
    Ok(match () {
        () if !is_last && !file.is_full() => Some("it is not full, and others follow"),
        () if header.begin_ms > header.end_ms || header.begin_log_offset > header.end_log_offset => {
            Some("it ends before it begins")
        }
        () if file.bounds()? != (ends[0], ends[1]) => Some("its head does not fit its entries"),
        () if ends.iter().any(|at| !is_expired(*at) && !is_record(*at)) => {
            Some("the log has no such records")
        }
        () => None,
    })
}

/// Why a look at a stretch of the log ends.
enum Seen {
    /// Whether there is something to index.
    Known(bool),
    Unreadable(StoreError),
}

impl From<StoreError> for Seen {
    fn from(error: StoreError) -> Seen {
        Seen::Unreadable(error)
    }
}

/// Whether the log has something to index in a stretch that no file speaks of; only its first records are looked at.
fn lacks(reader: &LogReader, from: u64, to: u64) -> bool {
    let mut left = LOOKED_AT_MAX;
    let walked = reader.walk(from, to.max(from), |record| match (is_indexed(record), left) {
        (true, _) => Err(Seen::Known(true)),
        (false, 0) => Err(Seen::Known(false)),
        (false, _) => {
            left -= 1;
            Ok(())
        }
    });
    match walked {
        Ok(_) | Err(Seen::Known(false)) => false,
        Err(Seen::Known(true)) => true,
        Err(Seen::Unreadable(error)) => {
            tracing::error!(%error, "the index is not compared with this part of the log");
            false
        }
    }
}

/// Offset behind the record at this offset, which is there or expired.
fn record_end(reader: &LogReader, log_offset: u64) -> u64 {
    let end = look(reader, log_offset, |record| log_offset + record.total_size() as u64);
    end.unwrap_or(Some(log_offset)).unwrap_or(0)
}

/// What a record of the log says. An error is told here.
fn look<T>(
    reader: &LogReader,
    log_offset: u64,
    read: impl FnOnce(&RecordView<'_>) -> T,
) -> Result<Option<T>, StoreError> {
    reader.fetch_record(log_offset, read).inspect_err(|error| {
        tracing::error!(%error, "a message cannot be compared with the index");
    })
}

#[cfg(test)]
mod tests {
    use troupemq_codec::message::NewRecord;

    use super::*;
    use crate::{AppendBatch, ManualClock, Opened, StoreConfig, open};

    /// Whether something is seen to be missing in a log of so many records without keys and one with a key.
    fn is_missed_behind(without_keys: u32) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let opened = open(StoreConfig::in_dir(dir.path()), Arc::new(ManualClock::at(0))).unwrap();
        let Opened { mut log, reader, queues, .. } = opened;
        let queue = queues.open_or_create("T", 0).unwrap();
        for number in 0..=without_keys {
            let properties: &[&[u8]] = if number == without_keys { &[b"KEYS\x01k\x02"] } else { &[] };
            let mut batch = AppendBatch::default();
            NewRecord { topic: "T", body: b"x", properties, ..NewRecord::PLAIN }
                .encode(&mut batch.bytes)
                .unwrap();
            batch.push(0, &queue, 1, 0);
            log.append(&mut batch, 1).unwrap();
        }
        lacks(&reader, 0, reader.wrote_to())
    }

    #[test]
    fn a_stretch_counts_as_one_without_keys_when_so_many_records_in_front_have_none() {
        assert!(is_missed_behind(0) && is_missed_behind(LOOKED_AT_MAX));
        assert!(!is_missed_behind(LOOKED_AT_MAX + 1));
    }
}
