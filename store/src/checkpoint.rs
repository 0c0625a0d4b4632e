//! The file `checkpoint`: how far the log and what derives from it had reached the disk.
//!
//! | byte | size | meaning |
//! |---|---|---|
//! | 0 | 8 | store time of the last flushed record of the log, ms |
//! | 8 | 8 | store time of the last unit of a consume queue, ms |
//! | 16 | 8 | end time of the last full index file, ms |
//! | 24 | 8 | flushed position of the master (replication) |
//! | 32 | 8 | confirmed position of the log |
//! | 2048 | 8 | `TROUPE01`: what follows is ours; Java neither reads nor keeps it |
//! | 2056 | 8 | log position up to which units and index entries are on the disk |
//! | 2064 | 8 | end of the log when this was written |
//! | 2072 | 8 | number of consume queues |
//! | 2080 | 8 | sum of their ends in units |
//! | 2088 | 8 | the five numbers 0 … 39 once more as CRC-32: shows that Java has written since |
//! | 2096 | 4 | CRC-32 of bytes 2048 … 2095 |
//!
//! Invariants:
//! - the file is 4096 bytes of which one block write changes all, so a torn one fails its CRC;
//! - our part counts only if the CRC holds and Java has not written since.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::faults::{self, Op};

const FILE_BYTES: usize = 4096;
const OURS_AT: usize = 2048;
const OURS_MAGIC: &[u8; 8] = b"TROUPE01";

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Store time of the last record known to be flushed (RocketMQ: `physicMsgTimestamp`).
    pub log_time_ms: i64,
    /// Store time of the last unit (RocketMQ: `logicsMsgTimestamp`).
    pub queue_time_ms: i64,
    /// End time of the last full index file (RocketMQ: `indexMsgTimestamp`).
    pub index_time_ms: i64,
    /// Flushed position of the master.
    pub master_flushed_to: i64,
    /// Confirmed position of the log.
    pub confirmed_to: i64,
    /// Our own part, where it is valid.
    pub reached: Option<Reached>,
}

/// Positions at the moment the checkpoint was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reached {
    /// Every record below has its units and index entries on the disk.
    pub dispatched_to: u64,
    /// End of the flushed log.
    pub flushed_to: u64,
    /// Number of consume queues.
    pub queues: u64,
    /// Sum of the ends of all consume queues.
    pub units: u64,
}

/// Writes the checkpoint; owned by whoever flushes.
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
}

impl Checkpoint {
    /// Java's safe time: three seconds before the older of log and queues.
    pub fn safe_time_ms(&self) -> i64 {
        self.log_time_ms.min(self.queue_time_ms).saturating_sub(3_000).max(0)
    }

    /// Reads the file; a missing, short or damaged one counts as all zero.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Checkpoint, StoreError> {
        match faults::look(Op::Read, path, || std::fs::read(path)) {
            Ok(bytes) => Ok(Checkpoint::decode(&bytes).unwrap_or_default()),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(Checkpoint::default()),
            Err(cause) => Err(StoreError::io("read", path)(cause)),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Checkpoint> {
        let mut numbers = [0_i64; 5];
        for (index, number) in numbers.iter_mut().enumerate() {
            *number = i64::from_be_bytes(array(bytes, index * 8)?);
        }
        let [log_time_ms, queue_time_ms, index_time_ms, master_flushed_to, confirmed_to] = numbers;
        let reached = Reached::decode(bytes);
        Some(Checkpoint {
            log_time_ms,
            queue_time_ms,
            index_time_ms,
            master_flushed_to,
            confirmed_to,
            reached,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        let numbers = [
            self.log_time_ms,
            self.queue_time_ms,
            self.index_time_ms,
            self.master_flushed_to,
            self.confirmed_to,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        let javas = crc32fast::hash(&bytes);
        bytes.resize(OURS_AT, 0);
        if let Some(reached) = &self.reached {
            bytes.extend_from_slice(OURS_MAGIC);
            for number in [reached.dispatched_to, reached.flushed_to, reached.queues, reached.units] {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            bytes.extend_from_slice(&u64::from(javas).to_be_bytes());
            let crc = crc32fast::hash(&bytes[OURS_AT..]);
            bytes.extend_from_slice(&crc.to_be_bytes());
        }
        bytes.resize(FILE_BYTES, 0);
        bytes
    }
}

impl Reached {
    fn decode(bytes: &[u8]) -> Option<Reached> {
        let ours = bytes.get(OURS_AT..OURS_AT + 52)?;
        let (covered, crc) = ours.split_at(48);
        let javas = u64::from(crc32fast::hash(bytes.get(..40)?));
        let whole = u32::from_be_bytes(array(crc, 0)?) == crc32fast::hash(covered);
        if !covered.starts_with(OURS_MAGIC) || !whole || u64::from_be_bytes(array(covered, 40)?) != javas {
            return None;
        }
        let number = |at| array(covered, at).map(u64::from_be_bytes);
        let [dispatched_to, flushed_to] = [number(8)?, number(16)?];
        Some(Reached { dispatched_to, flushed_to, queues: number(24)?, units: number(32)? })
    }
}

impl CheckpointFile {
    /// The checkpoint at `path`, made on the first `save`.
    pub fn at(path: PathBuf) -> CheckpointFile {
        CheckpointFile { path }
    }

    /// Writes and flushes the file.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let path = &self.path;
        let open = || OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = faults::pass(Op::Create, path, open).map_err(StoreError::io("open", path))?;
        faults::write_at(&file, path, &checkpoint.encode(), 0).map_err(StoreError::io("write", path))?;
        let synced = faults::pass(Op::Flush, path, || file.sync_all());
        synced.map_err(StoreError::io("flush", path))
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Checkpoint {
        Checkpoint {
            log_time_ms: 10_000,
            queue_time_ms: 9_000,
            index_time_ms: 3,
            master_flushed_to: 4,
            confirmed_to: 5,
            reached: Some(Reached { dispatched_to: 6, flushed_to: 7, queues: 8, units: 9 }),
        }
    }

    #[test]
    fn a_saved_checkpoint_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        CheckpointFile::at(path.clone()).save(&full()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        assert_eq!(Checkpoint::read(&path).unwrap(), full());
        assert_eq!(full().safe_time_ms(), 6_000);
    }

    #[test]
    fn our_part_does_not_count_once_java_has_written() {
        let mut bytes = full().encode();
        bytes[7] ^= 1;
        let read = Checkpoint::decode(&bytes).unwrap();
        assert_eq!(read.reached, None);
        assert_eq!(read.queue_time_ms, 9_000);
    }

    #[test]
    fn a_damaged_part_of_ours_is_not_believed() {
        for at in OURS_AT..OURS_AT + 52 {
            let mut bytes = full().encode();
            bytes[at] ^= 0x10;
            assert_eq!(Checkpoint::decode(&bytes).unwrap().reached, None, "byte {at}");
        }
    }

    #[test]
    fn a_missing_or_short_file_counts_as_zero() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        assert_eq!(Checkpoint::read(&path).unwrap(), Checkpoint::default());
        std::fs::write(&path, [1; 39]).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap(), Checkpoint::default());
    }
}
