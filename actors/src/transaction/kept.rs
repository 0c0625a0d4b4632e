//! `Kept`: half messages that were stored a moment ago, for their ends: most come soon, and then nothing is read from
//! the log and checked. Plain state, one for each arbiter: an end mostly comes on the connection of its half message.
//!
//! Invariants:
//! - it is only a short cut: what is not kept is read from the log, what is not known of it is read from its record;
//! - an end takes its half message away; its memory is given back with that of its neighbours: those that were taken
//!   away count until all in front of them are gone, so that no few of them keep much memory.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use troupemq_codec::request::EndView;

use super::records::{Goes, Part};

/// Bytes that are kept, the newest ones.
const KEPT_BYTES: usize = 4 << 20;
/// Bytes of one piece of memory, which holds several half messages.
const PIECE_BYTES: usize = 128 << 10;
/// Full pieces whose memory is used again when all that stands in them was taken.
const FULL_MAX: usize = 8;
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
    /// Pieces that are full, the oldest first.
    full: VecDeque<BytesMut>,
    /// Where the one stands that is taken next, if they are taken in their order.
    next: usize,
}

#[derive(Debug)]
struct Half {
    log_offset: u64,
    len: usize,
    /// None if it was taken away.
    kept: Option<KeptHalf>,
}

/// A half message that was kept.
#[derive(Debug)]
pub struct KeptHalf {
    /// Its record.
    pub record: Bytes,
    queue_offset: i64,
    known: Option<Known>,
}

/// What the send of a half message knows of it, so that its end need not read the record. Nothing of one whose commit
/// waits for a level or a time, or whose end has a time of its own.
#[derive(Debug)]
pub struct Known {
    /// Where in its record the producer's group stands.
    pub group_at: Part,
    /// Where its message goes.
    pub goes: Goes,
}

impl KeptHalf {
    /// Where its message goes, if that is known and the end that is asked for is one of this half message. If not, its
    /// record says that, or what is wrong with the end.
    pub fn goes_by(&mut self, asked: &EndView<'_>) -> Option<Goes> {
        let known = self.known.take()?;
        let group = known.group_at.of(&self.record)?;
        let is_meant = asked.queue_offset == self.queue_offset && asked.producer_group.as_bytes() == group;
        is_meant.then_some(known.goes)
    }
}

impl Kept {
    /// Keeps the record of a half message, which was stored at this place of the log and of its queue.
    pub fn keep(&mut self, (log_offset, queue_offset): (u64, i64), record: &[u8], known: Option<Known>) {
        let is_next = self.halves.back().is_none_or(|last| last.log_offset < log_offset);
        if !is_next || record.len() > HALF_MAX_BYTES {
            return;
        }
        if self.piece.capacity() < record.len() {
            let next = self.next_piece();
            self.full.push_back(std::mem::replace(&mut self.piece, next));
        }
        self.piece.extend_from_slice(record);
        let (len, record) = (record.len(), self.piece.split().freeze());
        self.bytes += len;
        self.halves.push_back(Half { log_offset, len, kept: Some(KeptHalf { record, queue_offset, known }) });
        while self.bytes > KEPT_BYTES || self.halves.len() > KEPT_MAX {
            self.drop_first();
        }
    }

    /// Room for the next ones: that of the oldest ones, if nobody needs those any more.
    fn next_piece(&mut self) -> BytesMut {
        let is_free = self.full.front_mut().is_some_and(|oldest| oldest.try_reclaim(PIECE_BYTES));
        // One that is needed for long is left to who needs it.
        let oldest = if is_free || self.full.len() >= FULL_MAX { self.full.pop_front() } else { None };
        oldest.filter(|_| is_free).unwrap_or_else(|| BytesMut::with_capacity(PIECE_BYTES))
    }

