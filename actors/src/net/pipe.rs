//! A connection within the process: what a program that embeds the broker asks, with no socket between.
//!
//! Invariants:
//! - a peer in this process is served like any other: the same session, the same turns, the same answers;
//! - the answers of a turn wake one task of the peer, not each of those who wait;
//! - sends, ends of transactions and their answers change hands as they are, no frame is written for them; of other
//!   requests the head is written by who asks, and no body is copied;
//! - when the session ends, everybody who waits learns of it: their waiting ends with an error.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::rc::Rc;

use tokio::sync::{mpsc, oneshot};
use troupemq_codec::command::Molds;
use troupemq_codec::order::{Answers, Outgoing};
use troupemq_codec::{CodecError, Command, CommandView, Sent};

use crate::net::outbound::Outbound;
use crate::net::turn::{Came, Turn};
use crate::net::wire::{End, Wire};

/// Requests taken in at once.
const TAKEN_MAX: usize = 256;

/// Who waits for what becomes of a send; an error is an answer that cannot be read, which only a socket brings.
pub type Waiter = oneshot::Sender<Result<Sent, CodecError>>;

/// A request or an answer of a peer in this process.
pub type PipeOrder = Outgoing<oneshot::Sender<Command>, Waiter>;

/// Answers for a peer in this process.
pub type PipeAnswers = Answers<oneshot::Sender<Command>, Waiter>;

/// What to do with a request of the broker to its peer; it runs on the threads of the broker and must not wait.
pub type Calls = Box<dyn Fn(Command) + Send>;

/// The broker's ends of a connection within the process.
pub struct Pipe {
    /// What the peer sends; its end is the end of the connection.
    pub orders: mpsc::Receiver<PipeOrder>,
    /// Where requests of the broker go.
    pub calls: Calls,
    /// Where the answers of a turn go. What has no room, or finds nobody there, goes to those who wait themselves.
    pub answers: mpsc::Sender<PipeAnswers>,
}

/// Who waits for answers, and where requests go.
pub struct Replies {
    waiting: RefCell<HashMap<i32, oneshot::Sender<Command>>>,
    calls: Calls,
    answers: mpsc::Sender<PipeAnswers>,
    /// What heads of answers looked like.
    molds: RefCell<Molds>,
}

impl Replies {
    /// Nobody waits yet.
    pub fn new(calls: Calls, answers: mpsc::Sender<PipeAnswers>) -> Replies {
        Replies { waiting: RefCell::default(), calls, answers, molds: RefCell::default() }
    }

    /// Hands every frame to who waits for it.
    pub(crate) fn hand_out(&self, out: &mut Outbound) -> io::Result<()> {
        let mut answered = Vec::new();
        let outcome = self.match_all(out, &mut answered);
        if !answered.is_empty() {
            self.give(Answers::Commands(answered));
        }
        outcome
    }

    fn match_all(
        &self,
        out: &mut Outbound,
        answered: &mut Vec<(oneshot::Sender<Command>, Command)>,
    ) -> io::Result<()> {
        let (mut molds, mut waiting) = (self.molds.borrow_mut(), self.waiting.borrow_mut());
        while let Some((frame, body)) = out.take_frame() {
            let view = CommandView::parse_like(&frame, &mut molds)
                .map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause))?;
            let command = Command::from_view(&view, &frame).with_body(body);
            if !command.is_response() {
                (self.calls)(command);
            } else if let Some(waiter) = waiting.remove(&command.opaque) {
                answered.push((waiter, command));
            }
        }
        Ok(())
    }

    /// Gives answers to those who wait for them.
    pub(crate) fn give(&self, answers: PipeAnswers) {
        let left = match answers.len() {
            0 | 1 => answers,
            _ => match self.answers.try_send(answers) {
                Ok(()) => return,
                Err(undelivered) => undelivered.into_inner(),
            },
        };
        // Who does not wait any more was cancelled or has timed out.
        left.give(
            |(waiter, command)| drop(waiter.send(command)),
            |(waiter, sent)| drop(waiter.send(Ok(sent))),
        );
    }

    /// Ends all waiting.
    pub(crate) fn forget_all(&self) {
        self.waiting.borrow_mut().clear();
    }

    fn expect(&self, opaque: i32, waiter: oneshot::Sender<Command>) {
        self.waiting.borrow_mut().insert(opaque, waiter);
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pipe")
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replies({} waiting)", self.waiting.borrow().len())
    }
}

/// Serves what comes through until one side ends.
pub(crate) async fn serve(mut orders: mpsc::Receiver<PipeOrder>, wire: Rc<Wire>) -> End {
    let mut turn = Turn::new(&wire);
    let mut taken = Vec::with_capacity(TAKEN_MAX);
    loop {
        let count = tokio::select! {
            biased;
            () = wire.ended() => return End::ByUs,
            count = orders.recv_many(&mut taken, TAKEN_MAX) => count,
        };
        if count == 0 {
            return End::ByPeer;
        }
        turn.begin();
        let outcome = look_at_all(&mut turn, &wire, &mut taken).await;
        turn.end().await;
        if let Err(end) = outcome {
            return end;
        }
        if wire.is_full() {
            wire.drained().await;
        }
    }
}

async fn look_at_all(turn: &mut Turn, wire: &Wire, taken: &mut Vec<PipeOrder>) -> Result<(), End> {
    for order in taken.drain(..) {
        let mut order = match order {
            Outgoing::Frame(order) => order,
            Outgoing::Send(order) => {
                if let Some(left) = turn.take_in(order) {
                    turn.finish(left).await;
                }
                continue;
            }
            Outgoing::End(order) => match turn.take_in_end(order) {
                None => continue,
                Some(order) => order.framed(),
            },
        };
        if let (Some(waiter), Some(replies)) = (order.waiter.take(), wire.replies()) {
            replies.expect(order.opaque, waiter);
        }
        turn.look_at(Came::Owned { frame: order.frame(), body: order.body }).await?;
    }
    Ok(())
}
