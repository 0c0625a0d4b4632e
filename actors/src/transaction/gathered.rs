//! Ends of transactions that came in one read: they go to the owner of the half messages together, and their answers
//! are one write.
//!
//! Invariants:
//! - an end that is refused, or whose half message may have to be read from the disk, is left to the router;
//! - every end that was taken in counts as a request in work until it is answered.

use std::rc::Rc;

use troupemq_codec::command::Head;
use troupemq_codec::request::{EndView, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK};
use troupemq_codec::{CommandView, HeaderForm, ResponseCode};

use super::answers::end;
use super::ends::{End, hand_on};
use crate::cast::BrokerCast;
use crate::held::Waiting;
use crate::net::Refusal;
use crate::net::wire::Wire;
use crate::query::record_now;

/// The ends of one turn.
#[derive(Debug, Default)]
pub struct Gathered {
    ends: Vec<End>,
    asked: Vec<Asked>,
}

/// Who waits for the answer to an end.
#[derive(Debug)]
struct Asked {
    opaque: i32,
    form: HeaderForm,
    is_oneway: bool,
    waiting: Waiting<Result<(), Refusal>>,
}

impl Gathered {
    /// Takes an end in; tells whether it did, or whether it goes another way.
    pub fn take_in(&mut self, cast: &BrokerCast, wire: &Wire, view: &CommandView<'_>) -> bool {
        let Some((end, waiting)) = read(cast, view) else { return false };
        wire.calls.set(wire.calls.get() + 1);
        self.ends.push(end);
        let (opaque, form, is_oneway) = (view.opaque, view.form, view.is_oneway());
        self.asked.push(Asked { opaque, form, is_oneway, waiting });
        true
    }

    /// Has what was taken in decided, and answers it.
    pub fn hand_in(&mut self, cast: &BrokerCast, wire: &Rc<Wire>) {
        if self.ends.is_empty() {
            return;
        }
        hand_on(cast, std::mem::take(&mut self.ends));
        actix::spawn(answer_all(wire.clone(), std::mem::take(&mut self.asked)));
    }
}

fn read(cast: &BrokerCast, view: &CommandView<'_>) -> Option<(End, Waiting<Result<(), Refusal>>)> {
    let asked = EndView::read(view).ok()?;
    let at = u64::try_from(asked.log_offset).ok()?;
    match asked.outcome {
        // What cannot be read here is answered by who is asked the slower way.
        TRANSACTION_COMMIT | TRANSACTION_ROLLBACK => end(cast, &asked, record_now(&cast.log, at).ok()?).ok(),
        _ => None,
    }
}

async fn answer_all(wire: Rc<Wire>, asked: Vec<Asked>) {
    let count = asked.len();
    let mut answers = Vec::with_capacity(count);
    for Asked { opaque, form, is_oneway, waiting } in asked {
        let outcome = waiting.await.unwrap_or_else(|_lost| Err(Refusal::gone("TransactionChecker")));
        if !is_oneway {
            answers.push((opaque, form, outcome));
        }
    }
    wire.calls.set(wire.calls.get().saturating_sub(count));
    if answers.is_empty() {
        return;
    }
    wire.write(|out| {
        for (opaque, form, outcome) in &answers {
            let head = match outcome {
                Ok(()) => Head::answer(ResponseCode::SUCCESS, *opaque, *form),
                Err(refusal) => Head::answer(refusal.code, *opaque, *form).with_remark(&refusal.remark),
            };
            head.begin(out.tail()).finish(0);
        }
    });
}
