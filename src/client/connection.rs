//! How a connection to a server is made: names, addresses, TLS.
//!
//! Invariants:
//! - a connection takes no longer than it may, whatever it waits for; the error names the server;
//! - a host's name is resolved anew each time it is dialled.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::credentials::Credentials;
use super::error::ClientError;
use super::names::Names;
use super::near::Near;
use super::tls::{Secret, Security};

/// Bytes to a server and back, over TLS or not; see [`Client::connection`](super::Client::connection).
pub trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// How connections are made.
#[derive(Debug)]
pub(crate) struct Dialling {
    /// How long one may take.
    pub(crate) within: Duration,
    /// Who knows the addresses of hosts.
    pub(crate) names: Names,
    /// The broker of this process, if it is the one.
    pub(crate) near: Option<Arc<dyn Near>>,
    /// Who signs requests.
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// TLS, if it is wanted.
    pub(crate) security: Option<Security>,
}

/// A connection that was just made.
pub(crate) enum Stream {
    /// Everybody on the way can read it.
    Plain(TcpStream),
    /// Over TLS.
    Secret(Box<Secret>),
}

impl Stream {
    /// The same for somebody to whom it is all one.
    pub(crate) fn boxed(self) -> Box<dyn Connection> {
        match self {
            Stream::Plain(stream) => Box::new(stream),
            Stream::Secret(stream) => stream,
        }
    }
}

impl Dialling {
    /// Connects, with TLS if that is wanted.
    pub(crate) async fn connect(&self, address: &str, within: Duration) -> Result<Stream, ClientError> {
        let failed = |cause| ClientError::Connect { address: address.to_owned(), cause };
        let connected = async {
            let addresses = self.names.addresses(address).await.map_err(failed)?;
            let stream = reach(&addresses, within).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            match &self.security {
                None => Ok(Stream::Plain(stream)),
                Some(security) => Ok(Stream::Secret(Box::new(security.over(address, stream).await?))),
            }
        };
        timeout(within, connected).await.unwrap_or_else(|_| Err(timed_out(address, within)))
    }
}

/// What is said when a connection took longer than somebody could wait.
pub(crate) fn timed_out(address: &str, within: Duration) -> ClientError {
    let cause = io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {within:?}"));
    ClientError::Connect { address: address.to_owned(), cause }
}

/// Connects to the first address that can be reached; each has its share of the time.
async fn reach(addresses: &[SocketAddr], within: Duration) -> io::Result<TcpStream> {
    let share = within / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {share:?}")),
        }
    }
    Err(last)
}
