//! Consumers whose messages go to an actix actor.
//!
//! Invariants:
//! - the actor answers each message with what becomes of it; an actor that is gone lets it come again;
//! - an actor whose mailbox is full is waited for, with no more messages than the consumer's concurrency.

use actix::{Message, Recipient};

use crate::client::consumer::ConsumerBuilder;
use crate::client::consumer::listener::{Listener, Outcome};
use crate::client::error::ClientError;
use crate::client::message::Received;

/// A message of a consumer, sent to an actor.
#[derive(Debug, Clone, Message)]
#[rtype(result = "Outcome")]
pub struct Incoming(pub Received);

impl ConsumerBuilder {
    /// Joins the group and sends each message to an actor; as many are on their way as
    /// [`ConsumerBuilder::concurrency`] says.
    ///
    /// # Errors
    /// As [`ConsumerBuilder::stream`].
    pub async fn deliver_to(self, actor: Recipient<Incoming>) -> Result<Listener, ClientError> {
        self.listen(move |message| {
            let sent = actor.send(Incoming(message));
            async move { sent.await.unwrap_or(Outcome::Again) }
        })
        .await
    }
}
