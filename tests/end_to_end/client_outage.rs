//! The client while a name server or a broker is out: who knows the way goes on, and every limit holds.
//!
//! Invariants:
//! - limits of the client that a test is not about are an hour, so that a wait for the wrong thing is a failure.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use troupemq::{Broker, Client, ClientError, Message};
use troupemq_codec::request::{GetConsumerListByGroup, QueryAssignment, SendMessageV2};
use troupemq_codec::{Command, Request};

use crate::client_trouble::judged_pair;
use crate::daemon::LIMIT;
use crate::proxy::{Behind, Proxy, Verdict};

const FOR_EVER: Duration = Duration::from_secs(3600);

/// An address at which connections are neither taken nor refused, as of a host that lost its power.
struct Void {
    address: SocketAddr,
    _queued: Vec<TcpStream>,
    _listener: tokio::net::TcpListener,
}

impl Void {
    async fn open() -> Void {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let listener = socket.listen(1).expect("it listens");
        let address = listener.local_addr().expect("it has an address");
        let mut queued = Vec::new();
        // Nobody accepts: when the queue is full, the system drops what comes.
        while let Ok(Ok(stream)) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
            queued.push(stream);
            assert!(queued.len() < 64, "the queue of a listener is bounded");
        }
        Void { address, _queued: queued, _listener: listener }
    }
}

