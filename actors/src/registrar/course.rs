//! What the registrar does next for each name server.
//!
//! Invariants:
//! - one thing at a time is on its way to a name server, so that an older state never overtakes a newer one;
//! - after anything went wrong, and on every new connection, everything is registered: nothing that may have
//!   been lost is relied on;
//! - changes that come while something is on its way are sent together after it.

use std::collections::BTreeSet;

use troupemq_codec::Text;

use crate::net::LinkId;

/// Pause after the first failure, in ms; it doubles with each one after it.
const FIRST_PAUSE_MS: i64 = 500;
/// The longest pause, in ms: a name server that comes back is found within it.
const PAUSE_MAX_MS: i64 = 5000;
/// Changed topics that are sent one by one; beyond that everything is registered.
const CHANGES_MAX: usize = 256;

/// The state towards one name server.
#[derive(Debug)]
pub(super) struct Course {
    period_ms: i64,
    wants: Wants,
    is_busy: bool,
    link: Option<LinkId>,
    failures: u32,
    /// When it may be tried again.
    not_before_ms: i64,
    /// When everything is registered again.
    due_ms: i64,
}

/// What the name server does not know yet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wants {
    Nothing,
    Some(BTreeSet<Text>),
    All,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Register these topics.
    RegisterSome(Vec<Text>),
    /// Register everything; connect first, if there is no connection.
    RegisterAll,
}

impl Course {
    /// A name server that knows nothing; everything is registered again each `period_ms`.
    pub(super) fn new(period_ms: i64) -> Course {
        Course {
            period_ms,
            wants: Wants::All,
            is_busy: false,
            link: None,
            failures: 0,
            not_before_ms: i64::MIN,
            due_ms: i64::MIN,
        }
    }

    /// The next step, if one is due; it counts as begun then, and `done` or `failed` has to follow.
    pub(super) fn next(&mut self, now_ms: i64) -> Option<Step> {
        if now_ms >= self.due_ms {
            self.wants = Wants::All;
        }
        if self.is_busy || now_ms < self.not_before_ms {
            return None;
        }
        let step = match std::mem::replace(&mut self.wants, Wants::Nothing) {
            Wants::Nothing => return None,
            Wants::Some(topics) if self.link.is_some() => Step::RegisterSome(topics.into_iter().collect()),
            Wants::Some(_) | Wants::All => Step::RegisterAll,
        };
        if step == Step::RegisterAll {
            self.due_ms = now_ms.saturating_add(self.period_ms);
        }
        self.is_busy = true;
        Some(step)
    }

    /// When `next` has to be asked again at the latest.
    pub(super) fn wake_ms(&self) -> i64 {
        match self.wants {
            _ if self.is_busy => i64::MAX,
            Wants::Nothing => self.due_ms,
            _ => self.not_before_ms,
        }
    }

    /// How many steps must be done before a change that comes now is known; none without a connection.
    pub(super) fn steps_to_tell(&self) -> u8 {
        match self.link {
            None => 0,
            Some(_) => 1 + u8::from(self.is_busy),
        }
    }

    /// Topics changed.
    pub(super) fn changed(&mut self, topics: &[Text]) {
        self.wants = match std::mem::replace(&mut self.wants, Wants::All) {
            Wants::All => Wants::All,
            Wants::Nothing => Wants::of(topics.iter().cloned().collect()),
            Wants::Some(mut others) => {
                others.extend(topics.iter().cloned());
                Wants::of(others)
            }
        };
    }

    /// Everything has to be registered anew: the broker's own permission or role changed.
    pub(super) fn all_changed(&mut self) {
        self.wants = Wants::All;
    }

    /// The step that was begun is done, over this connection.
    pub(super) fn done(&mut self, link: LinkId) {
        self.is_busy = false;
        self.failures = 0;
        self.link = Some(link);
    }

    /// The step that was begun failed; gives the pause in ms before the next try.
    pub(super) fn failed(&mut self, now_ms: i64) -> i64 {
        let pause_ms = (FIRST_PAUSE_MS << self.failures.min(16)).min(PAUSE_MAX_MS);
        self.is_busy = false;
        self.failures = self.failures.saturating_add(1);
        self.not_before_ms = now_ms.saturating_add(pause_ms);
        self.wants = Wants::All;
        self.link = None;
        pause_ms
    }

