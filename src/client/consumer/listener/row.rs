//! Messages that one task gives to a listener's function, one after the other.
//!
//! To start a task and to hear of its end costs more than most functions do. While they return at once, one task calls
//! several; as soon as they do not, each gets a task of its own.
//!
//! Invariants:
//! - a function that waits holds up nothing: it goes on in a task of its own, the next one is called at once;
//! - behind one that took long none is called in the same task: what is left of the row is handed back;
//! - a panic is one of its message alone.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::Outcome;
use crate::client::message::Received;

/// Messages of a row.
pub(super) const ROW_MAX: usize = 32;
/// How long the functions of a row may take together before the rest is left to other tasks.
const QUICK: Duration = Duration::from_micros(100);
/// Rows without a function that waits, one after the other, that are wanted at most before longer ones are tried.
const WANTED_MAX: usize = 256;

/// A function that waits for something.
pub(super) type Waiting = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What became of a message of a row.
pub(super) enum Said {
    /// What its function returned.
    Outcome(Outcome),
    /// Its function panicked, with these words.
    Panicked(String),
    /// Its function has begun and goes on.
    Waits(Waiting),
}

/// What became of a row.
pub(super) struct Row {
    /// Of its first messages, in order; the others were not begun.
    pub(super) said: Vec<Said>,
    /// Whether they took so little time that a longer row can be tried.
    pub(super) is_quick: bool,
}

impl Row {
    /// A function that had waited returned.
    pub(super) fn of_one(outcome: Outcome) -> Row {
        Row { said: vec![Said::Outcome(outcome)], is_quick: false }
    }
}

/// How many messages a row has: more while functions return at once.
#[derive(Debug)]
pub(super) struct Pace {
    messages: usize,
    /// Quick rows, one after the other.
    quick: usize,
    /// How many of them are wanted before the next row is longer: more with each time that was in vain.
    wanted: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { messages: 1, quick: 0, wanted: 1 }
    }
}

impl Pace {
    /// Messages of the next row.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    /// A row of so many messages ended.
    pub(super) fn ended(&mut self, row: &Row, messages: usize) {
        let is_whole = row.said.len() == messages;
        let waits = row.said.iter().any(|said| matches!(said, Said::Waits(_)));
        if waits || !is_whole || !row.is_quick {
            let was_in_vain = messages > 1;
            self.wanted = if was_in_vain { (self.wanted * 2).min(WANTED_MAX) } else { self.wanted };
            (self.messages, self.quick) = (1, 0);
            return;
        }
        self.quick += 1;
        if self.quick >= self.wanted {
            (self.messages, self.quick) = ((self.messages * 2).min(ROW_MAX), 0);
            self.wanted = (self.wanted / 2).max(1);
        }
    }
}

/// Gives one message to its function and waits for what it returns. A panic of the function is one of this.
pub(super) async fn give_one<F, Fut>(function: &F, message: Received) -> Row
where
    F: Fn(Received) -> Fut,
    Fut: Future<Output = Outcome>,
{
    let begun = Instant::now();
    let said = vec![Said::Outcome(function(message).await)];
    Row { said, is_quick: begun.elapsed() < QUICK }
}

/// Gives messages to their function, as many as it is quick with. Nothing is waited for.
pub(super) fn give<F, Fut>(function: &F, messages: Vec<Received>, context: &mut Context<'_>) -> Row
where
    F: Fn(Received) -> Fut,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let begun = Instant::now();
    let (mut said, mut is_quick) = (Vec::with_capacity(messages.len()), true);
    // One place for all that return at once, which functions that wait take with them.
    let mut place: Pin<Box<Option<Fut>>> = Box::pin(None);
    for message in messages {
        let first = catch_unwind(AssertUnwindSafe(|| {
            place.set(Some(function(message)));
            let called = place.as_mut().as_pin_mut().map(|future| future.poll(context));
            if let Some(Poll::Ready(_)) = &called {
                place.set(None);
            }
            called
        }));
        said.push(match first {
            Ok(Some(Poll::Ready(outcome))) => Said::Outcome(outcome),
            Ok(_) => Said::Waits(go_on(std::mem::replace(&mut place, Box::pin(None)))),
            Err(payload) => {
                place = Box::pin(None);
                Said::Panicked(words(&*payload))
            }
        });
        is_quick = begun.elapsed() < QUICK;
        if !is_quick {
            break;
        }
    }
    Row { said, is_quick }
}

