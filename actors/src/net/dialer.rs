//! The dialer: connections this node makes, with the same `Link` as those it accepts.
//!
//! Invariants:
//! - a dialled connection that breaks is not made again here: its owner decides when.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use tokio::net::TcpStream;

use crate::net::Link;
use crate::net::sessions::{Sessions, TakeIn};
use crate::router::Served;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody answered in time.
    #[error("no connection to {to} within {timeout_ms} ms")]
    TimedOut {
        /// The address dialled.
        to: SocketAddr,
        /// How long it was tried.
        timeout_ms: u128,
    },
    /// The system refused.
    #[error("no connection to {to}: {cause}")]
    Failed {
        /// The address dialled.
        to: SocketAddr,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The node stops.
    #[error("the node stops")]
    Stopping,
}

/// Connects to `to`; the session runs on the arbiter of `sessions`, requests of the peer go to `served`.
pub async fn dial(
    sessions: &Addr<Sessions>,
    to: SocketAddr,
    served: Served,
    timeout: Duration,
) -> Result<Arc<Link>, DialError> {
    let failed = |cause| DialError::Failed { to, cause };
    let stream = tokio::time::timeout(timeout, TcpStream::connect(to))
        .await
        .map_err(|_elapsed| DialError::TimedOut { to, timeout_ms: timeout.as_millis() })?
        .and_then(TcpStream::into_std)
        .map_err(failed)?;
    let taken =
        sessions.send(TakeIn { stream, served, seat: None }).await.map_err(|_| DialError::Stopping)?;
    taken.map_err(failed)
}
