//! Stands for TLS in a client that was built without it: there is none, so nobody can ask for it.
//!
//! Invariants:
//! - no value of [`Security`] exists.

use tokio::net::TcpStream;

use super::error::ClientError;

/// A connection that nobody on the way can read.
pub(crate) type Secret = TcpStream;

/// What every handshake of a client needs.
#[derive(Debug)]
pub(crate) enum Security {}

impl Security {
    /// Makes a connection secret.
    pub(crate) async fn over(&self, _address: &str, _stream: TcpStream) -> Result<Secret, ClientError> {
        match *self {}
    }
}