    /// Takes the half message away that stands at this place of the log, if it is kept.
    pub fn take(&mut self, log_offset: u64) -> Option<KeptHalf> {
        let at = match self.halves.get(self.next).is_some_and(|half| half.log_offset == log_offset) {
            true => self.next,
            false => self.halves.binary_search_by_key(&log_offset, |half| half.log_offset).ok()?,
        };
        self.next = at + 1;
        let kept = self.halves.get_mut(at)?.kept.take();
        while self.halves.front().is_some_and(|first| first.kept.is_none()) {
            self.drop_first();
        }
        kept
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.halves.pop_front() {
            self.next = self.next.saturating_sub(1);
            self.bytes -= first.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_half_message_is_taken_once_in_whatever_order() {
        let mut kept = Kept::default();
        (1..=5_u8).for_each(|at| kept.keep((u64::from(at) * 100, 0), &[at; 10], None));
        kept.keep((50, 0), b"stored before others", None);
        let taken = [300, 100, 300, 50, 101, 500].map(|at| kept.take(at).map(|half| half.record[0]));
        assert_eq!(taken, [Some(3), Some(1), None, None, None, Some(5)]);
        assert_eq!((kept.take(200).is_some(), kept.take(400).is_some()), (true, true));
        assert_eq!((kept.halves.len(), kept.bytes), (0, 0), "nothing is left of what was taken");
    }

    #[test]
    fn what_is_kept_is_bounded_by_bytes_and_number_and_the_oldest_go() {
        let mut kept = Kept::default();
        let record = [7; HALF_MAX_BYTES];
        let fitting = KEPT_BYTES / HALF_MAX_BYTES;
        (0..fitting as u64 + 10).for_each(|at| kept.keep((at, 0), &record, None));
        assert_eq!((kept.halves.len(), kept.bytes), (fitting, KEPT_BYTES));
        assert_eq!(
            (kept.take(9).is_none(), kept.take(10).map(|half| half.record.len())),
            (true, Some(HALF_MAX_BYTES))
        );
        kept.keep((1_000_000, 0), &[7; HALF_MAX_BYTES + 1], None);
        assert!(kept.take(1_000_000).is_none(), "it is too long");
        (2_000_000..2_000_000 + 2 * KEPT_MAX as u64).for_each(|at| kept.keep((at, 0), b"short", None));
        assert_eq!(kept.halves.len(), KEPT_MAX);
    }

    #[test]
    fn pieces_are_used_again_when_all_in_them_was_taken_and_no_sooner() {
        let mut kept = Kept::default();
        let record = [7; 1024];
        let mut places = HashSet::new();
        let held = {
            kept.keep((0, 0), &record, None);
            kept.take(0).expect("it is kept").record
        };
        for at in 1..10_000_u64 {
            kept.keep((at, 0), &[9; 1024], None);
            let half = kept.take(at).expect("it is kept");
            assert_eq!(half.record[..], [9; 1024]);
            places.insert(half.record.as_ptr().addr());
        }
        assert_eq!(held[..], record, "its piece is left alone");
        assert!(places.len() <= (FULL_MAX + 3) * PIECE_BYTES / 1024, "{}", places.len());
        assert!(kept.full.len() <= FULL_MAX);
    }

    #[test]
    fn what_is_known_of_a_half_message_answers_an_end_of_its_own_group_and_place_alone() {
        let mut kept = Kept::default();
        let asked = |queue_offset, group: &'static str| EndView {
            producer_group: group.into(),
            queue_offset,
            log_offset: 100,
            outcome: 8,
            from_check: false,
        };
        let mut goes_by = |asked: &EndView<'_>| {
            let topic_at = (0..1).into();
            let goes = Goes { topic_at, keys_at: [None, None], queue_id: 3, tags_code: 7, detour: None };
            kept.keep((100, 5), b"T of the group", Some(Known { group_at: (9..14).into(), goes }));
            let goes = kept.take(100).expect("it is kept").goes_by(asked);
            goes.map(|goes| (goes.topic_at, goes.queue_id, goes.tags_code))
        };
        assert_eq!(goes_by(&asked(5, "group")), Some(((0..1).into(), 3, 7)));
        assert_eq!((goes_by(&asked(6, "group")), goes_by(&asked(5, "groups"))), (None, None));
    }
}
