//! Ends of transactions that came together go to the owner of the half messages together: those of one read, and their
//! answers are one write; and those one-way ends of all connections of an arbiter that could be read at once.
//!
//! Invariants:
//! - an end that is refused, or whose half message may have to be read from the disk, is left to the router;
//! - of those that are gathered none goes in front of one that came before it on its connection;
//! - every end that was taken in counts as a request in work of its connection until it is decided.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;
use troupemq_codec::command::Head;
use troupemq_codec::ending::Ending;
use troupemq_codec::order::{Answers, EndOrder};
use troupemq_codec::request::{EndView, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK};
use troupemq_codec::{Command, CommandView, HeaderForm, ResponseCode};

use super::answers::end;
use super::ends::{End, hand_on};
use super::groups::Refused;
use crate::cast::BrokerCast;
use crate::held::{Waiting, hold};
use crate::net::Refusal;
use crate::net::wire::{Hall, Wire};
use crate::query::record_now;

/// One-way ends of the connections of an arbiter.
#[derive(Debug, Default)]
pub struct Oneway {
    ends: Vec<End>,
    /// The connection of each of them.
    wires: Vec<Rc<Wire>>,
}

/// The ends of one turn that are answered.
#[derive(Debug, Default)]
pub struct Gathered {
    ends: Vec<End>,
    /// Who asks for each of them.
    asked: Vec<Asked>,
}

/// Who asks for an end.
#[derive(Debug)]
enum Asked {
    Frame {
        opaque: i32,
        form: HeaderForm,
    },
    /// Somebody in this process.
    Here(oneshot::Sender<Command>),
}

impl Gathered {
    /// Takes an end in; tells whether it did, or whether it goes another way.
    pub fn take_in(
        &mut self,
        cast: &Arc<BrokerCast>,
        wire: &Rc<Wire>,
        view: &CommandView<'_>,
        frame: &[u8],
    ) -> bool {
        let Ok(asked) = EndView::read(view) else { return false };
        wire.hall.end_molds.borrow_mut().learn(view, frame, &asked);
        let Some(end) = read(cast, wire, &asked) else { return false };
        self.take(cast, wire, end, (view.opaque, view.form, view.is_oneway()));
        true
    }

    /// The same of one that was read like one before it.
    pub fn take_in_like(&mut self, cast: &Arc<BrokerCast>, wire: &Rc<Wire>, ending: &Ending<'_>) -> bool {
        let Some(end) = read(cast, wire, &ending.end) else { return false };
        self.take(cast, wire, end, (ending.opaque, HeaderForm::Json, ending.is_oneway));
        true
    }

    fn take(
        &mut self,
        cast: &Arc<BrokerCast>,
        wire: &Rc<Wire>,
        end: End,
        (opaque, form, is_oneway): (i32, HeaderForm, bool),
    ) {
        wire.calls.set(wire.calls.get() + 1);
        if !is_oneway {
            self.ends.push(end);
            self.asked.push(Asked::Frame { opaque, form });
            return;
        }
        let mut oneway = wire.hall.oneway_ends.borrow_mut();
        if oneway.ends.is_empty() {
            // It runs when the connections were looked at that can be read now.
            actix::spawn(decide_oneway(cast.clone(), wire.hall.clone()));
        }
        oneway.ends.push(end);
        oneway.wires.push(wire.clone());
    }

    /// Takes an end of this process in, or gives it back.
    pub fn take_in_here(
        &mut self,
        cast: &BrokerCast,
        wire: &Wire,
        order: EndOrder<oneshot::Sender<Command>>,
    ) -> Option<EndOrder<oneshot::Sender<Command>>> {
        let Some(end) = read(cast, wire, &EndView::from(&order.header)) else { return Some(order) };
        wire.calls.set(wire.calls.get() + 1);
        self.ends.push(end);
        self.asked.push(Asked::Here(order.waiter));
        None
    }

