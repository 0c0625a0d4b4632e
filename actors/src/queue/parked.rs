//! Pulls on hold: who waits for which offset, until when, and who is woken by what arrived.
//!
//! Invariants:
//! - everyone on hold has seen all units below `seen_to` and matched none of them;
//! - whoever is taken out is taken out once: woken, due, or refused because the hold is full;
//! - no clock, no actor and no I/O in here: time and units are arguments.

use std::sync::Arc;

use troupemq_codec::filter::MessageFilter;

/// All that is on hold at one queue.
#[derive(Debug)]
pub struct Parked<P> {
    entries: Vec<Entry<P>>,
    seen_to: i64,
    max: usize,
}

#[derive(Debug)]
struct Entry<P> {
    deadline: u64,
    filter: Arc<MessageFilter>,
    parcel: P,
}

/// One who wants to wait.
#[derive(Debug)]
pub struct Candidate<P> {
    /// The first offset it has not seen.
    pub from: i64,
    /// When it wants an answer at the latest, in monotonic nanoseconds.
    pub deadline: u64,
    /// What wakes it.
    pub filter: Arc<MessageFilter>,
    /// What is given back when it is woken.
    pub parcel: P,
}

/// What became of one who wanted to wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Admitted<P> {
    /// It waits.
    Waits,
    /// What it waits for is there already, or it is late: serve it now.
    Now(P),
    /// Too many wait.
    Full(P),
}

impl<P> Parked<P> {
    /// An empty hold for at most `max`, at a queue whose units end at `seen_to`.
    pub fn new(max: usize, seen_to: i64) -> Parked<P> {
        Parked { entries: Vec::new(), seen_to, max }
    }

    /// The offset behind the last unit that was looked at.
    pub fn seen_to(&self) -> i64 {
        self.seen_to
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the first wants its answer.
    pub fn next_deadline(&self) -> Option<u64> {
        self.entries.iter().map(|entry| entry.deadline).min()
    }

    /// Takes one in. `missed` are the units from its first unseen offset up to `seen_to`.
    pub fn admit(
        &mut self,
        candidate: Candidate<P>,
        now: u64,
        mut missed: impl Iterator<Item = Option<i64>>,
    ) -> Admitted<P> {
        let Candidate { from, deadline, filter, parcel } = candidate;
        let is_there = from < self.seen_to && missed.any(|tags_code| may_match(&filter, tags_code));
        if is_there || deadline <= now {
            return Admitted::Now(parcel);
        }
        if self.entries.len() >= self.max {
            return Admitted::Full(parcel);
        }
        self.entries.push(Entry { deadline, filter, parcel });
        Admitted::Waits
    }

    /// Takes out whom the new units match; one that tells no tags may match everybody. `to` is the offset behind the
    /// last of them.
    pub fn arrived(&mut self, to: i64, mut tags_codes: impl Iterator<Item = Option<i64>>) -> Vec<P> {
        let mut woken = Vec::new();
        // Nobody looks at units for nobody: they may be as old as the last who waited.
        while !self.entries.is_empty()
            && let Some(tags_code) = tags_codes.next()
        {
            woken.extend(take_if(&mut self.entries, |entry| may_match(&entry.filter, tags_code)));
        }
        self.seen_to = self.seen_to.max(to);
        woken
    }

    /// Takes out whose time is over.
    pub fn due(&mut self, now: u64) -> Vec<P> {
        take_if(&mut self.entries, |entry| entry.deadline <= now)
    }

    /// Takes out who is wanted, whatever they wait for.
    pub fn take_out(&mut self, wanted: impl Fn(&P) -> bool) -> Vec<P> {
        take_if(&mut self.entries, |entry| wanted(&entry.parcel))
    }

    /// Takes everyone out.
    pub fn drain(&mut self) -> Vec<P> {
        take_if(&mut self.entries, |_| true)
    }
}

fn may_match(filter: &MessageFilter, tags_code: Option<i64>) -> bool {
    tags_code.is_none_or(|code| filter.may_match(code))
}

fn take_if<P>(entries: &mut Vec<Entry<P>>, wanted: impl Fn(&Entry<P>) -> bool) -> Vec<P> {
    entries.extract_if(.., |entry| wanted(entry)).map(|entry| entry.parcel).collect()
}

#[cfg(test)]
mod tests {
    use troupemq_codec::filter::tags::tags_code;

