//! The head of an index file.
//!
//! Invariants:
//! - the next entry is never below 1: entry 0 means "none".
//!
//! | at | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | store time of the first entry (ms) |
//! | 8 | 8 | store time of the last entry (ms) |
//! | 16 | 8 | log offset of the first entry |
//! | 24 | 8 | log offset of the last entry |
//! | 32 | 4 | slots in use |
//! | 36 | 4 | number of the next entry |

use std::sync::atomic::Ordering;

use crate::mmap::WordMap;

/// Bytes in front of the slots.
pub(crate) const HEADER_BYTES: usize = 40;

/// What the head of an index file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) begin_log_offset: u64,
    pub(crate) end_log_offset: u64,
    pub(crate) slots_used: u32,
    pub(crate) next_entry: u32,
}

impl IndexHeader {
    /// The head of a file that continues a full one, or of the very first.
    pub(crate) fn after(full: Option<&IndexHeader>) -> IndexHeader {
        let (time_ms, log_offset) = full.map_or((0, 0), |full| (full.end_ms, full.end_log_offset));
        IndexHeader {
            begin_ms: time_ms,
            end_ms: time_ms,
            begin_log_offset: log_offset,
            end_log_offset: log_offset,
            slots_used: 0,
            next_entry: 1,
        }
    }

    /// Reads the head; numbers no writer leaves are read as an empty file.
    pub(crate) fn read(map: &WordMap) -> IndexHeader {
        let word = |at: usize| u32::from_be(map.word(at).load(Ordering::Relaxed));
        let long = |at: usize| (u64::from(word(at)) << 32) | u64::from(word(at + 4));
        IndexHeader {
            begin_ms: long(0).cast_signed(),
            end_ms: long(8).cast_signed(),
            begin_log_offset: long(16),
            end_log_offset: long(24),
            slots_used: word(32),
            next_entry: word(36).cast_signed().max(1).cast_unsigned(),
        }
    }

    /// Writes the head.
    pub(crate) fn write(&self, map: &WordMap) {
        let store = |at: usize, value: u32| map.word(at).store(value.to_be(), Ordering::Relaxed);
        let longs = [
            self.begin_ms.cast_unsigned(),
            self.end_ms.cast_unsigned(),
            self.begin_log_offset,
            self.end_log_offset,
        ];
        for (index, long) in longs.into_iter().enumerate() {
            let [a, b, c, d, e, f, g, h] = long.to_be_bytes();
            store(index * 8, u32::from_be_bytes([a, b, c, d]));
            store(index * 8 + 4, u32::from_be_bytes([e, f, g, h]));
        }
        store(32, self.slots_used);
        store(36, self.next_entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_its_bytes_and_an_empty_one_begins_at_entry_one() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64).unwrap();
        let map = WordMap::open(&file, 64).unwrap();
        assert_eq!(IndexHeader::read(&map), IndexHeader::after(None));
        let header = IndexHeader {
            begin_ms: 1_795_966_895_778,
            end_ms: 1_795_966_895_779,
            begin_log_offset: 1 << 40,
            end_log_offset: (1 << 40) + 7,
            slots_used: 5,
            next_entry: 9,
        };
        header.write(&map);
        assert_eq!(IndexHeader::read(&map), header);
        let mut bytes = [0; 40];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(bytes[..8], 1_795_966_895_778_i64.to_be_bytes());
        assert_eq!(bytes[24..], [0, 0, 1, 0, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 9]);
        let next = IndexHeader::after(Some(&header));
        assert_eq!((next.begin_ms, next.end_log_offset, next.next_entry), (header.end_ms, (1 << 40) + 7, 1));
    }
}
