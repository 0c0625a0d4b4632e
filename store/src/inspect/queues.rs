//! The files of the queues as they lie on the disk, read without opening the queues.
//!
//! Invariants:
//! - nothing is mapped and nothing is written;
//! - at most `FILES_MAX` files are open at a time, however many queues there are.
//!
//! | unit | bytes |
//! |---|---|
//! | plain | log offset 8, size 4, tags code 8 |
//! | batch | the same, then store time 8, first queue offset 8, count 2, 8 more |

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use troupemq_codec::filter::tags_code_of;
use troupemq_codec::message::RecordView;
use troupemq_codec::message::properties::TAGS;

use super::{Finding, finding};
use crate::consume_queue::unit::{BATCH_UNIT_BYTES, UNIT_BYTES};
use crate::dispatch::SCHEDULE_TOPIC;
use crate::error::StoreError;
use crate::paths::Paths;
use crate::segments::{SegmentFile, list_files};

const PLAIN_BYTES: u64 = UNIT_BYTES as u64;
const BATCH_BYTES: u64 = BATCH_UNIT_BYTES as u64;
const FILES_MAX: usize = 256;
/// Findings told of one queue; the rest is counted.
const TOLD_MAX: u64 = 5;

/// A unit as it lies on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredUnit {
    /// Byte of the queue at which it stands.
    pub at: u64,
    /// Where its record is.
    pub log_offset: u64,
    /// Bytes of the record; 2^31 − 1 is filler in front of the first message.
    pub size: u32,
    /// What filters look at.
    pub tags_code: i64,
}

/// All queues of a store, compared record by record.
#[derive(Debug)]
pub(super) struct StoredQueues {
    plain: PathBuf,
    batch: PathBuf,
    seen: HashMap<(String, i32), Seen>,
    files: HashMap<PathBuf, File>,
    /// What is wrong about records from here on is repaired by the next start.
    heals_from: u64,
}

/// A queue while its records go by.
#[derive(Debug, Default)]
struct Seen {
    dir: PathBuf,
    files: Vec<SegmentFile>,
    is_batch: bool,
    /// Byte position of the unit that the next record should have (batch), or behind the last one (plain).
    next: u64,
    wrong: u64,
}

impl StoredQueues {
    pub(super) fn below(paths: &Paths) -> StoredQueues {
        let (plain, batch) = (paths.consume_queue(), paths.batch_consume_queue());
        StoredQueues { plain, batch, seen: HashMap::new(), files: HashMap::new(), heals_from: u64::MAX }
    }

    /// Says from where on the next start reads the log again.
    pub(super) fn heal_from(&mut self, log_offset: u64) {
        self.heals_from = log_offset;
    }

    /// Hands every unit of a queue to `visit`, until it answers false.
    pub(super) fn units(
        mut self,
        topic: &str,
        queue_id: i32,
        mut visit: impl FnMut(&StoredUnit) -> bool,
    ) -> Result<(), StoreError> {
        let queue = self.find(topic, queue_id)?;
        let mut at = queue.files.first().map_or(0, |first| first.start);
        while let Some(unit) = self.unit(&queue, at)? {
            if !visit(&unit) {
                return Ok(());
            }
            at += queue.unit_bytes();
        }
        Ok(())
    }

    /// Compares the unit of a visible record with it.
    pub(super) fn compare(
        &mut self,
        record: &RecordView<'_>,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<(), StoreError> {
        let key = (record.topic().to_owned(), record.queue_id());
        let mut queue = match self.seen.remove(&key) {
            Some(queue) => queue,
            None => self.find(record.topic(), record.queue_id())?,
        };
        let log_offset = record.log_offset().cast_unsigned();
        let at = match queue.is_batch {
            true => self.skip_expired(&queue, log_offset)?,
            false => record.queue_offset().cast_unsigned() * PLAIN_BYTES,
        };
        let wrong = match self.unit(&queue, at)? {
            None => Some("has no unit".to_owned()),
            Some(unit) if unit.log_offset != log_offset || unit.size as usize != record.total_size() => {
                Some(format!("has a unit that points to {} bytes at {}", unit.size, unit.log_offset))
            }
            Some(unit) if self.has_wrong_tags(&queue, &unit, record) => {
                Some("has a unit with the hash of other tags".to_owned())
            }
            Some(_) => None,
        };
        queue.next = at + queue.unit_bytes();
        if let Some(wrong) = wrong {
            queue.wrong += 1;
            if queue.wrong <= TOLD_MAX {
                let what = format!("message {} at {log_offset} of the log {wrong}", record.queue_offset());
                let heals = queue.files.is_empty() || log_offset >= self.heals_from;
                tell(finding(&queue.dir, at, &what, heals));
            }
        }
        self.seen.insert(key, queue);
        Ok(())
    }