    use super::*;

    fn candidate(parcel: u32, from: i64, deadline: u64, tags: &str) -> Candidate<u32> {
        Candidate { from, deadline, filter: Arc::new(MessageFilter::compile(None, tags).unwrap()), parcel }
    }

    fn none() -> std::iter::Empty<Option<i64>> {
        std::iter::empty()
    }

    #[test]
    fn a_parked_pull_wakes_only_by_a_unit_that_matches() {
        let mut parked = Parked::new(8, 10);
        assert_eq!(parked.admit(candidate(1, 10, 100, "TagA"), 0, none()), Admitted::Waits);
        assert_eq!(parked.admit(candidate(2, 10, 100, "*"), 0, none()), Admitted::Waits);
        assert_eq!(parked.arrived(11, [Some(tags_code("TagB"))].into_iter()), vec![2]);
        assert_eq!(parked.arrived(12, [Some(tags_code("TagA"))].into_iter()), vec![1]);
        assert!(parked.is_empty());
        assert_eq!(parked.seen_to(), 12);
    }

    #[test]
    fn a_unit_that_tells_no_tags_wakes_everybody() {
        let mut parked = Parked::new(8, 10);
        parked.admit(candidate(1, 10, 100, "TagA"), 0, none());
        assert_eq!(parked.arrived(11, [None].into_iter()), vec![1]);
    }

    #[test]
    fn what_came_before_it_was_parked_wakes_it_at_once() {
        let mut parked = Parked::new(8, 12);
        let missed = || [tags_code("TagB"), tags_code("TagA")].into_iter().map(Some);
        assert_eq!(parked.admit(candidate(1, 10, 100, "TagA"), 0, missed()), Admitted::Now(1));
        assert_eq!(parked.admit(candidate(2, 10, 100, "TagC"), 0, missed()), Admitted::Waits);
        assert_eq!(parked.admit(candidate(3, 12, 100, "*"), 0, none()), Admitted::Waits);
    }

    #[test]
    fn one_is_due_at_its_deadline_and_not_before() {
        let mut parked = Parked::new(8, 0);
        parked.admit(candidate(1, 0, 50, "*"), 0, none());
        parked.admit(candidate(2, 0, 40, "*"), 0, none());
        assert_eq!(parked.next_deadline(), Some(40));
        assert!(parked.due(39).is_empty());
        assert_eq!(parked.due(40), vec![2]);
        assert_eq!(parked.due(60), vec![1]);
        assert_eq!(parked.next_deadline(), None);
        assert_eq!(parked.admit(candidate(3, 0, 50, "*"), 50, none()), Admitted::Now(3));
    }

    #[test]
    fn who_is_wanted_is_taken_out_and_the_others_wait_on() {
        let mut parked = Parked::new(8, 0);
        (1..=3).for_each(|parcel| _ = parked.admit(candidate(parcel, 0, 50, "*"), 0, none()));
        assert_eq!(parked.take_out(|parcel| *parcel == 2), vec![2]);
        assert_eq!(parked.due(50), vec![1, 3]);
    }

    #[test]
    fn a_full_hold_says_so() {
        let mut parked = Parked::new(1, 0);
        parked.admit(candidate(1, 0, 50, "*"), 0, none());
        assert_eq!(parked.admit(candidate(2, 0, 50, "*"), 0, none()), Admitted::Full(2));
        assert_eq!(parked.drain(), vec![1]);
    }
}
