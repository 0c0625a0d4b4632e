//! A broker in the same process, as a client sees it: no name server, no socket.
//!
//! Invariants:
//! - everything above routes and links is the same for a near broker and a far one.

use std::fmt;

use tokio::sync::mpsc;
use troupemq_codec::Command;
use troupemq_codec::route::{ClusterInfo, TopicRouteData};

use super::error::ClientError;
use super::link::LinkOrder;

/// What to do with a request of the broker; it must not wait.
pub(crate) type OnCall = Box<dyn Fn(Command) + Send>;

/// A broker in this process.
pub(crate) trait Near: fmt::Debug + Send + Sync {
    /// The route of a topic, as it is now.
    fn route(&self, topic: &str) -> Option<TopicRouteData>;

    /// All brokers it knows: itself.
    fn cluster(&self) -> ClusterInfo;

    /// Opens a connection: the broker takes what comes out of `orders` and gives its own requests to `calls`.
    fn open(&self, orders: mpsc::Receiver<LinkOrder>, calls: OnCall) -> Result<(), ClientError>;
}
