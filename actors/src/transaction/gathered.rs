//! Ends of transactions that came in one read: they go to the owner of the half messages together, and their answers
//! are one write.
//!
//! Invariants:
//! - an end that is refused, or whose half message may have to be read from the disk, is left to the router;
//! - every end that was taken in counts as a request in work until it is answered.

use std::collections::HashMap;
use std::rc::Rc;

use troupemq_codec::command::Head;
use troupemq_codec::request::{EndView, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK};
use troupemq_codec::{CommandView, HeaderForm, ResponseCode};

use super::answers::end;
use super::ends::{End, hand_on};
use super::groups::Refused;
use crate::cast::BrokerCast;
use crate::held::{Waiting, hold};
use crate::net::Refusal;
use crate::net::wire::Wire;
use crate::query::record_now;

/// The ends of one turn.
#[derive(Debug, Default)]
pub struct Gathered {
    ends: Vec<End>,
    /// Who asks for each of them.
    asked: Vec<Asked>,
}

/// Who asks for an end.
#[derive(Debug)]
struct Asked {
    opaque: i32,
    form: HeaderForm,
    is_oneway: bool,
}

impl Gathered {
    /// Takes an end in; tells whether it did, or whether it goes another way.
    pub fn take_in(&mut self, cast: &BrokerCast, wire: &Wire, view: &CommandView<'_>) -> bool {
        let Some(end) = read(cast, wire, view) else { return false };
        wire.calls.set(wire.calls.get() + 1);
        self.ends.push(end);
        self.asked.push(Asked { opaque: view.opaque, form: view.form, is_oneway: view.is_oneway() });
        true
    }

    /// Has what was taken in decided, and answers it.
    pub fn hand_in(&mut self, cast: &BrokerCast, wire: &Rc<Wire>) {
        if self.ends.is_empty() {
            return;
        }
        let (reply, waiting) = hold();
        let is_waited_for = self.asked.iter().any(|asked| !asked.is_oneway);
        hand_on(cast, std::mem::take(&mut self.ends), reply, is_waited_for);
        actix::spawn(answer_all(wire.clone(), std::mem::take(&mut self.asked), waiting));
    }
}

fn read(cast: &BrokerCast, wire: &Wire, view: &CommandView<'_>) -> Option<End> {
    let asked = EndView::read(view).ok()?;
    let at = u64::try_from(asked.log_offset).ok()?;
    match asked.outcome {
        // What cannot be read here is answered by who is asked the slower way.
        TRANSACTION_COMMIT | TRANSACTION_ROLLBACK => {
            let Some(mut kept) = wire.hall.halves.borrow_mut().take(at) else {
                return end(cast, &asked, record_now(&cast.log, at).ok()?).ok();
            };
            match kept.goes_by(&asked) {
                Some(goes) => {
                    let goes = Some(goes).filter(|_| asked.outcome == TRANSACTION_COMMIT);
                    Some(End { half: kept.record, queue_offset: asked.queue_offset, goes })
                }
                None => end(cast, &asked, Some(kept.record)).ok(),
            }
        }
        _ => None,
    }
}

/// One write for all that want an answer, when the last of them is decided.
async fn answer_all(wire: Rc<Wire>, asked: Vec<Asked>, waiting: Waiting<Refused>) {
    let refused = waiting.await.unwrap_or_else(|_lost| {
        (0..asked.len()).map(|place| (place, Refusal::gone("TransactionChecker"))).collect()
    });
    wire.calls.set(wire.calls.get().saturating_sub(asked.len()));
    if asked.iter().all(|asked| asked.is_oneway) {
        return;
    }
    let refused: HashMap<usize, Refusal> = refused.into_iter().collect();
    wire.write(|out| {
        for (place, Asked { opaque, form, .. }) in asked.iter().enumerate().filter(|(_, one)| !one.is_oneway)
        {
            let head = match refused.get(&place) {
                None => Head::answer(ResponseCode::SUCCESS, *opaque, *form),
                Some(refusal) => Head::answer(refusal.code, *opaque, *form).with_remark(&refusal.remark),
            };
            head.begin(out.tail()).finish(0);
        }
    });
}
