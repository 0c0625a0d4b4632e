//! `Saving`: when a table that lives in memory is written to its file, and who waits for that.
//!
//! Invariants:
//! - one save of a table runs at a time; changes made meanwhile are covered by one save after it;
//! - a waiter is given back by the first save that began after its change, never by an earlier one;
//! - a save that failed is told to its waiters and tried again, until one after it does: nobody has to change the
//!   table once more for what it holds to reach the disk.
//!
//! The save itself runs on the blocking pool of the arbiter, with a snapshot of the table; see [`in_background`]. An
//! actor that has one table and tells no more than whether it was saved is a `Saves`.

use std::fmt::Display;
use std::time::Duration;

use actix::fut::{ActorFutureExt, wrap_future};
use actix::{Actor, AsyncContext, Context};
use troupemq_codec::ResponseCode;
use troupemq_store::StoreError;

use crate::held::Held;
use crate::net::Refusal;

/// Time from a save that failed to the next try.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What whoever waits for a save is told.
pub type Saved = Result<(), Refusal>;

/// The state of the saves of one table. `W` is who waits, with what it is told afterwards.
#[derive(Debug)]
pub struct Saving<W> {
    runs: bool,
    changed: bool,
    /// Whether the last save that ended has failed.
    failed: bool,
    /// Waiters of the save that runs.
    covered: Vec<W>,
    /// Waiters of the save after it.
    waiting: Vec<W>,
}

impl<W> Default for Saving<W> {
    fn default() -> Saving<W> {
        Saving { runs: false, changed: false, failed: false, covered: Vec::new(), waiting: Vec::new() }
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

    /// The save that ran has ended so; gives those it was for.
    pub fn ended(&mut self, saved: &Saved) -> Vec<W> {
        self.runs = false;
        self.failed = saved.is_err();
        std::mem::take(&mut self.covered)
    }

    /// Has these go with the next save too, in front of those that wait for it, unless one that is alike does.
    pub fn put_back(&mut self, waiters: impl Iterator<Item = W>, is_alike: impl Fn(&W, &W) -> bool) {
        let late: Vec<W> =
            waiters.filter(|late| !self.waiting.iter().any(|one| is_alike(one, late))).collect();
        self.waiting.splice(0..0, late);
    }

    /// Time has passed since a save failed: what it was to write counts as changed, unless a save after it did it.
    pub fn again(&mut self) {
        self.changed |= self.failed && !self.runs;
    }

    /// Whether nothing runs and nothing is left to save.
    pub fn is_done(&self) -> bool {
        !self.runs && !self.changed && !self.failed
    }
}

/// An actor whose table is in a file. It notes changes in its `Saving` and calls `save`; the rest goes by itself.
pub(crate) trait Saves: Actor<Context = Context<Self>> {
    /// When its table is saved.
    fn saving(&mut self) -> &mut Saving<Held<Saved>>;

    /// What writes the table as it is now; it is run where it may block.
    fn writer(&self) -> impl FnOnce() -> Result<(), StoreError> + Send + use<Self>;

    /// Begins a save if there is something to save and none runs.
    fn save(&mut self, context: &mut Context<Self>) {
        if !self.saving().begins() {
            return;
        }
        let then = |actor: &mut Self, saved: Saved, context: &mut Context<Self>| {
            if let Err(refusal) = &saved {
                tracing::error!(remark = refusal.remark, again_after = ?AGAIN_AFTER, "a table was not saved");
            }
            actor.saving().ended(&saved).into_iter().for_each(|waiter| waiter.answer(saved.clone()));
            actor.save(context);
        };
        let again = |actor: &mut Self, context: &mut Context<Self>| {
            actor.saving().again();
            actor.save(context);
        };
        in_background(context, self.writer(), then, again);
    }
}

/// Runs a save where it may block, then gives its result to the actor. Some time after one that failed, `again` is
/// called, which is to call [`Saving::again`] and begin another.
pub fn in_background<A, E>(
    context: &mut A::Context,
    save: impl FnOnce() -> Result<(), E> + Send + 'static,
    then: impl FnOnce(&mut A, Saved, &mut A::Context) + 'static,
    again: fn(&mut A, &mut A::Context),
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
    let told = wrap_future::<_, A>(saved).map(move |saved, actor, context: &mut A::Context| {
        if saved.is_err() {
            context.run_later(AGAIN_AFTER, again);
        }
        then(actor, saved, context);
    });
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
        assert_eq!(saving.ended(&Ok(())), ['a']);
        assert!(saving.begins());
        assert_eq!(saving.ended(&Ok(())), ['b', 'c']);
        assert!(saving.is_done() && !saving.begins());
    }

    #[test]
    fn who_comes_late_waits_for_the_save_that_covers_its_change() {
        let mut saving = Saving::default();
        saving.changed_for('a');
        assert!(saving.begins());
        saving.wait_with('A', |waiter| *waiter == 'a');
        saving.wait_with('b', |waiter| *waiter == 'B');
        assert_eq!(saving.ended(&Ok(())), ['a', 'A']);
        assert!(saving.begins());
        assert_eq!(saving.ended(&Ok(())), ['b']);
    }

    #[test]
    fn a_save_that_failed_is_tried_again_without_a_new_change() {
        let failure = Err(not_saved("no room"));
        let mut saving = Saving::default();
        saving.changed_for('a');
        assert!(saving.begins());
        assert_eq!(saving.ended(&failure), ['a']);
        assert!(!saving.begins() && !saving.is_done(), "not at once");
        saving.again();
        assert!(saving.begins());
        assert_eq!(saving.ended(&Ok(())), []);
        saving.again();
        assert!(!saving.begins() && saving.is_done());
    }

    #[test]
    fn a_save_after_the_one_that_failed_makes_the_next_try_needless() {
        let mut saving = Saving::<char>::default();
        saving.changed();
        assert!(saving.begins());
        saving.ended(&Err(not_saved("no room")));
        saving.changed();
        assert!(saving.begins());
        saving.again();
        assert_eq!(saving.ended(&Ok(())), []);
        assert!(!saving.begins());
    }

    #[test]
    fn a_change_nobody_waits_for_is_saved_too() {
        let mut saving = Saving::<char>::default();
        saving.changed();
        assert!(!saving.is_done() && saving.begins());
        assert!(!saving.is_done());
        assert_eq!(saving.ended(&Ok(())), []);
        assert!(saving.is_done());
    }
}
