//! What those have in common who deliver what waits: when they look again, and how they stop.
//!
//! Invariants:
//! - one look is to come at a time: one that is set anew comes instead of the one before;
//! - who stops is told so when nothing is under way any more.

use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle};

use crate::held::{Held, Waiting, hold};

/// The next look of an actor, if it is later.
#[derive(Debug, Default)]
pub(crate) struct Later(Option<SpawnHandle>);

impl Later {
    /// Has an actor look after so many milliseconds.
    pub(crate) fn look_in<A, M>(&mut self, context: &mut Context<A>, look: M, ms: i64)
    where
        A: Actor<Context = Context<A>> + Handler<M>,
        M: Message + 'static,
    {
        let later = context.notify_later(look, Duration::from_millis(ms.unsigned_abs()));
        if let Some(before) = self.0.replace(later) {
            context.cancel_future(before);
        }
    }
}

/// Whether an actor is to stop, and who waits until it has.
#[derive(Debug, Default)]
pub(crate) struct Stopping {
    is_asked: bool,
    waits: Option<Held<()>>,
}

impl Stopping {
    /// Asks it to stop; what is answered is done when nothing is under way any more.
    pub(crate) fn ask(&mut self, is_idle: bool) -> Waiting<()> {
        let (held, waiting) = hold();
        (self.is_asked, self.waits) = (true, Some(held));
        if is_idle {
            self.is_idle();
        }
        waiting
    }

    /// Whether it is asked to stop.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Nothing is under way any more.
    pub(crate) fn is_idle(&mut self) {
        if let Some(held) = self.waits.take() {
            held.answer(());
        }
    }
}
