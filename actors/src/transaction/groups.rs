//! Who waits for ends of transactions that came together: told once, when each of them is done. Plain state.
//!
//! Invariants:
//! - a group is answered once, and as soon as nothing of it is left;
//! - an end that went well costs its group nothing but a number: what is told is which were refused, and why.

use std::collections::VecDeque;

use crate::held::Held;
use crate::net::Refusal;

/// Which of the ends that came together were refused, by their places.
pub(super) type Refused = Vec<(usize, Refusal)>;

/// An end of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    group: u64,
    place: usize,
}

/// The groups of which something is left.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Number of the first group.
    first: u64,
    /// In the order in which they came, which is about the order in which they end.
    groups: VecDeque<Group>,
}

#[derive(Debug)]
struct Group {
    left: usize,
    refused: Refused,
    /// Who waits; nobody any more, if it was told.
    reply: Option<Held<Refused>>,
}

impl Groups {
    /// A group of so many ends; they are told apart by their places in it.
    pub(super) fn begin(
        &mut self,
        ends: usize,
        reply: Held<Refused>,
    ) -> impl Iterator<Item = Member> + use<> {
        let group = self.first + self.groups.len() as u64;
        if ends == 0 {
            reply.answer(Vec::new());
        } else {
            self.groups.push_back(Group { left: ends, refused: Vec::new(), reply: Some(reply) });
        }
        (0..ends).map(move |place| Member { group, place })
    }

    /// An end is done, or refused.
    pub(super) fn settle(&mut self, member: Member, outcome: Result<(), Refusal>) {
        let at = member.group.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(group) = at.and_then(|at| self.groups.get_mut(at)) else { return };
        if let Err(refusal) = outcome {
            group.refused.push((member.place, refusal));
        }
        group.left = group.left.saturating_sub(1);
        if group.left > 0 {
            return;
        }
        if let Some(reply) = group.reply.take() {
            reply.answer(std::mem::take(&mut group.refused));
        }
        while self.groups.front().is_some_and(|group| group.reply.is_none()) {
            self.groups.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::held::{Waiting, hold};

    fn told(waiting: &mut Waiting<Refused>) -> Option<Vec<usize>> {
        match pin!(waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(refused) => Some(refused.expect("it is told").iter().map(|(at, _)| *at).collect()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_group_is_told_when_its_last_end_is_done_whatever_the_order() {
        let mut groups = Groups::default();
        let (one, mut of_one) = hold();
        let (two, mut of_two) = hold();
        let one: Vec<Member> = groups.begin(3, one).collect();
        let two: Vec<Member> = groups.begin(1, two).collect();
        groups.settle(two[0], Ok(()));
        assert_eq!(told(&mut of_two), Some(vec![]), "it does not wait for the group in front of it");
        groups.settle(one[2], Err(Refusal::gone("the log")));
        groups.settle(one[0], Ok(()));
        assert_eq!(told(&mut of_one), None);
        groups.settle(one[1], Ok(()));
        assert_eq!(told(&mut of_one), Some(vec![2]));
        assert!(groups.groups.is_empty(), "nothing is kept of what was told");
        let (next, mut of_next) = hold();
        let next: Vec<Member> = groups.begin(1, next).collect();
        groups.settle(one[1], Ok(()));
        assert_eq!(told(&mut of_next), None, "an end of a group that is over is none of the next one");
        groups.settle(next[0], Ok(()));
        assert_eq!(told(&mut of_next), Some(vec![]));
    }

    #[test]
    fn a_group_without_ends_is_told_at_once() {
        let (reply, mut waiting) = hold();
        assert_eq!(Groups::default().begin(0, reply).count(), 0);
        assert_eq!(told(&mut waiting), Some(vec![]));
    }
}