/// The rest of a function that waits.
fn go_on<Fut: Future<Output = Outcome> + Send + 'static>(mut place: Pin<Box<Option<Fut>>>) -> Waiting {
    Box::pin(async move {
        match place.as_mut().as_pin_mut() {
            Some(function) => function.await,
            None => Outcome::Again,
        }
    })
}

/// What a panic says.
fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use tokio::sync::Notify;

    use super::super::tests::message;
    use super::*;

    fn row(count: i64, function: impl Fn(Received) -> Waiting) -> Row {
        give(&function, (0..count).map(message).collect(), &mut Context::from_waker(Waker::noop()))
    }

    fn spoken(row: &Row) -> String {
        let word = |said: &Said| match said {
            Said::Outcome(Outcome::Done) => 'd',
            Said::Outcome(_) => 'o',
            Said::Panicked(words) => words.chars().next().expect("it says something"),
            Said::Waits(_) => 'w',
        };
        row.said.iter().map(word).collect()
    }

    /// The clock stands still: however slow the machine is, each row is quick.
    #[tokio::test(start_paused = true)]
    async fn a_function_that_waits_or_panics_holds_up_none_of_its_row() {
        let turn = Arc::new(Notify::new());
        let in_turn = turn.clone();
        let mut given = row(6, move |message| match message.queue_offset() {
            1 => {
                let turn = in_turn.clone();
                Box::pin(async move {
                    turn.notified().await;
                    Outcome::GiveUp
                })
            }
            2 => panic!("before it has begun"),
            3 => Box::pin(async { panic!("{} it has begun", "when") }),
            4 => Box::pin(async { Outcome::Again }),
            _ => Box::pin(async { Outcome::Done }),
        });
        assert_eq!((spoken(&given).as_str(), given.is_quick), ("dwbwod", true));
        let Said::Panicked(words) = &given.said[3] else { panic!("it panicked") };
        assert_eq!(words, "when it has begun");
        let Said::Waits(waiting) = given.said.swap_remove(1) else { panic!("it waits") };
        turn.notify_one();
        assert_eq!(waiting.await, Outcome::GiveUp);
    }

    #[test]
    fn rows_grow_while_functions_return_at_once_and_each_one_in_vain_is_tried_later_again() {
        let done = |messages| Row {
            said: (0..messages).map(|_| Said::Outcome(Outcome::Done)).collect(),
            is_quick: true,
        };
        let (mut pace, mut grown) = (Pace::default(), vec![]);
        for _ in 0..7 {
            grown.push(pace.messages());
            pace.ended(&done(pace.messages()), pace.messages());
        }
        assert_eq!(grown, [1, 2, 4, 8, 16, ROW_MAX, ROW_MAX]);
        let waits = Row { said: vec![Said::Waits(Box::pin(async { Outcome::Done }))], is_quick: true };
        let slow = Row { is_quick: false, ..done(2) };
        for (row, messages) in [(&waits, 1), (&slow, 2), (&done(3), 4)] {
            let mut pace = Pace { messages, quick: 0, wanted: 1 };
            pace.ended(row, messages);
            let wanted = if messages > 1 { 2 } else { 1 };
            assert_eq!((pace.messages(), pace.wanted), (1, wanted));
            pace.ended(&done(1), 1);
            assert_eq!(pace.messages(), 3 - wanted);
        }
    }
}
