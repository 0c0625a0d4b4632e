//! Leases for groups that are not there: asked for ahead of the first heart-beat, or by who has no group at all.
//!
//! Invariants:
//! - who asks for a queue of such a group gets it as of any other, and the group is not made for it;
//! - a group that is made takes its leases over as they are, and leaves them here when it is deleted: who holds a queue
//!   does not hear of that;
//! - all of them together are bounded: expired ones go first, then who asks for more gets nothing.

use std::collections::HashMap;

use troupemq_codec::Text;
use troupemq_codec::topic::MessageQueue;

use super::{LEASES_MAX, Locks};

/// The leases of groups that are not there.
#[derive(Debug, Default)]
pub struct AheadLocks {
    groups: HashMap<Text, Locks>,
    count: usize,
}

impl AheadLocks {
    /// Grants or renews what `client_id` may hold of `wanted`.
    pub fn lock(
        &mut self,
        (group, client_id): (&Text, &Text),
        wanted: Vec<MessageQueue>,
        now_ms: i64,
    ) -> Vec<MessageQueue> {
        if self.count + wanted.len() > LEASES_MAX {
            self.drop_expired(now_ms);
        }
        if wanted.is_empty() || self.count + wanted.len() > LEASES_MAX {
            return Vec::new();
        }
        let locks = self.groups.entry(group.clone()).or_default();
        let before = locks.len();
        let locked = locks.lock(client_id, wanted, now_ms);
        self.count = self.count - before + locks.len();
        locked
    }

    /// Gives back the queues of `given` that `client_id` holds.
    pub fn unlock(&mut self, (group, client_id): (&Text, &Text), given: &[MessageQueue]) {
        let Some(mut locks) = self.take(group) else { return };
        locks.unlock(client_id, given);
        self.count += locks.len();
        if locks.len() > 0 {
            self.groups.insert(group.clone(), locks);
        }
    }

    /// The leases of a group that is there from now on.
    pub fn take(&mut self, group: &str) -> Option<Locks> {
        let locks = self.groups.remove(group)?;
        self.count -= locks.len();
        Some(locks)
    }

    /// Keeps the leases of a group that is there no more, if there is room.
    pub fn keep(&mut self, group: Text, mut locks: Locks, now_ms: i64) {
        locks.drop_expired(now_ms);
        if self.count + locks.len() > LEASES_MAX {
            self.drop_expired(now_ms);
        }
        if locks.len() > 0 && self.count + locks.len() <= LEASES_MAX {
            self.count += locks.len();
            self.groups.insert(group, locks);
        }
    }

    fn drop_expired(&mut self, now_ms: i64) {
        self.groups.retain(|_, locks| {
            locks.drop_expired(now_ms);
            locks.len() > 0
        });
        self.count = self.groups.values().map(Locks::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebalance::locks::LEASE_MS;

    fn queues(ids: std::ops::Range<i32>) -> Vec<MessageQueue> {
        let queue = |queue_id| MessageQueue {
            topic: Text::from("orders"),
            broker_name: Text::from("broker-a"),
            queue_id,
        };
        ids.map(queue).collect()
    }

    #[test]
    fn a_group_that_is_made_takes_its_leases_over() {
        let (group, one, other) = (Text::from("g"), Text::from("one"), Text::from("other"));
        let mut ahead = AheadLocks::default();
        assert_eq!(ahead.lock((&group, &one), queues(0..2), 0), queues(0..2));
        assert_eq!(ahead.lock((&group, &other), queues(1..3), 1), queues(2..3));
        assert_eq!(ahead.lock((&Text::from("h"), &other), queues(0..1), 1), queues(0..1));
        let mut taken = ahead.take("g").expect("its leases");
        assert!(taken.lock(&other, queues(0..2), 2).is_empty(), "they are held on");
        assert!(ahead.take("g").is_none());
        assert_eq!(ahead.count, 1, "the other group keeps its own");
    }

    #[test]
    fn the_leases_of_a_group_that_is_deleted_are_kept_until_they_expire() {
        let (group, one, other) = (Text::from("g"), Text::from("one"), Text::from("other"));
        let (mut ahead, mut locks) = (AheadLocks::default(), Locks::default());
        locks.lock(&one, queues(0..1), 0);
        locks.lock(&one, queues(1..2), 10);
        ahead.keep(group.clone(), locks, LEASE_MS);
        assert_eq!(ahead.count, 1, "one has expired");
        assert_eq!(ahead.lock((&group, &other), queues(0..2), LEASE_MS), queues(0..1));
        assert_eq!(ahead.lock((&group, &other), queues(0..2), LEASE_MS + 10), queues(0..2));
        let (mut many, client) = (Locks::default(), Text::from("c"));
        many.lock(&client, queues(0..i32::try_from(LEASES_MAX).expect("it is small")), LEASE_MS + 10);
        ahead.keep(Text::from("h"), many, LEASE_MS + 10);
        assert_eq!(ahead.count, 2, "there is no room for so many");
    }

    #[test]
    fn what_is_given_back_is_free_and_takes_no_room() {
        let (group, one, other) = (Text::from("g"), Text::from("one"), Text::from("other"));
        let mut ahead = AheadLocks::default();
        ahead.lock((&group, &one), queues(0..2), 0);
        ahead.unlock((&group, &other), &queues(0..2));
        assert!(ahead.lock((&group, &other), queues(0..2), 1).is_empty());
        ahead.unlock((&group, &one), &queues(0..2));
        assert_eq!((ahead.count, ahead.groups.len()), (0, 0));
    }

    #[test]
    fn all_leases_ahead_are_bounded_and_expired_ones_make_room() {
        let client = Text::from("c");
        let mut ahead = AheadLocks::default();
        let half = i32::try_from(LEASES_MAX / 2).expect("it is small");
        for group in ["g", "h"] {
            assert_eq!(ahead.lock((&Text::from(group), &client), queues(0..half), 0).len(), LEASES_MAX / 2);
        }
        let third = Text::from("i");
        assert!(ahead.lock((&third, &client), queues(0..1), LEASE_MS - 1).is_empty());
        assert_eq!(ahead.lock((&third, &client), queues(0..1), LEASE_MS), queues(0..1));
        assert_eq!((ahead.count, ahead.groups.len()), (1, 1), "nothing is kept of the others");
    }
}
