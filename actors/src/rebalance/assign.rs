//! Who of a group reads which queue (RocketMQ: `AllocateMessageQueueStrategy`, QUERY_ASSIGNMENT).
//!
//! Invariants:
//! - the answer depends only on the sorted queues and the sorted members, so that every member and the
//!   broker come to the same result;
//! - in clustering each queue is given to exactly one member.

use std::collections::BTreeSet;

use troupemq_codec::Text;
use troupemq_codec::topic::MessageQueue;

/// A way to divide queues; the broker knows these two, every other name leaves a client as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Neighbouring queues to one member (`AVG`).
    Average,
    /// Queues dealt like cards (`AVG_BY_CIRCLE`).
    Circle,
}

impl Strategy {
    /// The strategy that RocketMQ calls `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Strategy> {
        match name {
            "AVG" => Some(Strategy::Average),
            "AVG_BY_CIRCLE" => Some(Strategy::Circle),
            _ => None,
        }
    }
}

/// The queues of `queues` that `client_id` reads in clustering; nothing when it is no member.
#[must_use]
pub fn assign(
    strategy: Strategy,
    queues: &[MessageQueue],
    client_ids: &[Text],
    client_id: &Text,
) -> Vec<MessageQueue> {
    let mut queues = queues.to_vec();
    queues.sort();
    let mut members = client_ids.to_vec();
    members.sort();
    members.dedup();
    let Some(index) = members.iter().position(|member| member == client_id) else {
        return Vec::new();
    };
    match strategy {
        Strategy::Average => average(&queues, members.len(), index),
        Strategy::Circle => queues.into_iter().skip(index).step_by(members.len()).collect(),
    }
}

/// The queues of `queues` from which `client_id` pops: with a share of `count` its own and those of the `count` members
/// behind it. With no share, or one of all members, everything of every broker, which is called queue -1.
#[must_use]
pub fn share(
    strategy: Strategy,
    queues: &[MessageQueue],
    client_ids: &[Text],
    (client_id, count): (&Text, i32),
) -> Vec<MessageQueue> {
    let members: BTreeSet<&Text> = client_ids.iter().collect();
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 || count >= members.len().saturating_sub(1) {
        let whole = |queue: &MessageQueue| MessageQueue { queue_id: -1, ..queue.clone() };
        let brokers: BTreeSet<MessageQueue> = queues.iter().map(whole).collect();
        return brokers.into_iter().collect();
    }
    let members: Vec<&Text> = members.into_iter().collect();
    let Some(index) = members.iter().position(|member| *member == client_id) else { return Vec::new() };
    if members.len() > queues.len() {
        // So that nobody is left without a queue.
        let mut sorted = queues.to_vec();
        sorted.sort();
        return sorted.into_iter().cycle().skip(index).take(1).collect();
    }
    let sharers = members.iter().cycle().skip(index).take(count + 1);
    sharers.flat_map(|member| assign(strategy, queues, client_ids, member)).collect()
}

fn average(queues: &[MessageQueue], members: usize, index: usize) -> Vec<MessageQueue> {
    let rest = queues.len() % members;
    let size = (queues.len() / members + usize::from(index < rest)).max(usize::from(queues.len() <= members));
    let start = if index < rest { index * size } else { index * size + rest };
    queues.iter().skip(start).take(size).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(count: i32) -> Vec<MessageQueue> {
        (0..count)
            .rev()
            .map(|queue_id| MessageQueue {
                topic: Text::from("orders"),
                broker_name: Text::from("broker-a"),
                queue_id,
            })
            .collect()
    }

    fn members(count: usize) -> Vec<Text> {
        (0..count).map(|n| Text::from(format!("client-{n}"))).collect()
    }

    fn ids(strategy: Strategy, queue_count: i32, member_count: usize) -> Vec<Vec<i32>> {
        let members = members(member_count);
        members
            .iter()
            .map(|member| {
                assign(strategy, &queues(queue_count), &members, member)
                    .iter()
                    .map(|queue| queue.queue_id)
                    .collect()
            })
            .collect()
    }

    #[test]
    fn average_gives_neighbouring_queues_and_the_rest_to_the_first_members() {
        assert_eq!(ids(Strategy::Average, 8, 3), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
        assert_eq!(ids(Strategy::Average, 4, 4), [vec![0], vec![1], vec![2], vec![3]]);
        assert_eq!(ids(Strategy::Average, 2, 3), [vec![0], vec![1], vec![]]);
    }

    #[test]
    fn circle_deals_the_queues_in_turn() {
        assert_eq!(ids(Strategy::Circle, 5, 2), [vec![0, 2, 4], vec![1, 3]]);
    }

    #[test]
    fn each_queue_has_exactly_one_reader_for_every_number_of_queues_and_members() {
        for strategy in [Strategy::Average, Strategy::Circle] {
            for queue_count in 0..20 {
                for member_count in 1..12 {
                    let mut given: Vec<i32> =
                        ids(strategy, queue_count, member_count).into_iter().flatten().collect();
                    given.sort_unstable();
                    assert_eq!(given, (0..queue_count).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn a_stranger_gets_nothing_and_a_member_named_twice_counts_once() {
        let stranger = Text::from("stranger");
        assert!(assign(Strategy::Average, &queues(4), &members(2), &stranger).is_empty());
        let mut twice = members(2);
        twice.push(Text::from("client-0"));
        assert_eq!(assign(Strategy::Average, &queues(4), &twice, &Text::from("client-1")).len(), 2);
    }

    fn shared(queue_count: i32, member_count: usize, count: i32) -> Vec<Vec<i32>> {
        let (members, queues) = (members(member_count), queues(queue_count));
        let of = |member| share(Strategy::Average, &queues, &members, (member, count));
        members.iter().map(|member| of(member).iter().map(|queue| queue.queue_id).collect()).collect()
    }

    /// 3.10 #56.
    #[test]
    fn who_pops_shares_queues_with_the_members_before_it() {
        assert_eq!(shared(6, 3, 1), [vec![0, 1, 2, 3], vec![2, 3, 4, 5], vec![4, 5, 0, 1]]);
        for everything in [-1, 0, 2, 9] {
            assert_eq!(shared(6, 3, everything), [vec![-1], vec![-1], vec![-1]], "{everything}");
        }
        assert_eq!(shared(2, 4, 1), [vec![0], vec![1], vec![0], vec![1]], "nobody is left without");
        assert_eq!(shared(0, 4, 1), [const { Vec::<i32>::new() }; 4]);
        let stranger = Text::from("stranger");
        assert!(share(Strategy::Average, &queues(6), &members(4), (&stranger, 1)).is_empty());
    }

    #[test]
    fn an_unknown_strategy_has_no_name_here() {
        assert_eq!(Strategy::from_name("AVG"), Some(Strategy::Average));
        assert_eq!(Strategy::from_name("MACHINE_ROOM"), None);
    }
}
