//! `Kept`: half messages that were stored a moment ago, for their ends: most come soon, and then nothing is read from
//! the log and checked. Plain state, one for each arbiter: an end mostly comes on the connection of its half message.
//!
//! Invariants:
//! - it is only a short cut: what is not kept is read from the log;
//! - an end takes its half message away; its memory is given back with that of its neighbours: those that were taken
//!   away count until all in front of them are gone, so that no few of them keep much memory.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Bytes that are kept, the newest ones.
const KEPT_BYTES: usize = 4 << 20;
/// Bytes of one piece of memory, which holds several half messages.
const PIECE_BYTES: usize = 128 << 10;
/// Longer ones are not kept.
const HALF_MAX_BYTES: usize = PIECE_BYTES / 4;
/// Half messages that are kept, however short they are.
const KEPT_MAX: usize = 16_384;

/// The half messages.
#[derive(Debug, Default)]
pub struct Kept {
    /// By their places in the log, ascending.
    halves: VecDeque<Half>,
    /// Bytes of all in the row, taken away or not.
    bytes: usize,
    /// Room for the next ones.
    piece: BytesMut,
}

#[derive(Debug)]
struct Half {
    log_offset: u64,
    len: usize,
    /// Its record; none if it was taken away.
    record: Option<Bytes>,
}

impl Kept {
    /// Keeps the record of a half message, which was stored at this place.
    pub fn keep(&mut self, log_offset: u64, record: &[u8]) {
        let is_next = self.halves.back().is_none_or(|last| last.log_offset < log_offset);
        if !is_next || record.len() > HALF_MAX_BYTES {
            return;
        }
        if self.piece.capacity() < record.len() {
            self.piece = BytesMut::with_capacity(PIECE_BYTES);
        }
        self.piece.extend_from_slice(record);
        let (len, record) = (record.len(), Some(self.piece.split().freeze()));
        self.bytes += len;
        self.halves.push_back(Half { log_offset, len, record });
        while self.bytes > KEPT_BYTES || self.halves.len() > KEPT_MAX {
            self.drop_first();
        }
    }

    /// Takes the record away that stands at this place of the log, if it is kept.
    pub fn take(&mut self, log_offset: u64) -> Option<Bytes> {
        let at = self.halves.binary_search_by_key(&log_offset, |half| half.log_offset).ok()?;
        let record = self.halves.get_mut(at)?.record.take();
        while self.halves.front().is_some_and(|first| first.record.is_none()) {
            self.drop_first();
        }
        record
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.halves.pop_front() {
            self.bytes -= first.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_message_is_taken_once_in_whatever_order() {
        let mut kept = Kept::default();
        (1..=5_u8).for_each(|at| kept.keep(u64::from(at) * 100, &[at; 10]));
        kept.keep(50, b"stored before others");
        let taken = [300, 100, 300, 50, 101, 500].map(|at| kept.take(at).map(|record| record[0]));
        assert_eq!(taken, [Some(3), Some(1), None, None, None, Some(5)]);
        assert_eq!((kept.take(200).is_some(), kept.take(400).is_some()), (true, true));
        assert_eq!((kept.halves.len(), kept.bytes), (0, 0), "nothing is left of what was taken");
    }

    #[test]
    fn what_is_kept_is_bounded_by_bytes_and_number_and_the_oldest_go() {
        let mut kept = Kept::default();
        let record = [7; HALF_MAX_BYTES];
        let fitting = KEPT_BYTES / HALF_MAX_BYTES;
        (0..fitting as u64 + 10).for_each(|at| kept.keep(at, &record));
        assert_eq!((kept.halves.len(), kept.bytes), (fitting, KEPT_BYTES));
        assert_eq!((kept.take(9), kept.take(10).map(|record| record.len())), (None, Some(HALF_MAX_BYTES)));
        kept.keep(1_000_000, &[7; HALF_MAX_BYTES + 1]);
        assert_eq!(kept.take(1_000_000), None, "it is too long");
        (2_000_000..2_000_000 + 2 * KEPT_MAX as u64).for_each(|at| kept.keep(at, b"short"));
        assert_eq!(kept.halves.len(), KEPT_MAX);
    }
}
