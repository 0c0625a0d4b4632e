//! Ways back that clients' own resets ask for, and those that the broker tells them of.
//! Java: `DefaultMQPushConsumerImpl.resetOffsetByTimeStamp`. It asks for the offset of each queue at a time, commits
//! what it held for ten seconds more, and then commits the offset it was told. So it does when it is told by code 220.
//!
//! Invariants:
//! - plain state: time is an argument;
//! - a way leads to the very offset that was told, counts once, and not after [`OPEN_MS`];
//! - at most [`WAYS_MAX`] are open; while they are, a further question opens none.

use std::collections::HashMap;

use super::GroupQueue;

/// How long a way is open.
pub(super) const OPEN_MS: i64 = 60_000;

/// Ways that are open at a time.
pub(super) const WAYS_MAX: usize = 65_536;

/// The ways back that are open.
#[derive(Debug, Default)]
pub(super) struct Asked {
    ways: HashMap<GroupQueue, Way>,
}

#[derive(Debug)]
struct Way {
    to: i64,
    until_ms: i64,
}

impl Asked {
    /// A member of the group was told the offset at a time; tells whether there was room to note it.
    pub(super) fn note(&mut self, of: GroupQueue, to: i64, now_ms: i64) -> bool {
        if self.ways.len() >= WAYS_MAX {
            self.ways.retain(|_, way| now_ms < way.until_ms);
        }
        let has_room = self.ways.len() < WAYS_MAX || self.ways.contains_key(&of);
        if has_room {
            self.ways.insert(of, Way { to, until_ms: now_ms.saturating_add(OPEN_MS) });
        }
        has_room
    }

    /// Takes the way of a queue back to this offset, if it is open.
    pub(super) fn take(&mut self, of: &GroupQueue, queue_offset: i64, now_ms: i64) -> bool {
        let is_open = self.ways.get(of).is_some_and(|way| way.to == queue_offset && now_ms < way.until_ms);
        is_open && self.ways.remove(of).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use troupemq_codec::Text;

    fn queue(queue_id: i32) -> GroupQueue {
        GroupQueue { group: Text::from("g"), topic: Text::from("t"), queue_id }
    }

    #[test]
    fn a_way_back_leads_to_one_offset_once_and_for_a_minute() {
        let mut asked = Asked::default();
        assert!(!asked.take(&queue(0), 3, 0));
        asked.note(queue(0), 3, 1000);
        assert!(!asked.take(&queue(0), 4, 1001) && !asked.take(&queue(1), 3, 1001));
        assert!(asked.take(&queue(0), 3, 1001) && !asked.take(&queue(0), 3, 1001));
        asked.note(queue(0), 9, 1000);
        asked.note(queue(0), 3, 2000);
        assert!(!asked.take(&queue(0), 9, 2001), "the last question counts");
        assert!(!asked.take(&queue(0), 3, 2000 + OPEN_MS), "it is too late");
    }

    #[test]
    fn too_many_ways_open_no_further_one_until_some_are_closed() {
        let mut asked = Asked::default();
        for queue_id in 0..i32::try_from(WAYS_MAX).unwrap() {
            assert!(asked.note(queue(queue_id), 3, i64::from(queue_id / 1000)));
        }
        assert!(!asked.note(queue(-1), 3, OPEN_MS - 1) && !asked.take(&queue(-1), 3, OPEN_MS - 1));
        assert!(asked.note(queue(5), 4, OPEN_MS - 1), "it is known");
        assert!(asked.note(queue(-1), 3, OPEN_MS) && asked.take(&queue(-1), 3, OPEN_MS));
    }
}
