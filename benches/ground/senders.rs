//! Many sends under way at a time, each a request of its own.
//!
//! Invariants:
//! - returns when every message is stored.

use tokio::task::JoinSet;
use troupemq::{Message, Producer};

/// How many sends are under way.
pub(crate) const SENDERS: usize = 256;

/// Sends `count` messages, rounded down to what all senders do alike.
pub(crate) async fn send(
    producer: &Producer,
    count: usize,
    message: impl Fn() -> Message + Clone + Send + 'static,
) {
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let (producer, message) = (producer.clone(), message.clone());
        senders.spawn(async move {
            for _ in 0..count / SENDERS {
                producer.send(message()).await.expect("a message is stored");
            }
        });
    }
    senders.join_all().await;
}
