//! Poison: a node that can no longer be trusted refuses writes and stops in order.
//!
//! Invariants:
//! - the first cause stays; later ones are only logged;
//! - once poisoned a node never becomes healthy again: only a new start recovers.
//!
//! What poisons: a panic of a core actor (actix never restarts one), an fsync that failed, a store that
//! reports a broken invariant.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// The node's one cause of death; cheap to clone and to ask.
#[derive(Debug, Clone, Default)]
pub struct Poison(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    cause: OnceLock<String>,
    tripped: Notify,
}

impl Poison {
    /// A healthy node.
    pub fn new() -> Poison {
        Poison::default()
    }

    /// Poisons the node; the first cause wins.
    pub fn trip(&self, cause: impl Into<String>) {
        let cause = cause.into();
        tracing::error!(cause, "the node is poisoned and stops");
        // A later cause finds the place taken.
        let _ = self.0.cause.set(cause);
        self.0.tripped.notify_waiters();
        self.0.tripped.notify_one();
    }

    /// Why the node is dying, if it is.
    pub fn cause(&self) -> Option<&str> {
        self.0.cause.get().map(String::as_str)
    }

    /// Waits until the node is poisoned.
    pub async fn tripped(&self) -> &str {
        loop {
            let notified = self.0.tripped.notified();
            if let Some(cause) = self.0.cause.get() {
                return cause;
            }
            notified.await;
        }
    }

    /// A guard for a part that the node cannot live without: a panic that unwinds through it poisons the node.
    pub fn guard(&self, part: &'static str) -> Vital {
        Vital { part, poison: self.clone() }
    }
}

/// Held by a core actor or thread; trips the poison when the holder panics.
#[derive(Debug)]
pub struct Vital {
    part: &'static str,
    poison: Poison,
}

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.poison.trip(format!("{} panicked", self.part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        let poison = Poison::new();
        assert_eq!(poison.cause(), None);
        poison.trip("disk");
        poison.trip("later");
        assert_eq!(poison.cause(), Some("disk"));
    }

    #[test]
    fn a_panic_through_a_guard_poisons_and_a_plain_drop_does_not() {
        let poison = Poison::new();
        drop(poison.guard("flush"));
        assert_eq!(poison.cause(), None);
        let inner = poison.clone();
        let died = std::thread::spawn(move || {
            let _vital = inner.guard("commit log");
            panic!("expected by the test");
        });
        assert!(died.join().is_err());
        assert_eq!(poison.cause(), Some("commit log panicked"));
    }

    #[test]
    fn who_waits_for_the_poison_is_woken() {
        let poison = Poison::new();
        let other = poison.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a plain runtime");
        let thread = std::thread::spawn(move || other.trip("gone"));
        assert_eq!(runtime.block_on(poison.tripped()), "gone");
        thread.join().expect("the tripping thread ends");
    }
}
