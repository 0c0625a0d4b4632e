//! `Held`: the right, and the duty, to answer one request later and once.
//!
//! Invariants:
//! - an answer is given at most once: answering consumes the `Held`;
//! - whoever waits learns of a `Held` that was dropped: it gets `Lost`, never silence;
//! - it may be answered on another thread than the one that waits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// The answering side of one request.
#[derive(Debug)]
pub struct Held<T>(oneshot::Sender<T>);

/// The waiting side of one request; a future of the answer.
#[derive(Debug)]
pub struct Waiting<T>(oneshot::Receiver<T>);

/// The one who should have answered is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the part that should have answered is gone")]
pub struct Lost;

/// A new pair of an answer to give and an answer to wait for.
pub fn hold<T>() -> (Held<T>, Waiting<T>) {
    let (answer, wait) = oneshot::channel();
    (Held(answer), Waiting(wait))
}

impl<T> Held<T> {
    /// Gives the answer. A waiter that has gone meanwhile is no error: nobody wants the answer any more.
    pub fn answer(self, value: T) {
        // Its only failure is that waiter.
        let _ = self.0.send(value);
    }

    /// Whether nobody waits any more.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Future for Waiting<T> {
    type Output = Result<T, Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.map_err(|_| Lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reaches_the_one_who_waits() {
        let (held, waiting) = hold();
        held.answer(7);
        assert_eq!(block_on(waiting), Ok(7));
    }

    #[test]
    fn a_dropped_answer_is_lost_not_silent() {
        let (held, waiting) = hold::<u8>();
        drop(held);
        assert_eq!(block_on(waiting), Err(Lost));
    }

    #[test]
    fn an_answer_nobody_waits_for_is_seen_as_abandoned() {
        let (held, waiting) = hold::<u8>();
        assert!(!held.is_abandoned());
        drop(waiting);
        assert!(held.is_abandoned());
        held.answer(1);
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().expect("a plain runtime").block_on(future)
    }
}
