//! `Saving`: when a table that lives in memory is written to its file, and who waits for that.
//!
//! Invariants:
//! - one save of a table runs at a time; changes made meanwhile are covered by one save after it;
//! - a waiter is given back by the first save that began after its change, never by an earlier one;
//! - a save that failed is not repeated by itself: the next change writes the whole table again.
//!
//! The save itself runs on the blocking pool of the arbiter, with a snapshot of the table; see [`in_background`].

use std::fmt::Display;

use actix::fut::{ActorFutureExt, wrap_future};
use actix::{Actor, AsyncContext};
use troupemq_codec::ResponseCode;

use crate::net::Refusal;

/// The state of the saves of one table. `W` is who waits, with what it is told afterwards.
#[derive(Debug)]
pub struct Saving<W> {
    runs: bool,
    changed: bool,
    /// Waiters of the save that runs.
    covered: Vec<W>,
    /// Waiters of the save after it.
    waiting: Vec<W>,
}

impl<W> Default for Saving<W> {
    fn default() -> Saving<W> {
        Saving { runs: false, changed: false, covered: Vec::new(), waiting: Vec::new() }
    }
}

impl<W> Saving<W> {
    /// The table changed, nobody waits for it to be saved.
    pub fn changed(&mut self) {
        self.changed = true;
    }

    /// The table changed, and somebody waits for it to be saved.
    pub fn changed_for(&mut self, waiter: W) {
        self.changed = true;
        self.waiting.push(waiter);
    }

    /// Somebody waits for a change that was made before: for the save that runs, if it covers the change (it has
    /// a waiter of that kind), else for the next one.
    pub fn wait_with(&mut self, waiter: W, is_alike: impl Fn(&W) -> bool) {
        if self.runs && self.covered.iter().any(is_alike) {
            self.covered.push(waiter);
        } else {
            self.changed_for(waiter);
        }
    }

    /// Whether a save is to begin now. If so, it counts as begun: take the snapshot before the next change.
    pub fn begins(&mut self) -> bool {
        if self.runs || !self.changed {
            return false;
        }
        self.runs = true;
        self.changed = false;
        self.covered = std::mem::take(&mut self.waiting);
        true
    }

    /// The save that ran has ended, well or not; gives those it was for.
    pub fn ended(&mut self) -> Vec<W> {
        self.runs = false;
        std::mem::take(&mut self.covered)
    }

    /// Whether nothing runs and nothing is left to save.
    pub fn is_done(&self) -> bool {
        !self.runs && !self.changed
    }
}

/// Runs a save where it may block, then gives its result to the actor.
pub fn in_background<A, E>(
    context: &mut A::Context,
    save: impl FnOnce() -> Result<(), E> + Send + 'static,
    then: impl FnOnce(&mut A, Result<(), Refusal>, &mut A::Context) + 'static,
) where
    A: Actor,
    A::Context: AsyncContext<A>,
    E: Display + Send + 'static,
{
    let saved = async move {
        match actix_rt::task::spawn_blocking(save).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(not_saved(error)),
            Err(lost) => Err(not_saved(lost)),
        }
    };
    let told = wrap_future::<_, A>(saved).map(|saved, actor, context| then(actor, saved, context));
    context.spawn(told);
}

fn not_saved(why: impl Display) -> Refusal {
    Refusal::new(ResponseCode::SYSTEM_ERROR, format!("changed in memory, but not saved: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_during_a_save_are_covered_by_one_save_after_it() {
        let mut saving = Saving::default();
        assert!(!saving.begins(), "nothing changed");
        saving.changed_for('a');
        assert!(saving.begins());
        saving.changed_for('b');
        saving.changed_for('c');
        assert!(!saving.begins(), "one runs");
        assert_eq!(saving.ended(), ['a']);
        assert!(saving.begins());
        assert_eq!(saving.ended(), ['b', 'c']);
        assert!(saving.is_done() && !saving.begins());
    }

    #[test]
    fn who_comes_late_waits_for_the_save_that_covers_its_change() {
        let mut saving = Saving::default();
        saving.changed_for('a');
        assert!(saving.begins());
        saving.wait_with('A', |waiter| *waiter == 'a');
        saving.wait_with('b', |waiter| *waiter == 'B');
        assert_eq!(saving.ended(), ['a', 'A']);
        assert!(saving.begins());
        assert_eq!(saving.ended(), ['b']);
    }

    #[test]
    fn a_change_nobody_waits_for_is_saved_too() {
        let mut saving = Saving::<char>::default();
        saving.changed();
        assert!(!saving.is_done() && saving.begins());
        assert!(!saving.is_done());
        assert_eq!(saving.ended(), []);
        assert!(saving.is_done());
    }
}
