//! A turn: the frames that came together, looked at in their order.
//!
//! Invariants:
//! - the sends of a turn are one batch, and one batch is in flight;
//! - requests begin in the order in which they came: what a client says last, before it leaves, it says as a member;
//! - a heart-beat is finished before the next request is looked at;
//! - what the peer sends is never trusted: a frame that cannot be parsed ends the connection.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use tokio::sync::oneshot;
use troupemq_codec::order::{EndOrder, SendOrder};
use troupemq_codec::request::{EndTransaction, SendMessageV2Header};
use troupemq_codec::{Command, CommandView, Request};

use crate::net::pipe::Waiter;
use crate::net::wire::{End, Wire};
use crate::net::{Answer, Call, Refusal};
use crate::router::Served;
use crate::send::{self, AnswerTo, Asked, Bench};
use crate::transaction::gathered::Gathered;

/// What serves the turns of one connection.
pub(crate) struct Turn {
    wire: Rc<Wire>,
    /// The sends of the current turn.
    bench: Option<Bench>,
    /// The transactions that it ends.
    ends: Gathered,
}

/// What is left to do with a frame that was looked at: mostly nothing, so it is small.
enum Left {
    Nothing,
    /// The bench is full.
    HandIn,
    /// A send for which somebody must be asked first.
    Send(Box<send::Left>),
    /// A request that is neither a send nor a pull.
    Call(Box<Command>),
}

/// The same of a send of this process.
pub(crate) enum LeftHere {
    /// The bench is full.
    HandIn,
    /// Somebody must be asked first.
    Send(Box<(SendMessageV2Header, Bytes, send::Left)>),
}

/// A frame, without its length word.
pub(crate) enum Came<'a> {
    /// It lies in the buffer of a read.
    Slice(&'a [u8]),
    /// It is owned, and its body stands apart.
    Owned { frame: Bytes, body: Bytes },
}

impl Came<'_> {
    fn frame(&self) -> &[u8] {
        match self {
            Came::Slice(frame) => frame,
            Came::Owned { frame, .. } => frame,
        }
    }

    fn body(&self, view: &CommandView<'_>) -> &[u8] {
        match self {
            Came::Slice(frame) => &frame[view.body.clone()],
            Came::Owned { body, .. } => body,
        }
    }

    /// A command that outlives the buffer of the read.
    pub(crate) fn command(&self, view: &CommandView<'_>) -> Command {
        match self {
            Came::Slice(frame) => Command::from_view(view, &Bytes::copy_from_slice(frame)),
            Came::Owned { frame, body } => Command::from_view(view, frame).with_body(body.clone()),
        }
    }
}

impl Turn {
    pub(crate) fn new(wire: &Rc<Wire>) -> Turn {
        Turn { wire: wire.clone(), bench: None, ends: Gathered::default() }
    }

    /// Something was read.
    pub(crate) fn begin(&self) {
        self.wire.begin_turn();
    }

    /// All of it was looked at: what is not answered yet is now, or will be by others.
    pub(crate) async fn end(&mut self) {
        if let Served::Broker(cast) = &self.wire.served {
            self.ends.hand_in(cast, &self.wire);
        }
        self.hand_in_sends().await;
        self.wire.end_turn();
        if let Some(bench) = self.bench.take() {
            self.wire.hall.benches.borrow_mut().give(bench);
        }
    }

    /// Looks at one frame.
    pub(crate) async fn look_at(&mut self, came: Came<'_>) -> Result<(), End> {
        match self.look_at_once(&came)? {
            Left::Nothing => Ok(()),
            Left::HandIn => {
                self.hand_in_sends().await;
                Ok(())
            }
            Left::Send(left) => self.take_in_later(&came, *left).await,
            Left::Call(command) => self.call(*command).await,
        }
    }

    /// As far as it goes without waiting: most frames are sends, and most sends need nobody to be asked.
    fn look_at_once(&mut self, came: &Came<'_>) -> Result<Left, End> {
        if self.takes_end_in(came) {
            return Ok(Left::Nothing);
        }
        // The view is large: it stays where it was read.
        let view = match CommandView::parse_like(came.frame(), &mut self.wire.hall.molds.borrow_mut()) {
            Ok(view) => view,
            Err(cause) => return Err(End::Garbage(cause)),
        };
        if view.is_response() {
            self.answered(came.command(&view));
            return Ok(Left::Nothing);
        }
        match &self.wire.served {
            Served::Broker(cast) if send::is_send(view.code) => {
                let bench = bench(&mut self.bench, &self.wire);
                let asked = Asked::Frame(&view, came.body(&view));
                match bench.take_in(cast, &self.wire, asked, AnswerTo::of(&view)) {
                    Some(left) => Ok(Left::Send(Box::new(left))),
                    None if bench.is_full() => Ok(Left::HandIn),
                    None => Ok(Left::Nothing),
                }
            }
            Served::Broker(cast) if crate::pull::is_pull(view.code) => {
                crate::pull::first(&self.wire, cast, came, &view);
                Ok(Left::Nothing)
            }
            Served::Broker(cast) if view.code == EndTransaction::CODE && self.wire.may_call() => {
                match self.ends.take_in(cast, &self.wire, &view, came.frame()) {
                    true => Ok(Left::Nothing),
                    false => Ok(Left::Call(Box::new(came.command(&view)))),
                }
            }
            _ => Ok(Left::Call(Box::new(came.command(&view)))),
        }
    }

