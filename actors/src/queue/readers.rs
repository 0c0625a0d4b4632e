//! How far groups have read one queue, noted where pulls are answered.
//!
//! Invariants:
//! - a pull that goes on where the last one of its group ended is noted here alone, with no word to the owner of
//!   offsets: it lets nobody go back, and moves no commit;
//! - of more than `GROUPS_MAX` groups of a queue the rest is not noted: the owner is told of each of their pulls.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use dashmap::DashMap;
use troupemq_codec::Text;

/// Groups that are noted at one queue.
const GROUPS_MAX: usize = 10_000;
/// Shards of the table of groups: few threads read one queue.
const SHARDS: usize = 2;
/// Where nobody goes on.
const NOWHERE: i64 = i64::MIN;

/// The groups that read a queue.
#[derive(Debug, Default)]
pub struct Readers(OnceLock<DashMap<Text, AtomicI64>>);

impl Readers {
    /// Notes that a group was handed what stands from `from` up to `next_offset`. Tells whether it has gone on where it
    /// was.
    pub(crate) fn goes_on(&self, group: &str, from: i64, next_offset: i64) -> bool {
        let groups = self.0.get_or_init(|| DashMap::with_shard_amount(SHARDS));
        if let Some(pulled) = groups.get(group) {
            return pulled.swap(next_offset, Ordering::Relaxed) == from;
        }
        if groups.len() < GROUPS_MAX {
            groups.insert(Text::from(group), AtomicI64::new(next_offset));
        }
        false
    }

    /// The group was sent elsewhere: its next pull goes on nowhere.
    pub(crate) fn moved(&self, group: &str) {
        if let Some(pulled) = self.0.get().and_then(|groups| groups.get(group)) {
            pulled.store(NOWHERE, Ordering::Relaxed);
        }
    }

    /// Offset up to which messages were handed out to a group.
    pub(crate) fn pulled(&self, group: &str) -> Option<i64> {
        let pulled = self.0.get()?.get(group)?.load(Ordering::Relaxed);
        Some(pulled).filter(|pulled| *pulled != NOWHERE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_goes_on_where_its_last_pull_ended_and_nowhere_else() {
        let readers = Readers::default();
        assert!(!readers.goes_on("g", 0, 32), "its first pull");
        assert!(readers.goes_on("g", 32, 64));
        assert!(!readers.goes_on("h", 64, 96), "another group");
        assert!(!readers.goes_on("g", 32, 64), "back");
        assert!(!readers.goes_on("g", 80, 96), "ahead");
        assert_eq!(
            (readers.pulled("g"), readers.pulled("h"), readers.pulled("i")),
            (Some(96), Some(96), None)
        );
    }

    #[test]
    fn a_group_that_was_moved_goes_on_nowhere() {
        let readers = Readers::default();
        readers.moved("g");
        readers.goes_on("g", 0, 32);
        readers.moved("g");
        assert_eq!(readers.pulled("g"), None);
        assert!(!readers.goes_on("g", 32, 64));
    }

    #[test]
    fn the_owner_is_told_of_those_for_whom_there_is_no_room() {
        let readers = Readers::default();
        for group in 0..GROUPS_MAX {
            readers.goes_on(&group.to_string(), 0, 1);
        }
        for _ in 0..2 {
            assert!(!readers.goes_on("one more", 1, 1));
        }
        assert!(readers.goes_on("0", 1, 2) && readers.pulled("one more").is_none());
    }
}
