//! Shares the queues of a topic out among the members of a group.
//!
//! Invariants:
//! - every member computes the same shares from the same lists, in whatever order it got them;
//! - the shares cover all queues and do not overlap; they differ by at most one queue.
//!
//! RocketMQ's name for it: `AllocateMessageQueueAveragely`.

use super::queue::Queue;

/// The share of one member; empty if it is not among the members.
pub(crate) fn share(queues: &[Queue], members: &[impl AsRef<str>], own: &str) -> Vec<Queue> {
    let mut queues = queues.to_vec();
    queues.sort();
    queues.dedup();
    let mut members: Vec<_> = members.iter().map(AsRef::as_ref).collect();
    members.sort_unstable();
    members.dedup();
    let Some(index) = members.iter().position(|member| *member == own) else { return Vec::new() };
    let each = queues.len() / members.len();
    let more = queues.len() % members.len();
    let from = index * each + index.min(more);
    let len = each + usize::from(index < more);
    queues[from..from + len].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(count: i32) -> Vec<Queue> {
        let queue = |queue_id| Queue { topic: "T".into(), broker_name: "b".into(), queue_id };
        (0..count).map(queue).collect()
    }

    fn ids(share: &[Queue]) -> Vec<i32> {
        share.iter().map(|queue| queue.queue_id).collect()
    }

    #[test]
    fn shares_are_those_of_the_java_client() {
        let members = ["c", "a", "b"];
        let of = |count, own| ids(&share(&queues(count), &members, own));
        assert_eq!([of(8, "a"), of(8, "b"), of(8, "c")], [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
        assert_eq!([of(2, "a"), of(2, "b"), of(2, "c")], [vec![0], vec![1], vec![]]);
        assert_eq!(of(8, "d"), Vec::<i32>::new());
    }

    #[test]
    fn shares_cover_all_queues_and_never_overlap() {
        for count in 0..20 {
            for size in 1..9 {
                let members: Vec<_> = (0..size).map(|n| format!("m{n}")).collect();
                let mut all = Vec::new();
                members.iter().for_each(|member| all.extend(share(&queues(count), &members, member)));
                assert_eq!(all, queues(count), "{count} queues, {size} members");
            }
        }
    }
}