    /// Tells what is left over; answers the number of queues.
    pub(super) fn finish(
        mut self,
        log_min: u64,
        log_end: u64,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<usize, StoreError> {
        let queues: Vec<Seen> = self.seen.drain().map(|(_, queue)| queue).collect();
        for queue in &queues {
            if queue.wrong > TOLD_MAX {
                let what = format!("{} messages in all have no or a wrong unit", queue.wrong);
                tell(finding(&queue.dir, 0, &what, queue.files.is_empty()));
            }
            let Some(unit) = self.unit(queue, queue.next)? else { continue };
            let what = match unit.log_offset {
                at if at >= log_end => format!("units go on behind the end of the log, to {at}"),
                at if at < log_min => continue,
                at => format!("a unit points to {at}, where the log has no message of this queue"),
            };
            tell(finding(&queue.dir, queue.next, &what, true));
        }
        Ok(queues.len())
    }

    /// Whether a filter would go by tags that the message has not.
    fn has_wrong_tags(&self, queue: &Seen, unit: &StoredUnit, record: &RecordView<'_>) -> bool {
        // There stands the time of delivery, the address of an extension, or what the first of many messages says.
        let is_other =
            record.topic() == SCHEDULE_TOPIC || unit.tags_code < i64::from(i32::MIN) || queue.is_batch;
        !is_other && unit.tags_code != tags_code_of(record.properties().get(TAGS))
    }

    fn find(&self, topic: &str, queue_id: i32) -> Result<Seen, StoreError> {
        let below = |root: &PathBuf| root.join(topic).join(queue_id.to_string());
        let (plain, batch) = (below(&self.plain), below(&self.batch));
        let files = list_files(&plain)?;
        if !files.is_empty() {
            return Ok(Seen { dir: plain, files, ..Seen::default() });
        }
        let files = list_files(&batch)?;
        let is_batch = !files.is_empty();
        let next = files.first().map_or(0, |first| first.start);
        Ok(Seen { dir: if is_batch { batch } else { plain }, files, is_batch, next, wrong: 0 })
    }

    /// The unit at byte `at` of a queue; nothing where there is none.
    fn unit(&mut self, queue: &Seen, at: u64) -> Result<Option<StoredUnit>, StoreError> {
        let holds = |file: &&SegmentFile| (file.start..file.start + file.len).contains(&at);
        let Some(file) = queue.files.iter().find(holds) else { return Ok(None) };
        if file.start + file.len < at + PLAIN_BYTES {
            return Ok(None);
        }
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        if !self.files.contains_key(&file.path) {
            let opened = File::open(&file.path).map_err(StoreError::io("open", &file.path))?;
            self.files.insert(file.path.clone(), opened);
        }
        let mut bytes = [0; 20];
        let read = self.files[&file.path].read_exact_at(&mut bytes, at - file.start);
        read.map_err(StoreError::io("read", &file.path))?;
        let (log_offset, rest) = bytes.split_first_chunk::<8>().expect("a unit is 20 bytes");
        let (size, rest) = rest.split_first_chunk::<4>().expect("a unit is 20 bytes");
        let tags_code = rest.first_chunk::<8>().expect("a unit is 20 bytes");
        let unit = StoredUnit {
            at,
            log_offset: u64::from_be_bytes(*log_offset),
            size: u32::from_be_bytes(*size),
            tags_code: i64::from_be_bytes(*tags_code),
        };
        Ok((unit.size > 0).then_some(unit))
    }

    /// Byte position of the first unit, from the expected one on, that is not of an older record.
    fn skip_expired(&mut self, queue: &Seen, log_offset: u64) -> Result<u64, StoreError> {
        let mut at = queue.next;
        while let Some(unit) = self.unit(queue, at)? {
            if unit.log_offset >= log_offset {
                break;
            }
            at += BATCH_BYTES;
        }
        Ok(at)
    }
}

impl Seen {
    fn unit_bytes(&self) -> u64 {
        if self.is_batch { BATCH_BYTES } else { PLAIN_BYTES }
    }
}