/// A broker with a topic on which the first send is cut, and a client whose name server can be silenced.
async fn behind_a_name_server_that_may_hang() -> (Behind, Proxy, Arc<AtomicBool>, Client) {
    let sends = AtomicUsize::new(0);
    let behind = Behind::start(move |command| {
        match command.code == SendMessageV2::CODE && sends.fetch_add(1, Ordering::SeqCst) == 1 {
            true => Verdict::Cut,
            false => Verdict::Pass,
        }
    });
    let behind = behind.await;
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = hangs.clone();
    let names =
        Proxy::start(move |_| if hanging.load(Ordering::SeqCst) { Verdict::Lose } else { Verdict::Pass });
    let names = names.await;
    names.lead_to(behind.broker.name_server_address().expect("it has one"));
    let builder = Client::builder().name_servers(&names.address.to_string()).request_timeout(FOR_EVER);
    let client = builder.connect().await.expect("the client connects");
    client.create_topic("t", 1).await.expect("the topic is made");
    (behind, names, hangs, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_server_that_hangs_stops_nobody_who_knows_the_way() {
    let (behind, _names, hangs, client) = behind_a_name_server_that_may_hang().await;
    let producer = client.producer("p").send_timeout(FOR_EVER).start().await.unwrap();
    producer.send(Message::new("t", "first")).await.unwrap();
    hangs.store(true, Ordering::SeqCst);
    // This one is cut once, after which the route is in doubt.
    let sent =
        timeout(LIMIT, producer.send(Message::new("t", "second"))).await.expect("nobody is waited for");
    assert_eq!(sent.unwrap().queue_offset, 1);
    let receipt = timeout(LIMIT, producer.send(Message::new("t", "third"))).await.unwrap().unwrap();
    timeout(LIMIT, client.commit("g", &receipt.queue, 0)).await.expect("in time").unwrap_err();
    assert_eq!(timeout(LIMIT, client.max_offset(&receipt.queue)).await.expect("in time").unwrap(), 3);
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_waits_for_a_name_server_blames_it_and_keeps_its_limit() {
    let (behind, names, hangs, client) = behind_a_name_server_that_may_hang().await;
    hangs.store(true, Ordering::SeqCst);
    let producer = client.producer("p").send_timeout(Duration::from_millis(300)).start().await.unwrap();
    let sent = timeout(LIMIT, producer.send(Message::new("new", "x"))).await.expect("the limit holds");
    let expected = format!("{} did not answer GET_ROUTEINFO_BY_TOPIC within 300ms", names.address);
    assert_eq!(sent.unwrap_err().to_string(), expected);
    let told = timeout(LIMIT, producer.send_oneway(Message::new("new", "x"))).await.expect("the limit holds");
    assert_eq!(told.unwrap_err().to_string(), expected);
    behind.broker.shutdown().await.unwrap();
}

/// A broker, another of the same cluster that nobody can reach, and a client that waits long for connections.
async fn one_that_cannot_be_reached() -> (Broker, Broker, Void, Client) {
    let void = Void::open().await;
    let any = ([127, 0, 0, 1], 0);
    let here = Broker::builder().temporary().broker_name("here").listen(any).listen_as_name_server(any);
    let here = here.start().await.expect("the broker starts");
    let names = here.name_server_address().expect("it has one").to_string();
    let lost = Broker::builder().temporary().broker_name("lost").listen(any).advertise(void.address);
    let lost = lost.name_servers(&names).start().await.expect("the broker starts");
    for broker in [&here, &lost] {
        broker.client().create_topic("both", 2).await.expect("the topic is made");
    }
    let builder = Client::builder().name_servers(&names).connect_timeout(FOR_EVER);
    let client = builder.connect().await.expect("the client connects");
    let both = async {
        while client.writable_queues("both").await.map_or(0, |queues| queues.len()) < 4 {
            let _ = client.await_route("both").await;
        }
    };
    timeout(LIMIT, both).await.expect("both brokers register the topic");
    (here, lost, void, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_cannot_be_reached_leaves_time_for_another() {
    let (here, lost, _void, client) = one_that_cannot_be_reached().await;
    let producer = client.producer("p").send_timeout(Duration::from_secs(2)).start();
    let producer = timeout(LIMIT, producer).await.expect("it starts");
    let producer = producer.unwrap();
    for _ in 0..4 {
        let sent = timeout(LIMIT, producer.send(Message::new("both", "x"))).await.expect("the limit holds");
        assert_eq!(sent.expect("the other broker takes it").queue.broker_name, "here");
    }
    for broker in [lost, here] {
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_sends_and_requests_hold_for_their_connections_too() {
    let (here, lost, void, client) = one_that_cannot_be_reached().await;
    let limit = Duration::from_millis(300);
    let producer = client.producer("p").retries(0).send_timeout(limit).start().await.unwrap();
    let queues = client.writable_queues("both").await.unwrap();
    let queue = queues.iter().find(|queue| queue.broker_name == "lost").expect("it is registered");
    let sent = timeout(LIMIT, producer.send_to(queue, Message::new("both", "x"))).await;
    let error = sent.expect("the limit holds").unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("cannot connect to {}", void.address)), "{error}");
    let asked = timeout(LIMIT, producer.request(Message::new("both", "x"), limit)).await;
    let error = asked.expect("the limit holds").unwrap_err();
    assert!(error.is_transport(), "{error}");
    for broker in [lost, here] {
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_takes_only_messages_that_can_share_its_fate() {
    let broker = Broker::builder().temporary().start().await.unwrap();
    let producer = broker.producer("p").start().await.unwrap();
    let plain = || Message::new("t", "x");
    let refused = [
        (plain().delay_level(3), "a message for later, with the property DELAY,"),
        (
            plain().deliver_after(Duration::from_secs(9)),
            "a message for later, with the property TIMER_DELAY_MS,",
        ),
        (plain().deliver_at(1), "a message for later, with the property TIMER_DELIVER_MS,"),
        (plain().wait_stored(false), "some messages of the batch wait until they are stored"),
        (Message::new("u", "x"), "the batch has a message for u too"),
    ];
    for (other, why) in refused {
        let error = producer.send_batch(&[plain(), other]).await.unwrap_err();
        assert!(matches!(error, ClientError::IllegalMessage { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let again = producer.send_batch(&[Message::new("%RETRY%g", "x")]).await.unwrap_err();
    assert!(again.to_string().contains("come again"), "{again}");
    let together = [plain().wait_stored(false), plain().wait_stored(false)];
    assert_eq!(producer.send_batch(&together).await.unwrap().queue_offset, 0);
    broker.shutdown().await.unwrap();
}

/// Whichever of two brokers is asked first who the members of a group are, and which queues are whose, is out from
/// then on, as far as that is concerned.
fn out_when_asked_about_groups(
    name: &'static str,
    first: &Arc<OnceLock<&'static str>>,
    out: fn() -> Verdict,
) -> impl Fn(&Command) -> Verdict + Send + Sync + 'static {
    let first = first.clone();
    move |command| {
        let is_about_groups = [GetConsumerListByGroup::CODE, QueryAssignment::CODE].contains(&command.code);
        match is_about_groups && *first.get_or_init(|| name) == name {
            true => out(),
            false => Verdict::Pass,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_says_nothing_of_its_groups_leaves_no_member_without_queues() {
    let outs: [fn() -> Verdict; 2] = [|| Verdict::Lose, || Verdict::Cut];
    for (out, is_assigned) in [(outs[0], false), (outs[0], true), (outs[1], false), (outs[1], true)] {
        let first = Arc::new(OnceLock::new());
        let good = out_when_asked_about_groups("good", &first, out);
        let bad = out_when_asked_about_groups("bad", &first, out);
        let (good, bad, maker) = judged_pair(good, bad).await;
        let producer = maker.producer("p").start().await.unwrap();
        let queues = maker.writable_queues("both").await.unwrap();
        for queue in &queues {
            producer.send_to(queue, Message::new("both", "x")).await.unwrap();
        }
        let builder = Client::builder().name_servers(&good.names()).request_timeout(Duration::from_secs(1));
        let client = builder.connect().await.unwrap();
        let consumer = client.consumer("g").subscribe("both", "*").from_first();
        let consumer = if is_assigned { consumer.assigned_by_broker() } else { consumer };
        let mut all = consumer.stream().await.unwrap();
        let mut read = BTreeSet::new();
        while read.len() < queues.len() {
            let next =
                timeout(LIMIT, all.next()).await.expect("the other broker tells the member its queues");
            // Until both know the member, it may hear of one that does not.
            let Ok(delivery) = next.expect("the consumer runs") else { continue };
            read.insert(delivery.message().queue().clone());
            delivery.ack().await.unwrap();
        }
        assert!(first.get().is_some(), "one was asked");
        timeout(LIMIT, client.shutdown()).await.expect("it ends");
        for broker in [bad.broker, good.broker] {
            broker.shutdown().await.unwrap();
        }
    }
}
