//! `Pieces`: parts of one segment that leave together, such as the records that a pull found.
//!
//! Invariants:
//! - one handle keeps the segment mapped for all pieces; none of them is copied;
//! - pieces come out in the order they were added, each byte once.

use std::ops::Range;

use bytes::Bytes;

/// Parts of one segment, of the bytes that were final when it was taken.
#[derive(Debug, Clone)]
pub struct Pieces {
    /// Log offset of the first of `bytes`.
    start: u64,
    bytes: Bytes,
    ranges: Vec<Range<usize>>,
    /// The first range that is not taken yet.
    first: usize,
    /// Bytes in what is not taken yet.
    len: usize,
}

impl Pieces {
    /// No piece yet, and room for some, of bytes that begin at `start`.
    pub fn new(start: u64, bytes: Bytes, room: usize) -> Pieces {
        Pieces { start, bytes, ranges: Vec::with_capacity(room), first: 0, len: 0 }
    }

    /// Adds `len` bytes from `log_offset`; false if they are not all in it.
    #[inline]
    pub fn add(&mut self, log_offset: u64, len: usize) -> bool {
        let at = log_offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let Some(range) = at.and_then(|at| Some(at..at.checked_add(len)?)) else { return false };
        if range.end > self.bytes.len() {
            return false;
        }
        self.ranges.push(range);
        self.len += len;
        true
    }

    /// How many pieces there are.
    pub fn count(&self) -> usize {
        self.ranges.len() - self.first
    }

    /// Bytes in them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let ranges = self.ranges.get(self.first..).unwrap_or_default();
        ranges.iter().map(|range| &self.bytes[range.clone()])
    }

    /// The one piece there is, if it is one; it keeps the segment mapped.
    pub fn single(&self) -> Option<Bytes> {
        match self.ranges.get(self.first..) {
            Some([range]) => Some(self.bytes.slice(range.clone())),
            _ => None,
        }
    }

    /// Takes `taken` bytes off the front.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn advance(&mut self, mut taken: usize) {
        assert!(taken <= self.len, "{taken} of {} bytes cannot be taken", self.len);
        self.len -= taken;
        while let Some(range) = self.ranges.get_mut(self.first) {
            if taken < range.len() {
                range.start += taken;
                return;
            }
            taken -= range.len();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Pieces {
        let mut pieces = Pieces::new(1000, Bytes::from_static(b"0123456789"), 4);
        assert!(pieces.add(1001, 2) && pieces.add(1005, 1) && pieces.add(1007, 3));
        pieces
    }

    #[test]
    fn what_is_outside_the_segment_is_not_added() {
        let mut pieces = pieces();
        assert!(!pieces.add(999, 2) && !pieces.add(1008, 3) && !pieces.add(1001, usize::MAX));
        assert_eq!(pieces.iter().collect::<Vec<_>>(), [&b"12"[..], b"5", b"789"]);
        assert_eq!((pieces.count(), pieces.len()), (3, 6));
    }

    #[test]
    fn every_byte_comes_out_once_whatever_is_taken_at_a_time() {
        for step in 1..=6 {
            let (mut pieces, mut seen) = (pieces(), Vec::new());
            while !pieces.is_empty() {
                let taken = step.min(pieces.len());
                seen.extend(pieces.iter().flatten().take(taken).copied());
                pieces.advance(taken);
            }
            assert_eq!((&seen[..], pieces.count()), (&b"125789"[..], 0), "step {step}");
        }
    }

    #[test]
    fn one_piece_is_bytes_of_its_own() {
        let mut pieces = pieces();
        assert_eq!(pieces.single(), None);
        pieces.advance(4);
        assert_eq!(pieces.single(), Some(Bytes::from_static(b"89")));
    }

    #[test]
    #[should_panic(expected = "7 of 6 bytes cannot be taken")]
    fn no_more_than_there_is_can_be_taken() {
        pieces().advance(7);
    }
}
