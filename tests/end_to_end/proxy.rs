//! Stands between a client and a broker: sees every request, and may answer it itself, lose it or cut the connection.
//!
//! Invariants:
//! - what it lets through arrives as it was sent, in order;
//! - it ends with its handle.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use troupemq::{Broker, BrokerBuilder, Client};
use troupemq_codec::Command;
use troupemq_codec::frame::take_frame;

/// What becomes of a request.
pub(crate) enum Verdict {
    /// The server gets it.
    Pass,
    /// The server gets it after a while, and what comes behind it too.
    Later(Duration),
    /// The client gets this instead of the server's answer.
    Answer(Command),
    /// Nobody hears of it.
    Lose,
    /// The connection ends.
    Cut,
    /// The server gets it, and the connection ends before its answer.
    PassAndCut,
}

type Judge = Arc<dyn Fn(&Command) -> Verdict + Send + Sync>;

/// A running proxy.
pub(crate) struct Proxy {
    /// Where clients reach it.
    pub(crate) address: SocketAddr,
    target: Arc<OnceLock<SocketAddr>>,
    task: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Listens; requests are judged one by one.
    pub(crate) async fn start(judge: impl Fn(&Command) -> Verdict + Send + Sync + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let target = Arc::new(OnceLock::new());
        let (judge, leads_to): (Judge, _) = (Arc::new(judge), target.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (judge, leads_to) = (judge.clone(), leads_to.clone());
                connections.spawn(async move {
                    let target = *leads_to.get().expect("the broker has started");
                    // A server that is not there is as good as a connection that ends.
                    let Ok(server) = TcpStream::connect(target).await else { return };
                    carry(client, server, judge).await;
                });
            }
        });
        Proxy { address, target, task: task.abort_handle() }
    }

    /// Where it leads to, which is said once.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.target.set(target).expect("it is set once");
    }
}

/// A broker that others reach through a proxy, with a name server that they reach directly.
pub(crate) struct Behind {
    pub(crate) broker: Broker,
    pub(crate) proxy: Proxy,
}

impl Behind {
    /// Starts both.
    pub(crate) async fn start(judge: impl Fn(&Command) -> Verdict + Send + Sync + 'static) -> Behind {
        let any = ([127, 0, 0, 1], 0);
        Behind::start_with(judge, |builder| builder.listen_as_name_server(any)).await
    }

    /// The same, with settings.
    pub(crate) async fn start_with(
        judge: impl Fn(&Command) -> Verdict + Send + Sync + 'static,
        settings: impl FnOnce(BrokerBuilder) -> BrokerBuilder,
    ) -> Behind {
        let proxy = Proxy::start(judge).await;
        let builder = Broker::builder().temporary().listen(([127, 0, 0, 1], 0)).advertise(proxy.address);
        let broker = settings(builder).start().await.expect("the broker starts");
        let own = broker.address().expect("it listens");
        proxy.lead_to(own);
        Behind { broker, proxy }
    }

    /// Where its name server is.
    pub(crate) fn names(&self) -> String {
        self.broker.name_server_address().expect("it has one").to_string()
    }

    /// A client that finds it by its name server.
    pub(crate) async fn client(&self) -> Client {
        let builder = Client::builder().name_servers(&self.names());
        builder.connect().await.expect("the name server listens")
    }
}

/// Carries a connection until either side ends it or a verdict does.
async fn carry(client: TcpStream, server: TcpStream, judge: Judge) {
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let (answers, queue) = mpsc::unbounded_channel();
    let mut sides = JoinSet::new();
    sides.spawn(write(to_client, queue));
    let back = answers.clone();
    sides.spawn(async move {
        answer(from_server, back).await;
    });
    let mut inbound = BytesMut::new();
    while let Some(frame) = next(&mut from_client, &mut inbound).await {
        let command = Command::decode(frame).expect("the client writes whole requests");
        let verdict = judge(&command);
        let is_last = matches!(verdict, Verdict::PassAndCut);
        match verdict {
            Verdict::Pass | Verdict::PassAndCut => {}
            Verdict::Later(delay) => {
                // Nothing ends this wait but its time.
                let _ = timeout(delay, pending::<()>()).await;
            }
            Verdict::Answer(answer) => {
                let mut out = BytesMut::new();
                answer.answering(&command).encode(&mut out);
                answers.send(out.freeze()).expect("the writer runs");
                continue;
            }
            Verdict::Lose => continue,
            Verdict::Cut => return,
        }
        if is_last {
            sides.abort_all();
        }
        let mut out = BytesMut::new();
        command.encode(&mut out);
        if to_server.write_all(&out).await.is_err() || is_last {
            return;
        }
    }
}

/// What the server says goes to the client.
async fn answer(mut from_server: OwnedReadHalf, answers: mpsc::UnboundedSender<Bytes>) {
    let mut inbound = BytesMut::new();
    while let Some(frame) = next(&mut from_server, &mut inbound).await {
        let mut out = BytesMut::with_capacity(frame.len() + 4);
        out.extend_from_slice(&u32::try_from(frame.len()).expect("a frame is small").to_be_bytes());
        out.extend_from_slice(&frame);
        if answers.send(out.freeze()).is_err() {
            return;
        }
    }
}

async fn write(mut to_client: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Bytes>) {
    while let Some(bytes) = queue.recv().await {
        if to_client.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// The next frame without its length; `None` at the end of the connection.
async fn next(reader: &mut OwnedReadHalf, inbound: &mut BytesMut) -> Option<Bytes> {
    loop {
        if let Some(frame) = take_frame(inbound).expect("both sides write whole frames") {
            return Some(frame);
        }
        if reader.read_buf(inbound).await.ok()? == 0 {
            return None;
        }
    }
}
