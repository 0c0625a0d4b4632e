//! The index: from a message's keys to its places in the log (RocketMQ's `IndexService`).
//!
//! Invariants:
//! - one thread writes (`IndexWriter`), any thread looks up (`IndexReader`), none waits for another;
//! - what is answered are candidates: two keys may have one hash, and who asks compares the record's keys;
//! - after an unclean stop only entries that are known to be on the disk stay, the rest comes from the log;
//! - file names sort by age: a new name is later than all before it, whatever the clock says.
//!
//! | file | what |
//! |---|---|
//! | `key.rs` | the hash of a key |
//! | `header.rs`, `file.rs` | one file: its bytes, chains, cutting |
//! | `sound.rs` | whether a start can believe the files |
//! | `writer.rs` | adding entries, rolling files, what a start keeps |

mod file;
mod header;
mod key;
pub(crate) mod sound;
mod writer;

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;

pub(crate) use self::file::{ENTRIES_AT_ONCE, Geometry, IndexFile};
use crate::error::StoreError;
use crate::paths::remove;

pub(crate) use self::key::{KeyHasher, key_hash, key_hashes, topic_seed};
pub use self::writer::{Durable, IndexWriter};
pub(crate) use self::writer::{USUAL, list};

/// Folder below the root of the store.
pub(crate) const FOLDER: &str = "index";

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub struct KeyQuery<'a> {
    /// Topic of the messages.
    pub topic: &'a str,
    /// One of their `KEYS`, or their `UNIQ_KEY`.
    pub key: &'a str,
    /// Most log offsets wanted; the newest win.
    pub max: usize,
    /// Earliest store time (epoch ms).
    pub begin_ms: i64,
    /// Latest store time (epoch ms).
    pub end_ms: i64,
}

/// What a query has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Log offsets of messages, oldest first.
    pub log_offsets: Vec<u64>,
    /// Whether it has stopped at a bound, before older messages.
    pub is_cut: bool,
}

/// Entries that a query goes through, whatever their keys: one that is chosen for that may share its chain with all.
pub const QUERY_ENTRIES_MAX: u32 = 1_000_000;
/// Messages whose keys have the same hash that a query looks at.
pub const QUERY_LOOKS_MAX: u32 = 10_000;

/// Looks keys up; clones see the same files.
#[derive(Debug, Clone)]
pub struct IndexReader {
    files: Arc<ArcSwap<Vec<Arc<IndexFile>>>>,
}

impl IndexReader {
    /// Log offsets of messages that may have the key, oldest first. Waits for the disk.
    ///
    /// # Errors
    /// If the disk cannot read an entry.
    pub fn query(&self, query: &KeyQuery<'_>) -> Result<Vec<u64>, StoreError> {
        self.query_where(query, |_| true).map(|found| found.log_offsets)
    }

    /// Log offsets of messages with the key, oldest first; `is_right` tells whether the record at an offset
    /// really has it, so that foreign keys with the same hash do not use up the places. They do use up time, so there
    /// is a bound to how many are looked at. Waits for the disk.
    ///
    /// # Errors
    /// If the disk cannot read an entry: what is behind it cannot be told.
    pub fn query_where(
        &self,
        query: &KeyQuery<'_>,
        is_right: impl Fn(u64) -> bool,
    ) -> Result<Found, StoreError> {
        let hash = key_hash(topic_seed(query.topic), query.key.as_bytes());
        let mut found: Vec<u64> = Vec::new();
        let (mut entries, mut looks) = (QUERY_ENTRIES_MAX, QUERY_LOOKS_MAX);
        let mut take = |log_offset: u64| {
            if found.len() < query.max && looks > 0 && found.last() != Some(&log_offset) {
                looks -= 1;
                if is_right(log_offset) {
                    found.push(log_offset);
                }
            }
            found.len() < query.max && looks > 0
        };
        for file in self.files.load().iter().rev() {
            let header = file.header();
            if header.end_ms < query.begin_ms {
                break;
            }
            let goes_on = header.begin_ms > query.end_ms
                || file.find(hash, (query.begin_ms, query.end_ms), &mut entries, &mut take)?;
            if !goes_on || header.begin_ms < query.begin_ms {
                break;
            }
        }
        let is_cut = found.len() < query.max && (looks == 0 || entries == 0);
        found.sort_unstable();
        found.dedup();
        Ok(Found { log_offsets: found, is_cut })
    }

