//! `Watchdog`: notices a core actor that is gone and poisons the node.
//!
//! Invariants:
//! - a core actor that ended while the node runs is found within one period; one that panicked is known at
//!   once, by its `Vital` guard;
//! - once the stop has begun nothing is watched: parts end in order then.

use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};

use crate::poison::Poison;

/// How often the cast is looked at.
const PERIOD: Duration = Duration::from_secs(1);

// ---- messages

/// Sent by the node when it begins to stop: parts that end now are no failure.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StandDown;

// ---- actor

/// Knows the core of the cast by whether each part still lives.
pub struct Watchdog {
    parts: Vec<Part>,
    poison: Poison,
}

struct Part {
    name: &'static str,
    lives: Box<dyn Fn() -> bool>,
}

impl Watchdog {
    /// A watchdog with nothing to watch yet.
    pub fn new(poison: Poison) -> Watchdog {
        Watchdog { parts: Vec::new(), poison }
    }

    /// Watches an actor.
    pub fn watch<A: Actor>(&mut self, name: &'static str, actor: Addr<A>) {
        self.parts.push(Part { name, lives: Box::new(move || actor.connected()) });
    }

    fn look(&mut self) {
        for part in &self.parts {
            if !(part.lives)() {
                self.poison.trip(format!("{} ended", part.name));
            }
        }
        let poisoned = self.poison.cause().is_some();
        if poisoned {
            self.parts.clear();
        }
    }
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.parts.iter().map(|part| part.name)).finish()
    }
}

impl Actor for Watchdog {
    type Context = Context<Watchdog>;

    fn started(&mut self, context: &mut Context<Watchdog>) {
        context.run_interval(PERIOD, |watchdog, _| watchdog.look());
    }
}

impl Handler<StandDown> for Watchdog {
    type Result = ();

    fn handle(&mut self, _: StandDown, _: &mut Context<Watchdog>) {
        self.parts.clear();
    }
}
