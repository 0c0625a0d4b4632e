//! Ends of transactions that came in one read: they go to the owner of the half messages together, and their answers
//! are one write.
//!
//! Invariants:
//! - an end that is refused, or whose half message may have to be read from the disk, is left to the router;
//! - every end that was taken in counts as a request in work until it is answered.

use std::rc::Rc;

use troupemq_codec::request::{
    EndTransaction, EndTransactionHeader, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK,
};
use troupemq_codec::{Command, Request, ResponseCode};

use super::answers::end;
use super::ends::{End, hand_on};
use crate::cast::BrokerCast;
use crate::held::Waiting;
use crate::net::Refusal;
use crate::net::turn::answer_to;
use crate::net::wire::Wire;
use crate::query::{is_near, near_record};

/// The ends of one turn.
#[derive(Debug, Default)]
pub struct Gathered {
    ends: Vec<End>,
    asked: Vec<(Command, Waiting<Result<(), Refusal>>)>,
}

impl Gathered {
    /// Takes a request in; gives it back if it is no end of a transaction, or one that goes another way.
    pub fn take_in(&mut self, cast: &BrokerCast, wire: &Wire, request: Command) -> Option<Command> {
        let Some((end, waiting)) = read(cast, &request) else { return Some(request) };
        wire.calls.set(wire.calls.get() + 1);
        self.ends.push(end);
        self.asked.push((request, waiting));
        None
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

fn read(cast: &BrokerCast, request: &Command) -> Option<(End, Waiting<Result<(), Refusal>>)> {
    if request.code != EndTransaction::CODE {
        return None;
    }
    let header: EndTransactionHeader = request.header().ok()?;
    let at = u64::try_from(header.log_offset).ok().filter(|at| is_near(&cast.log, *at))?;
    match header.outcome {
        // What cannot be read here is answered by who is asked the slower way.
        TRANSACTION_COMMIT | TRANSACTION_ROLLBACK => {
            end(cast, &header, near_record(&cast.log, at).ok()?).ok()
        }
        _ => None,
    }
}

async fn answer_all(wire: Rc<Wire>, asked: Vec<(Command, Waiting<Result<(), Refusal>>)>) {
    let mut answers = Vec::with_capacity(asked.len());
    let count = asked.len();
    for (request, waiting) in asked {
        let outcome = waiting.await.unwrap_or_else(|_lost| Err(Refusal::gone("TransactionChecker")));
        let given = outcome.map(|()| Command::response(ResponseCode::SUCCESS));
        answers.extend(answer_to(&request, given));
    }
    wire.calls.set(wire.calls.get().saturating_sub(count));
    wire.write_commands(&answers);
}
