//! Routes against name servers that tell, deny, or keep silent.
//!
//! Invariants:
//! - an answer may take an hour, so that a wait for a silent server fails.

use std::collections::BTreeMap;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use troupemq_codec::Command;
use troupemq_codec::frame::take_frame;
use troupemq_codec::loose_json::to_standard;
use troupemq_codec::route::BrokerData;

use super::*;
use crate::client::connection::Dialling;
use crate::client::names::Names;

const LIMIT: Duration = Duration::from_secs(30);
/// Longer than any test: who waits for a silent server fails.
const FOR_EVER: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Tells,
    Denies,
    Silent,
}

/// A name server that does as it is told.
struct Server {
    address: String,
    mode: watch::Sender<Mode>,
    asked: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Server {
    async fn start(mode: Mode) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mode, now) = watch::channel(mode);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (now, count) = (now.clone(), count.clone());
                connections.spawn(answer(stream, move || {
                    count.fetch_add(1, Ordering::SeqCst);
                    *now.borrow()
                }));
            }
        });
        Server { address, mode, asked, _task: task }
    }

    fn turn(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn answer(mut stream: TcpStream, mode: impl Fn() -> Mode) {
    let mut inbound = BytesMut::new();
    loop {
        while let Some(frame) = take_frame(&mut inbound).unwrap() {
            let command = Command::decode(frame).unwrap();
            let answer = match mode() {
                Mode::Silent => continue,
                Mode::Denies => {
                    Command::response(ResponseCode::TOPIC_NOT_EXIST).with_remark("No topic route")
                }
                Mode::Tells => {
                    Command::response(ResponseCode::SUCCESS).with_body(to_standard(&data()).into())
                }
            };
            let mut out = BytesMut::new();
            answer.answering(&command).encode(&mut out);
            stream.write_all(&out).await.unwrap();
        }
        if stream.read_buf(&mut inbound).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

fn data() -> TopicRouteData {
    let addresses = BTreeMap::from([(0, Text::from("127.0.0.1:1"))]);
    let broker = BrokerData { broker_name: "a".into(), broker_addrs: addresses, ..Default::default() };
    let queues = QueueData {
        broker_name: "a".into(),
        perm: PERM_READ | PERM_WRITE,
        read_queue_nums: 2,
        write_queue_nums: 2,
        ..Default::default()
    };
    TopicRouteData { broker_datas: vec![broker], queue_datas: vec![queues], ..Default::default() }
}

fn of(servers: &[&Server]) -> (Routes, mpsc::Receiver<Text>, Peers) {
    let addresses = servers.iter().map(|server| server.address.clone()).collect();
    let (routes, stale) = Routes::new(NameServers::new(addresses, None), None, FOR_EVER);
    let (names, within) = (Names::default(), LIMIT);
    let dialling = Dialling { within, names, near: None, credentials: None, security: None };
    (routes, stale, Peers::new(mpsc::channel(1).0, dialling))
}

/// What is known when it comes, and a failure if that takes long.
async fn route(routes: &Routes, peers: &Peers) -> Result<Arc<Route>, ClientError> {
    timeout(LIMIT, routes.route(peers, "t")).await.expect("no name server is waited for")
}

#[tokio::test]
async fn a_known_route_is_given_at_once_while_its_name_server_hangs() {
    let server = Server::start(Mode::Tells).await;
    let (routes, mut stale, peers) = of(&[&server]);
    route(&routes, &peers).await.unwrap();
    server.turn(Mode::Silent);
    routes.doubt("t");
    for _ in 0..3 {
        assert_eq!(route(&routes, &peers).await.unwrap().writable().len(), 2);
    }
    assert_eq!(stale.try_recv().unwrap(), "t", "it is asked for beside");
    assert!(stale.try_recv().is_err(), "and once is enough");
    assert_eq!(server.asked(), 1);

    server.turn(Mode::Tells);
    routes.refresh(&peers, "t").await;
    route(&routes, &peers).await.unwrap();
    assert!(stale.try_recv().is_err(), "it is fresh");
}

#[tokio::test]
async fn a_name_server_that_has_just_started_takes_no_route_away() {
    let server = Server::start(Mode::Tells).await;
    let (routes, _stale, peers) = of(&[&server]);
    route(&routes, &peers).await.unwrap();
    server.turn(Mode::Denies);
    let error = routes.renew(&peers, "t").await.unwrap_err();
    assert!(matches!(error, ClientError::NoRoute { .. }), "who asks what it knows now is told: {error}");
    route(&routes, &peers).await.expect("the route stands");
}

#[tokio::test]
async fn what_one_name_server_does_not_know_another_may() {
    let servers = [Server::start(Mode::Denies).await, Server::start(Mode::Tells).await];
    let (routes, _stale, peers) = of(&[&servers[0], &servers[1]]);
    route(&routes, &peers).await.expect("the second knows it");
    assert_eq!([servers[0].asked(), servers[1].asked()], [1, 1]);
    routes.renew(&peers, "t").await.expect("the second knows it");
    assert_eq!([servers[0].asked(), servers[1].asked()], [1, 2], "who knew it is asked first");
}

#[tokio::test]
async fn a_name_server_that_kept_somebody_waiting_is_not_the_first_to_be_asked_again() {
    let servers = [Server::start(Mode::Silent).await, Server::start(Mode::Tells).await];
    let (routes, _stale, peers) = of(&[&servers[0], &servers[1]]);
    let impatient = async {
        while servers[0].asked() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        told = routes.route(&peers, "t") => panic!("it keeps silent: {told:?}"),
        () = impatient => {}
    }
    route(&routes, &peers).await.expect("the second tells it");
}

#[test]
fn keys_fall_on_the_queues_that_are_configured_whoever_is_there() {
    let plain = Route::new("t", data());
    assert_eq!(plain.in_order(), plain.writable());
    let conf = Some("b:2;a:1".into());
    let configured = Route::new("t", TopicRouteData { order_topic_conf: conf, ..data() });
    let places: Vec<_> =
        configured.in_order().iter().map(|queue| (queue.broker_name.as_ref(), queue.queue_id)).collect();
    assert_eq!(places, [("b", 0), ("b", 1), ("a", 0)]);
    assert_eq!(configured.writable(), plain.writable());
}