    /// Takes a frame in if it is the end of a transaction which is like one before it; tells whether it did.
    fn takes_end_in(&mut self, came: &Came<'_>) -> bool {
        let Served::Broker(cast) = &self.wire.served else { return false };
        let mut molds = self.wire.hall.end_molds.borrow_mut();
        let like = molds.read(came.frame());
        like.is_some_and(|ending| self.wire.may_call() && self.ends.take_in_like(cast, &self.wire, &ending))
    }

    async fn take_in_later(&mut self, came: &Came<'_>, left: send::Left) -> Result<(), End> {
        let (Some(bench), Served::Broker(cast)) = (&mut self.bench, &self.wire.served) else { return Ok(()) };
        let view = CommandView::parse(came.frame()).map_err(End::Garbage)?;
        bench.take_in_later(cast, &self.wire, Asked::Frame(&view, came.body(&view)), left).await;
        if bench.is_full() {
            self.hand_in_sends().await;
        }
        Ok(())
    }

    /// Takes in a send of this process as far as that goes without waiting, which is mostly whole; gives back what is
    /// left to do.
    pub(crate) fn take_in(&mut self, order: SendOrder<Waiter>) -> Option<LeftHere> {
        let Served::Broker(cast) = &self.wire.served else { return None };
        let bench = bench(&mut self.bench, &self.wire);
        let SendOrder { header, body, waiter } = order;
        let asked = Asked::Here(&header, &body);
        match bench.take_in(cast, &self.wire, asked, AnswerTo::Here(waiter)) {
            Some(left) => Some(LeftHere::Send(Box::new((header, body, left)))),
            None => bench.is_full().then_some(LeftHere::HandIn),
        }
    }

    /// The same of an end of a transaction of this process: gives it back if it goes another way.
    pub(crate) fn take_in_end(
        &mut self,
        order: EndOrder<oneshot::Sender<Command>>,
    ) -> Option<EndOrder<oneshot::Sender<Command>>> {
        match &self.wire.served {
            Served::Broker(cast) if self.wire.may_call() => self.ends.take_in_here(cast, &self.wire, order),
            _ => Some(order),
        }
    }

    /// Does what was left.
    pub(crate) async fn finish(&mut self, left: LeftHere) {
        let (Some(bench), Served::Broker(cast)) = (&mut self.bench, &self.wire.served) else { return };
        if let LeftHere::Send(send) = left {
            let (header, body, left) = *send;
            bench.take_in_later(cast, &self.wire, Asked::Here(&header, &body), left).await;
        }
        if bench.is_full() {
            self.hand_in_sends().await;
        }
    }

    /// Stores the sends gathered so far and answers them.
    async fn hand_in_sends(&mut self) {
        if let (Some(bench), Served::Broker(cast)) = (&mut self.bench, &self.wire.served) {
            bench.hand_in(cast, &self.wire).await;
        }
    }

    fn answered(&self, answer: Command) {
        let waiter = self.wire.pending.borrow_mut().take(answer.opaque);
        match waiter {
            Some(waiter) => waiter.answer(Ok(answer)),
            None => tracing::debug!(opaque = answer.opaque, "an answer nobody waits for"),
        }
    }

    async fn call(&mut self, command: Command) -> Result<(), End> {
        let wire = self.wire.clone();
        if !wire.may_call() {
            let max = wire.hall.config.calls_max;
            let busy = Refusal::busy(format_args!("{max} requests of the connection in work"));
            answer(&wire, &command, Err(busy));
            return Ok(());
        }
        let in_order = wire.served.is_in_order(command.code);
        let mut answering = wire.served.answer(Call { command: command.clone(), link: wire.link.clone() });
        let begun = match in_order {
            true => Poll::Ready(answering.as_mut().await),
            false => poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await,
        };
        if let Poll::Ready(given) = begun {
            answer(&wire, &command, given);
            return Ok(());
        }
        wire.calls.set(wire.calls.get() + 1);
        actix::spawn(async move {
            let given = answering.await;
            wire.calls.set(wire.calls.get() - 1);
            answer(&wire, &command, given);
        });
        Ok(())
    }
}

/// The bench of the turn, leased when it is first needed.
fn bench<'a>(bench: &'a mut Option<Bench>, wire: &Wire) -> &'a mut Bench {
    bench.get_or_insert_with(|| wire.hall.benches.borrow_mut().take())
}

/// Writes the answer to `request`, unless it wants none.
pub(crate) fn answer(wire: &Rc<Wire>, request: &Command, given: Answer) {
    if let Some(answer) = answer_to(request, given) {
        wire.write_command(&answer);
    }
}

/// The answer to `request`, unless it wants none.
fn answer_to(request: &Command, given: Answer) -> Option<Command> {
    if request.is_oneway() {
        return None;
    }
    let command = match given {
        Ok(command) => command,
        Err(refusal) => Command::response(refusal.code).with_remark(refusal.remark),
    };
    Some(command.answering(request))
}
