//! Who waits for an answer, as a future: small, since each future that waits for another is moved with it.
//!
//! Invariants:
//! - it ends with the answer, with the end of the connection, or at its limit;
//! - of a request that is dropped nothing stays but its place in the table of who waits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use tokio::time::Instant;
use troupemq_codec::sent::Stored;
use troupemq_codec::{CodecError, ResponseCode, Sent};

use super::timers::Lent;
use super::{Link, LinkOrder};
use crate::client::error::ClientError;

/// An order that is to be handed over still; no error where the time is over before.
type Late<'a> = Pin<Box<dyn Future<Output = Result<(), Option<ClientError>>> + Send + 'a>>;

/// What a broker says of a send, if it can be read.
pub(super) type SaidOfSend = Result<Sent, CodecError>;

/// Waits for an answer.
pub(crate) struct Answering<'a, A> {
    link: &'a Link,
    request: &'static str,
    late: Option<Late<'a>>,
    answer: oneshot::Receiver<A>,
    timer: Option<Lent<'a>>,
    limits: (Instant, Instant),
}

/// Waits for where a message is stored.
pub(crate) enum Sending<'a> {
    /// For the answer itself.
    Plain(Answering<'a, SaidOfSend>),
    /// For a request that is signed, over the fields of a command.
    Signed(
        &'a Link,
        &'static str,
        Pin<Box<dyn Future<Output = Result<SaidOfSend, ClientError>> + Send + 'a>>,
    ),
}

impl<'a, A> Answering<'a, A> {
    /// To an order that was handed over, unless it is `late`, from a moment on until another.
    pub(super) fn new(
        link: &'a Link,
        request: &'static str,
        (late, answer): (Option<Box<LinkOrder>>, oneshot::Receiver<A>),
        limits: (Instant, Instant),
    ) -> Answering<'a, A> {
        let late = late.map(|order| Box::pin(link.hand_over_late(request, *order, limits.1)) as Late<'a>);
        Answering { link, request, late, answer, timer: None, limits }
    }
}

impl<A> Future for Answering<'_, A> {
    type Output = Result<A, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<A, ClientError>> {
        let (begun, until) = self.limits;
        if let Some(late) = &mut self.late {
            match ready!(late.as_mut().poll(context)) {
                Ok(()) => self.late = None,
                Err(Some(error)) => return Poll::Ready(Err(error)),
                Err(None) => return Poll::Ready(Err(self.link.given_up(self.request, until - begun))),
            }
        }
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(context) {
            // The next who waits needs it.
            self.timer = None;
            return Poll::Ready(answer.map_err(|_| self.link.disconnected(self.request)));
        }
        let link = self.link;
        ready!(self.timer.get_or_insert_with(|| link.timers.lend(until)).poll(context));
        Poll::Ready(Err(link.given_up(self.request, until - begun)))
    }
}

impl Future for Sending<'_> {
    type Output = Result<(ResponseCode, Stored), ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Sending::Plain(answering) => {
                let said = ready!(Pin::new(&mut *answering).poll(context))?;
                Poll::Ready(answering.link.stored(answering.request, said))
            }
            Sending::Signed(link, request, signed) => {
                let said = ready!(signed.as_mut().poll(context))?;
                Poll::Ready(link.stored(request, said))
            }
        }
    }
}
