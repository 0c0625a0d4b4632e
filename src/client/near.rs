//! A broker in the same process, as a client sees it: no name server, no socket.
//!
//! Invariants:
//! - everything above routes and links is the same for a near broker and a far one.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use troupemq_codec::Command;
use troupemq_codec::order::Answers;
use troupemq_codec::route::{ClusterInfo, TopicRouteData};

use super::error::ClientError;
use super::link::{Heard, LinkOrder, SendWaiter};

/// What to do with a request of the broker; it must not wait.
pub(crate) type OnCall = Box<dyn Fn(Command) + Send>;

/// What a broker in this process answers together.
pub(crate) type NearAnswers = Answers<oneshot::Sender<Command>, SendWaiter>;

/// A broker in this process.
pub(crate) trait Near: fmt::Debug + Send + Sync {
    /// The route of a topic, as it is now.
    fn route(&self, topic: &str) -> Option<TopicRouteData>;

    /// All brokers it knows: itself.
    fn cluster(&self) -> ClusterInfo;

    /// Opens a connection: the broker takes what comes out of `orders`, gives its own requests to `calls` and answers
    /// that come together to `answers`.
    fn open(
        &self,
        orders: mpsc::Receiver<LinkOrder>,
        calls: OnCall,
        answers: mpsc::Sender<NearAnswers>,
    ) -> Result<(), ClientError>;
}

/// Gives answers to those who wait for them. To wake somebody from another thread costs more than all the rest of an
/// answer: the broker wakes this task once for many.
pub(crate) async fn give_out(mut answers: mpsc::Receiver<NearAnswers>, heard: Arc<Heard>) {
    while let Some(answered) = answers.recv().await {
        heard.note();
        // Who does not wait any more was cancelled or has timed out.
        answered
            .give(|(waiter, answer)| drop(waiter.send(answer)), |(waiter, sent)| drop(waiter.send(Ok(sent))));
    }
}