    /// Has what was taken in decided, and answers it.
    pub fn hand_in(&mut self, cast: &BrokerCast, wire: &Rc<Wire>) {
        if self.ends.is_empty() {
            return;
        }
        if let Some(decided) = wire.hall.oneway_ends.borrow_mut().hand_in(cast) {
            actix::spawn(decided);
        }
        let (reply, waiting) = hold();
        hand_on(cast, std::mem::take(&mut self.ends), reply, true);
        actix::spawn(answer_all(wire.clone(), std::mem::take(&mut self.asked), waiting));
    }
}

impl Oneway {
    /// Has what was taken in decided; none if there is nothing. What is answered is done when all of it is.
    fn hand_in(&mut self, cast: &BrokerCast) -> Option<impl Future<Output = ()> + use<>> {
        if self.ends.is_empty() {
            return None;
        }
        let (reply, waiting) = hold();
        hand_on(cast, std::mem::take(&mut self.ends), reply, false);
        let wires = std::mem::take(&mut self.wires);
        Some(async move {
            // Nobody wants to know what was refused.
            let _ = waiting.await;
            wires.iter().for_each(|wire| wire.calls.set(wire.calls.get().saturating_sub(1)));
        })
    }
}

async fn decide_oneway(cast: Arc<BrokerCast>, hall: Rc<Hall>) {
    let decided = hall.oneway_ends.borrow_mut().hand_in(&cast);
    if let Some(decided) = decided {
        decided.await;
    }
}

fn read(cast: &BrokerCast, wire: &Wire, asked: &EndView<'_>) -> Option<End> {
    let at = u64::try_from(asked.log_offset).ok()?;
    match asked.outcome {
        // What cannot be read here is answered by who is asked the slower way.
        TRANSACTION_COMMIT | TRANSACTION_ROLLBACK => {
            let Some(mut kept) = wire.hall.halves.borrow_mut().take(at) else {
                return end(cast, asked, record_now(&cast.log, at).ok()?).ok();
            };
            match kept.goes_by(asked) {
                Some(goes) => {
                    let goes = Some(goes).filter(|_| asked.outcome == TRANSACTION_COMMIT);
                    Some(End { half: kept.record, queue_offset: asked.queue_offset, goes })
                }
                None => end(cast, asked, Some(kept.record)).ok(),
            }
        }
        _ => None,
    }
}

/// One write for all, when the last of them is decided.
async fn answer_all(wire: Rc<Wire>, asked: Vec<Asked>, waiting: Waiting<Refused>) {
    let refused = waiting.await.unwrap_or_else(|_lost| {
        (0..asked.len()).map(|place| (place, Refusal::gone("TransactionChecker"))).collect()
    });
    wire.calls.set(wire.calls.get().saturating_sub(asked.len()));
    let refused: HashMap<usize, Refusal> = refused.into_iter().collect();
    let mut here = Vec::new();
    let mut frames = Vec::with_capacity(asked.len());
    for (place, asked) in asked.into_iter().enumerate() {
        match asked {
            Asked::Frame { opaque, form } => frames.push((opaque, form, refused.get(&place))),
            Asked::Here(waiter) => here.push((waiter, response_to(refused.get(&place)))),
        }
    }
    if let Some(replies) = wire.replies().filter(|_| !here.is_empty()) {
        replies.give(Answers::Commands(here));
    }
    if frames.is_empty() {
        return;
    }
    wire.write(|out| {
        for (opaque, form, refusal) in frames {
            let head = match refusal {
                None => Head::answer(ResponseCode::SUCCESS, opaque, form),
                Some(refusal) => Head::answer(refusal.code, opaque, form).with_remark(&refusal.remark),
            };
            head.begin(out.tail()).finish(0);
        }
    });
}

fn response_to(refusal: Option<&Refusal>) -> Command {
    match refusal {
        None => Command::response(ResponseCode::SUCCESS),
        Some(refusal) => Command::response(refusal.code).with_remark(refusal.remark.clone()),
    }
}