    /// Store time (epoch ms) and log offset of the last entry.
    pub fn last_entry(&self) -> Option<(i64, u64)> {
        let list = self.files.load();
        let header = list.last()?.header();
        (header.end_log_offset > 0 || header.next_entry > 1).then_some((header.end_ms, header.end_log_offset))
    }

    /// Forces all entries made so far to the disk. Answers the store time (epoch ms) up to which nothing can
    /// be lost any more: what the check point keeps.
    pub fn flush(&self) -> Result<Option<i64>, StoreError> {
        let durable = self.last_entry().map(|(time_ms, _)| time_ms);
        for file in self.files.load().iter() {
            file.flush()?;
        }
        Ok(durable)
    }

    /// Deletes the oldest files whose records are all before `log_min`, never the last; tells how many.
    pub fn expire(&self, log_min: u64) -> Result<usize, StoreError> {
        let gone = |list: &[Arc<IndexFile>]| {
            let dead = list.iter().take_while(|file| file.end_log_offset() < log_min).count();
            dead.min(list.len().saturating_sub(1))
        };
        let before = self.files.rcu(|list| list.iter().skip(gone(list)).map(Arc::clone).collect::<Vec<_>>());
        let gone = gone(&before);
        before.iter().take(gone).try_for_each(|file| remove(file.path()))?;
        Ok(gone)
    }

    fn push(&self, file: Arc<IndexFile>) {
        self.files.rcu(|list| {
            let mut longer = Vec::clone(list);
            longer.push(Arc::clone(&file));
            longer
        });
    }
}

/// Name of a file made at `now_ms`: the time in UTC as `yyyyMMddHHmmssSSS`, but later than `newest`.
fn file_name(now_ms: i64, newest: Option<&Path>) -> String {
    let now = stamp(now_ms.max(0).cast_unsigned());
    let newest = newest.and_then(|path| path.file_name()?.to_str()?.parse::<u64>().ok());
    format!("{:017}", newest.map_or(now, |newest| now.max(newest + 1)))
}

/// A time of the epoch as the decimal number `yyyyMMddHHmmssSSS`, in UTC.
fn stamp(now_ms: u64) -> u64 {
    const DAY_MS: u64 = 86_400_000;
    let (days, ms) = (now_ms / DAY_MS, now_ms % DAY_MS);
    // The calendar repeats every 400 years = 146,097 days; years are counted from March, so that the leap
    // day is the last of its year.
    let from_march = days + 719_468;
    let (era, day) = (from_march / 146_097, from_march % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let date = (era * 400 + year + carry) * 10_000 + month * 100 + day;
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    date * 1_000_000_000 + (hours * 10_000 + minutes * 100 + seconds) * 1000 + ms % 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_time_and_never_older_than_the_newest() {
        assert_eq!(stamp(0), 19_700_101_000_000_000);
        assert_eq!(stamp(1_795_967_657_312), 20_261_129_155_417_312);
        assert_eq!(stamp(951_782_400_000), 20_000_229_000_000_000);
        assert_eq!(stamp(951_868_799_999), 20_000_229_235_959_999);
        assert_eq!(stamp(1_735_689_600_000), 20_250_101_000_000_000);
        assert_eq!(file_name(1_795_967_657_312, None), "20261129155417312");
        let newest = Path::new("/s/index/20261129235417312");
        assert_eq!(file_name(1_795_967_657_312, Some(newest)), "20261129235417313");
    }
}