    /// A connection is lost; tells whether it was the one in use.
    pub(super) fn lost(&mut self, link: LinkId) -> bool {
        let is_own = self.link == Some(link);
        if is_own {
            self.link = None;
            self.wants = Wants::All;
        }
        is_own
    }
}

impl Wants {
    fn of(topics: BTreeSet<Text>) -> Wants {
        if topics.len() > CHANGES_MAX { Wants::All } else { Wants::Some(topics) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_MS: i64 = 30_000;
    const LINK: LinkId = LinkId(1);

    fn names(names: &[&str]) -> Vec<Text> {
        names.iter().map(|name| Text::from(*name)).collect()
    }

    fn registered() -> Course {
        let mut course = Course::new(PERIOD_MS);
        assert_eq!(course.next(0), Some(Step::RegisterAll));
        course.done(LINK);
        course
    }

    #[test]
    fn everything_is_registered_at_the_start_and_after_each_period() {
        let mut course = registered();
        assert_eq!(course.next(PERIOD_MS - 1), None);
        assert_eq!(course.wake_ms(), PERIOD_MS);
        assert_eq!(course.next(PERIOD_MS), Some(Step::RegisterAll));
        assert_eq!(course.next(PERIOD_MS), None, "one thing at a time");
        course.done(LINK);
        assert_eq!(course.next(2 * PERIOD_MS), Some(Step::RegisterAll));
    }

    #[test]
    fn a_change_is_sent_at_once_and_alone() {
        let mut course = registered();
        course.changed(&names(&["T"]));
        assert!(course.wake_ms() <= 10);
        assert_eq!(course.next(10), Some(Step::RegisterSome(names(&["T"]))));
        course.done(LINK);
        assert_eq!(course.next(11), None);
    }

    #[test]
    fn changes_during_a_step_go_together_after_it() {
        let mut course = registered();
        course.changed(&names(&["A"]));
        course.next(10);
        course.changed(&names(&["C"]));
        course.changed(&names(&["B", "C"]));
        assert_eq!(course.next(11), None);
        assert_eq!(course.wake_ms(), i64::MAX);
        course.done(LINK);
        assert_eq!(course.next(12), Some(Step::RegisterSome(names(&["B", "C"]))));
    }

    #[test]
    fn many_changes_are_everything() {
        let mut course = registered();
        let many: Vec<Text> = (0..=CHANGES_MAX).map(|number| Text::from(format!("T{number}"))).collect();
        course.changed(&many);
        assert_eq!(course.next(10), Some(Step::RegisterAll));
        course.done(LINK);
        course.all_changed();
        assert_eq!(course.next(11), Some(Step::RegisterAll));
    }

    #[test]
    fn after_a_failure_everything_is_registered_with_growing_pauses() {
        let mut course = registered();
        course.changed(&names(&["A"]));
        course.next(10);
        assert_eq!(course.failed(10), 500);
        assert_eq!(course.next(509), None);
        assert_eq!(course.wake_ms(), 510);
        assert_eq!(course.next(510), Some(Step::RegisterAll));
        let pauses: Vec<i64> = (0..8).map(|_| course.failed(510)).collect();
        assert_eq!(pauses, [1000, 2000, 4000, 5000, 5000, 5000, 5000, 5000]);
        assert_eq!(course.next(5510), Some(Step::RegisterAll));
        course.done(LINK);
        course.changed(&names(&["A"]));
        assert_eq!(course.next(5511), Some(Step::RegisterSome(names(&["A"]))));
        assert_eq!(course.failed(5511), 500, "a success forgets the failures before it");
    }

    #[test]
    fn a_lost_connection_registers_everything_at_once() {
        let mut course = registered();
        assert!(!course.lost(LinkId(9)), "an older connection means nothing");
        assert_eq!(course.next(5), None);
        assert!(course.lost(LINK));
        assert_eq!(course.next(5), Some(Step::RegisterAll));
    }
}
