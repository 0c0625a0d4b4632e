//! `Listener`: accepts connections on one port and hands them out over the arbiters.
//!
//! Invariants:
//! - SO_REUSEADDR is set, so that a node that starts again gets its port back; the backlog is 1024;
//! - a failure to accept (too many open files) is waited out, never the end of the listener.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use crate::net::seats::Seats;
use crate::net::sessions::{Sessions, TakeIn};
use crate::router::Served;

/// Connections the system keeps for us until they are accepted. Java: backlog 1024.
const BACKLOG: i32 = 1024;
/// How long a failure to accept is waited out.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens a port for listening. Port 0 takes any free one.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Lets this process open as many files, and so connections, as the system allows it to; tells how many. For
/// programs that are a node: one that embeds a node decides for itself.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, limit = limit.current, "the limit of open files stays low");
            limit.current
        }
    }
}

// ---- messages

/// Sent by the node when it stops: close the port.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopListening;

// ---- actor

/// Owner of one listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: Option<TcpListener>,
    arbiters: Vec<Addr<Sessions>>,
    served: Served,
}

impl Listener {
    /// Accepts on `socket` what speaks to `served`, and hands it to `arbiters`.
    pub fn new(socket: TcpListener, arbiters: Vec<Addr<Sessions>>, served: Served) -> Listener {
        Listener { socket: Some(socket), arbiters, served }
    }
}

impl Actor for Listener {
    type Context = Context<Listener>;

    fn started(&mut self, context: &mut Context<Listener>) {
        let socket = self.socket.take().expect("a listener is started once");
        let accepting = accept(socket, self.arbiters.clone(), self.served.clone());
        context.spawn(accepting.into_actor(self));
    }
}

impl Handler<StopListening> for Listener {
    type Result = ();

    fn handle(&mut self, _: StopListening, context: &mut Context<Listener>) {
        context.stop();
    }
}

async fn accept(socket: TcpListener, arbiters: Vec<Addr<Sessions>>, served: Served) {
    let socket = match tokio::net::TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "the listening socket cannot be used"),
    };
    let seats = Seats::of(arbiters.len());
    loop {
        let stream = loop {
            match socket.accept().await.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => break stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of files, mostly: this task alone waits until some are closed, the arbiter goes on.
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        // A connection that cannot be handed over is dropped, and thereby closed.
        let Some((number, seat)) = seats.take() else { return };
        let taken = TakeIn { stream, served: served.clone(), seat: Some(seat) };
        if arbiters[number].try_send(taken).is_err() {
            tracing::warn!("a connection was closed: too many wait to be taken in");
        }
    }
}
