//! Leases on queues for orderly consumption (RocketMQ: `RebalanceLockManager`).
//!
//! Invariants:
//! - a queue (as the client names it, broker name included) has at most one holder whose lease is unexpired;
//! - asking again renews: a lease lives 60 s from its last renewal, clients renew every 20 s;
//! - a request never fails for the queues it does not get: it succeeds with the rest.
//!
//! - leases know no groups: one that is made later finds those that were given before.
//!
//! Contents: `ahead` leases for groups that are not there.
//!
//! Deliberately absent: fairness. Whoever asks first after the end of a lease gets the queue.

pub mod ahead;

use std::collections::HashMap;

use troupemq_codec::Text;
use troupemq_codec::topic::MessageQueue;

/// How long a lease lives after its last renewal.
pub const LEASE_MS: i64 = 60_000;

/// Queues that one group may hold leases on at a time; a request beyond it is left out of the answer.
pub const LEASES_MAX: usize = 65_536;

#[derive(Debug)]
struct Lease {
    client_id: Text,
    renewed_ms: i64,
}

impl Lease {
    fn is_live(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.renewed_ms) < LEASE_MS
    }
}

/// The leases of one group.
#[derive(Debug, Default)]
pub struct Locks {
    leases: HashMap<MessageQueue, Lease>,
}

impl Locks {
    /// Grants or renews what `client_id` may hold of `wanted`, in the order asked (LOCK_BATCH_MQ).
    pub fn lock(&mut self, client_id: &Text, wanted: Vec<MessageQueue>, now_ms: i64) -> Vec<MessageQueue> {
        wanted.into_iter().filter(|queue| self.lock_one(client_id, queue, now_ms)).collect()
    }

    fn lock_one(&mut self, client_id: &Text, queue: &MessageQueue, now_ms: i64) -> bool {
        let full = self.leases.len() >= LEASES_MAX;
        match self.leases.get_mut(queue) {
            Some(lease) if lease.client_id == *client_id || !lease.is_live(now_ms) => {
                *lease = Lease { client_id: client_id.clone(), renewed_ms: now_ms };
                true
            }
            Some(_) => false,
            None if full => {
                self.drop_expired(now_ms);
                self.leases.len() < LEASES_MAX && self.lock_one(client_id, queue, now_ms)
            }
            None => {
                self.leases.insert(queue.clone(), Lease { client_id: client_id.clone(), renewed_ms: now_ms });
                true
            }
        }
    }

    /// Gives back the queues of `given` that `client_id` holds; the rest stays as it is (UNLOCK_BATCH_MQ).
    pub fn unlock(&mut self, client_id: &Text, given: &[MessageQueue]) {
        for queue in given {
            if self.leases.get(queue).is_some_and(|lease| lease.client_id == *client_id) {
                self.leases.remove(queue);
            }
        }
    }

    /// How many leases there are, expired ones included.
    fn len(&self) -> usize {
        self.leases.len()
    }

    /// Drops expired leases.
    fn drop_expired(&mut self, now_ms: i64) {
        self.leases.retain(|_, lease| lease.is_live(now_ms));
    }

    /// Whether any lease is unexpired. Then a failed message of the group is an orderly one, and a resend
    /// of it goes to the dead letters at once.
    #[must_use]
    pub fn any_live(&self, now_ms: i64) -> bool {
        self.leases.values().any(|lease| lease.is_live(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(queue_id: i32) -> MessageQueue {
        MessageQueue { topic: Text::from("orders"), broker_name: Text::from("broker-a"), queue_id }
    }

    fn client(name: &str) -> Text {
        Text::from(name)
    }

    #[test]
    fn a_client_gets_the_free_queues_and_the_call_succeeds_without_the_held_ones() {
        let mut locks = Locks::default();
        assert_eq!(locks.lock(&client("a"), vec![queue(0), queue(1)], 0), vec![queue(0), queue(1)]);
        assert_eq!(locks.lock(&client("b"), vec![queue(1), queue(2)], 10), vec![queue(2)]);
    }

    #[test]
    fn a_renewed_lease_is_kept_and_a_silent_one_passes_to_the_next_who_asks() {
        let mut locks = Locks::default();
        locks.lock(&client("a"), vec![queue(0)], 0);
        locks.lock(&client("a"), vec![queue(0)], 20_000);
        assert!(locks.lock(&client("b"), vec![queue(0)], 79_999).is_empty());
        assert_eq!(locks.lock(&client("b"), vec![queue(0)], 80_000), vec![queue(0)]);
        assert!(locks.lock(&client("a"), vec![queue(0)], 80_001).is_empty());
    }

    #[test]
    fn only_the_holder_gives_a_queue_back() {
        let mut locks = Locks::default();
        locks.lock(&client("a"), vec![queue(0)], 0);
        locks.unlock(&client("b"), &[queue(0)]);
        assert!(locks.lock(&client("b"), vec![queue(0)], 1).is_empty());
        locks.unlock(&client("a"), &[queue(0)]);
        assert_eq!(locks.lock(&client("b"), vec![queue(0)], 2), vec![queue(0)]);
    }

    #[test]
    fn a_group_without_live_leases_is_not_orderly() {
        let mut locks = Locks::default();
        assert!(!locks.any_live(0));
        locks.lock(&client("a"), vec![queue(0)], 0);
        assert!(locks.any_live(59_999));
        assert!(!locks.any_live(60_000));
    }

    #[test]
    fn a_full_table_makes_room_by_dropping_expired_leases_and_then_refuses() {
        let mut locks = Locks::default();
        let all: Vec<MessageQueue> = (0..).map(queue).take(LEASES_MAX).collect();
        assert_eq!(locks.lock(&client("a"), all, 0).len(), LEASES_MAX);
        assert!(locks.lock(&client("b"), vec![queue(-1)], 59_999).is_empty());
        assert_eq!(locks.lock(&client("b"), vec![queue(-1)], 60_000), vec![queue(-1)]);
    }

    #[test]
    fn another_broker_name_is_another_queue() {
        let mut locks = Locks::default();
        locks.lock(&client("a"), vec![queue(0)], 0);
        let elsewhere = MessageQueue { broker_name: Text::from("broker-b"), ..queue(0) };
        assert_eq!(locks.lock(&client("b"), vec![elsewhere.clone()], 1), vec![elsewhere]);
    }
}
