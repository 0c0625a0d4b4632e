//! The client when servers are slow, gone, or say no; and when it is itself cut short.
//!
//! Invariants:
//! - trouble is made by a proxy between client and broker, never by chance.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use troupemq::client::consumer::{SPAN_MAX, UNSETTLED_MAX};
use troupemq::{
    Broker, Client, ClientError, Deliveries, Message, Outcome, Producer, PullRequest, Received, ResponseCode,
};
use troupemq_codec::request::{
    ConsumerSendMsgBack, GetConsumerListByGroup, QueryAssignment, RequestMode, RequestModeBody,
    SendMessageV2, SetMessageRequestMode,
};
use troupemq_codec::signature::{ACCESS_KEY, is_signed};
use troupemq_codec::{Command, NoHeader, Request};

use crate::daemon::{LIMIT, silent_address, until};
use crate::proxy::{Behind, Verdict};

/// How often something was seen.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    /// How often before.
    fn one_more(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn seen(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn is_send(command: &Command) -> bool {
    command.code == SendMessageV2::CODE
}

async fn next_body(deliveries: &mut Deliveries) -> String {
    let delivery = timeout(LIMIT, deliveries.next())
        .await
        .expect("in time")
        .expect("messages come as text")
        .expect("messages come as text");
    let body = String::from_utf8(delivery.message().body().to_vec()).expect("messages come as text");
    delivery.ack().await.expect("messages come as text");
    body
}

/// Two brokers of one cluster with a topic on both; what is asked of the second, `bad`, is judged.
pub(crate) async fn pair(
    judge: impl Fn(&Command) -> Verdict + Send + Sync + 'static,
) -> (Behind, Behind, Client) {
    judged_pair(|_| Verdict::Pass, judge).await
}

/// The same, with a judge for each.
pub(crate) async fn judged_pair(
    good: impl Fn(&Command) -> Verdict + Send + Sync + 'static,
    bad: impl Fn(&Command) -> Verdict + Send + Sync + 'static,
) -> (Behind, Behind, Client) {
    let any = ([127, 0, 0, 1], 0);
    let named = |name: &'static str| move |builder: troupemq::BrokerBuilder| builder.broker_name(name);
    let with_names = |builder: troupemq::BrokerBuilder| named("good")(builder).listen_as_name_server(any);
    let good = Behind::start_with(good, with_names).await;
    let names = good.names();
    let bad = Behind::start_with(bad, |builder| named("bad")(builder).name_servers(&names)).await;
    let client = good.client().await;
    client.create_topic("both", 2).await.expect("the brokers serve");
    let both = async {
        while client.writable_queues("both").await.expect("the brokers serve").len() < 4 {
            client.await_route("both").await.expect("the brokers serve");
        }
    };
    timeout(LIMIT, both).await.expect("both brokers register the topic");
    (good, bad, client)
}

/// Sends until ten messages in a row went to the good broker: round robin alone never does that.
pub(crate) async fn until_the_bad_one_is_avoided(producer: &Producer) {
    let avoided = async {
        let mut in_a_row = 0;
        while in_a_row < 10 {
            let receipt = producer.send(Message::new("both", "x")).await.expect("one broker is good");
            in_a_row = if receipt.queue.broker_name == "good" { in_a_row + 1 } else { 0 };
        }
    };
    timeout(LIMIT, avoided).await.expect("the bad broker is avoided");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_goes_to_another_broker_and_the_one_that_failed_is_avoided() {
    let cuts = Count::default();
    let cutting = cuts.clone();
    let judge = move |command: &Command| match is_send(command) {
        true => {
            cutting.one_more();
            Verdict::Cut
        }
        false => Verdict::Pass,
    };
    let (good, bad, client) = pair(judge).await;
    let producer = client.producer("p").start().await.unwrap();
    until_the_bad_one_is_avoided(&producer).await;
    assert!(cuts.seen() > 0, "it was tried");
    for broker in [bad.broker, good.broker] {
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_broker_is_avoided() {
    let slow = Count::default();
    let slowing = slow.clone();
    let judge = move |command: &Command| match is_send(command) {
        true => {
            slowing.one_more();
            Verdict::Later(Duration::from_millis(700))
        }
        false => Verdict::Pass,
    };
    let (good, bad, client) = pair(judge).await;
    let producer = client.producer("p").start().await.unwrap();
    until_the_bad_one_is_avoided(&producer).await;
    assert!(slow.seen() > 0, "it was tried");
    for broker in [bad.broker, good.broker] {
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_goes_mid_send_is_named_and_the_send_tried_again() {
    let sends = Count::default();
    let counting = sends.clone();
    let behind = Behind::start(move |command| match is_send(command) && counting.one_more() < 2 {
        true => Verdict::PassAndCut,
        false => Verdict::Pass,
    });
    let behind = behind.await;
    let client = behind.client().await;
    client.create_topic("t", 1).await.unwrap();
    let once = client.producer("once").retries(0).start().await.unwrap();
    let error = once.send(Message::new("t", "x")).await.unwrap_err();
    assert!(matches!(error, ClientError::Disconnected { request: "SEND_MESSAGE_V2", .. }), "{error}");
    assert!(error.to_string().contains(&behind.proxy.address.to_string()), "{error}");
    // The broker may have stored a message whose answer got lost: it has the same id then.
    let again = client.producer("again").start().await.unwrap();
    let receipt = again.send(Message::new("t", "y")).await.expect("the second try succeeds");
    let pulled = client.pull(&receipt.queue, &PullRequest::from("g", 0)).await.unwrap();
    let ids: BTreeSet<_> = pulled.messages.iter().map(troupemq_codec::Message::message_id).collect();
    assert!(ids.len() <= 2 && ids.contains(&receipt.message_id), "{ids:?}");
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_answer_is_named_with_the_limit() {
    let behind = Behind::start(|command| if is_send(command) { Verdict::Lose } else { Verdict::Pass }).await;
    let client = behind.client().await;
    // The way is known: all its time goes to the broker.
    client.create_topic("t", 1).await.unwrap();
    client.await_route("t").await.unwrap();
    let limit = Duration::from_millis(300);
    let producer = client.producer("p").retries(0).send_timeout(limit).start().await.unwrap();
    let error = producer.send(Message::new("t", "x")).await.unwrap_err();
    let start = format!("{} did not answer SEND_MESSAGE_V2 within ", behind.proxy.address);
    assert!(matches!(error, ClientError::TimedOut { after, .. } if after <= limit), "{error}");
    assert!(error.to_string().starts_with(&start), "{error}");
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_that_is_dropped_half_way_disturbs_nobody() {
    let sends = Count::default();
    let counting = sends.clone();
    let behind = Behind::start(move |command| match is_send(command) && counting.one_more() == 0 {
        true => Verdict::Lose,
        false => Verdict::Pass,
    });
    let behind = behind.await;
    let client = behind.client().await;
    let producer = client.producer("p").start().await.unwrap();
    let sending = producer.send(Message::new("t", "lost"));
    tokio::select! {
        sent = sending => panic!("nobody answers it: {sent:?}"),
        () = until("it is on its way", async || sends.seen() > 0) => {}
    }
    // The connection and the producer go on.
    let receipt = producer.send(Message::new("t", "sent")).await.unwrap();
    assert_eq!(receipt.queue_offset, 0);
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_that_is_dropped_half_way_lets_the_message_come_again() {
    let returns = Count::default();
    let counting = returns.clone();
    let behind = Behind::start(move |command| match command.code == ConsumerSendMsgBack::CODE {
        true => {
            counting.one_more();
            Verdict::Later(Duration::from_secs(1))
        }
        false => Verdict::Pass,
    });
    let behind = behind.await;
    let client = behind.client().await;
    let producer = client.producer("p").start().await.unwrap();
    producer.send(Message::new("t", "x")).await.unwrap();
    let mut all = client.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    let delivery = timeout(LIMIT, all.next()).await.unwrap().unwrap().unwrap();
    tokio::select! {
        biased;
        () = until("it is on its way", async || returns.seen() > 0) => {}
        told = delivery.retry_later(1) => panic!("the broker answers later: {told:?}"),
    }
    assert_eq!(next_body(&mut all).await, "x");
    behind.broker.shutdown().await.unwrap();
}

/// A broker with one message, behind a proxy that cuts the first connections on which messages are sent back.
async fn cuts_what_is_sent_back(times: usize) -> (Behind, Client) {
    let seen = Count::default();
    let cuts = move |command: &Command| command.code == ConsumerSendMsgBack::CODE && seen.one_more() < times;
    let behind = Behind::start(move |command| if cuts(command) { Verdict::Cut } else { Verdict::Pass }).await;
    let client = behind.client().await;
    client.create_topic("t", 1).await.expect("the broker serves");
    let producer = client.producer("p").start().await.expect("the broker serves");
    for body in ["first", "second"] {
        producer.send(Message::new("t", body)).await.expect("the broker serves");
    }
    (behind, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_could_not_be_sent_back_comes_again_and_holds_up_the_progress() {
    let (behind, client) = cuts_what_is_sent_back(2).await;
    let mut all = client.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    let first = timeout(LIMIT, all.next()).await.expect("in time").unwrap().unwrap();
    // A pull may have brought the first one alone, and the next pull breaks off with the connection.
    assert_eq!(next_body(&mut all).await, "second");
    first.retry_later(1).await.expect_err("the connection was cut");
    let again = timeout(LIMIT, all.next()).await.expect("it comes again").unwrap().unwrap();
    assert_eq!((again.message().body().as_ref(), again.message().reconsume_times()), (&b"first"[..], 0));
    let queue = again.message().queue().clone();
    drop(again);
    let again = timeout(LIMIT, all.next()).await.expect("also if it was dropped").unwrap().unwrap();
    assert_eq!((again.message().body().as_ref(), again.message().reconsume_times()), (&b"first"[..], 0));
    let committed = client.committed("g", &queue).await.unwrap().unwrap_or(0);
    assert_eq!(committed, 0, "the first message is not settled");
    again.ack().await.unwrap();
    all.shutdown().await;
    assert_eq!(client.committed("g", &queue).await.unwrap(), Some(2));
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_a_message_that_could_not_be_sent_back_comes_before_those_behind_it() {
    let (behind, client) = cuts_what_is_sent_back(1).await;
    let (tell, mut seen) = mpsc::unbounded_channel();
    let consumer = client.consumer("g").subscribe("t", "*").from_first().in_order();
    let listening = consumer.listen(move |message: Received| {
        let body = message.body().clone();
        let outcome = if body == "first" { Outcome::GiveUp } else { Outcome::Done };
        let told = tell.send(body);
        async move { told.map_or(Outcome::Again, |()| outcome) }
    });
    let listener = listening.await.unwrap();
    for expected in ["first", "first", "second"] {
        assert_eq!(timeout(LIMIT, seen.recv()).await.expect("in time").unwrap(), expected);
    }
    listener.shutdown().await;
    behind.broker.shutdown().await.unwrap();
}

/// The names and secrets of a broker that knows one user.
pub(crate) fn knows(user: &'static str, secret: &'static str) -> impl Fn(&Command) -> Verdict + Send + Sync {
    move |command| {
        let is_user = command.fields.get(ACCESS_KEY) == Some(user);
        if is_user && is_signed(&command.fields, &command.body, secret, command.version) {
            return Verdict::Pass;
        }
        let remark = format!("{}: check signature failed", command.code);
        Verdict::Answer(Command::response(ResponseCode::NO_PERMISSION).with_remark(remark))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_signed_and_wrong_credentials_are_told_apart() {
    let behind = Behind::start(knows("reader", "the secret")).await;
    let names = behind.names();
    let with =
        |user: &str, secret: &str| Client::builder().name_servers(&names).credentials(user, secret).connect();
    let client = with("reader", "the secret").await.unwrap();
    let producer = client.producer("p").start().await.unwrap();
    producer.send(Message::new("t", "signed")).await.unwrap();
    producer.send_oneway(Message::new("t", "without an answer")).await.unwrap();
    let mut all = client.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    let bodies = BTreeSet::from([next_body(&mut all).await, next_body(&mut all).await]);
    assert_eq!(bodies, BTreeSet::from(["signed".to_owned(), "without an answer".to_owned()]));

    let unsigned = behind.client().await;
    for client in
        [with("reader", "a guess").await.unwrap(), with("nobody", "the secret").await.unwrap(), unsigned]
    {
        let producer = client.producer("p").retries(0).start().await.unwrap();
        let error = producer.send(Message::new("t", "x")).await.unwrap_err();
        assert_eq!(error.code(), Some(ResponseCode::NO_PERMISSION), "{error}");
        assert!(error.to_string().ends_with("310: check signature failed"), "{error}");
        // A consumer hears it too, and does not wait in silence.
        let mut none = client.consumer("refused").subscribe("t", "*").from_first().stream().await.unwrap();
        let told = timeout(LIMIT, none.next()).await.expect("in time").expect("the consumer runs");
        assert_eq!(told.unwrap_err().code(), Some(ResponseCode::NO_PERMISSION));
    }
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_assigned_by_the_broker_or_shared_by_the_members_if_it_cannot() {
    for can_assign in [true, false] {
        let (asked, listed) = (Count::default(), Count::default());
        let (asking, listing) = (asked.clone(), listed.clone());
        let behind = Behind::start(move |command| {
            if command.code == GetConsumerListByGroup::CODE {
                listing.one_more();
            }
            if command.code == QueryAssignment::CODE {
                asking.one_more();
                if !can_assign {
                    return Verdict::Answer(Command::response(ResponseCode::REQUEST_CODE_NOT_SUPPORTED));
                }
            }
            Verdict::Pass
        });
        let behind = behind.await;
        let clients = [behind.client().await, behind.client().await];
        clients[0].create_topic("t", 4).await.unwrap();
        let (tell, mut seen) = mpsc::unbounded_channel();
        let mut listeners = Vec::new();
        for (member, client) in clients.iter().enumerate() {
            let tell = tell.clone();
            let consumer = client.consumer("g").subscribe("t", "*").from_first().assigned_by_broker();
            let listening = consumer.listen(move |message| {
                let told = tell.send((message.queue().queue_id, member));
                async move { told.map_or(Outcome::Again, |()| Outcome::Done) }
            });
            listeners.push(listening.await.unwrap());
        }
        // Until the group is settled: of one message to each queue, both members get two.
        let producer = clients[0].producer("p").start().await.unwrap();
        let queues = clients[0].writable_queues("t").await.unwrap();
        let settled = async {
            loop {
                let mut members = Vec::new();
                for queue in &queues {
                    producer.send_to(queue, Message::new("t", "x")).await.unwrap();
                }
                for _ in &queues {
                    members.push(seen.recv().await.expect("the listeners run").1);
                }
                if members.iter().filter(|member| **member == 0).count() == 2 {
                    return;
                }
            }
        };
        timeout(LIMIT, settled).await.expect("the members share the queues");
        assert!(asked.seen() > 0);
        assert_eq!(listed.seen() > 0, !can_assign);
        for listener in listeners {
            listener.shutdown().await;
        }
        behind.broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_hears_over_its_connection_of_everybody_who_comes_and_goes() {
    let (tell, mut asked) = mpsc::unbounded_channel();
    let behind = Behind::start(move |command| {
        // A test that has ended does not listen any more.
        let _ = (command.code == GetConsumerListByGroup::CODE).then(|| tell.send(()));
        Verdict::Pass
    });
    let behind = behind.await;
    let (far, near) = (behind.client().await, behind.broker.client());
    near.create_topic("t", 4).await.unwrap();
    let member = |client: &Client| client.consumer("g").subscribe("t", "*").stream();
    let _stays = member(&far).await.unwrap();
    // Without a word of the broker, it asks who the members are every 20 s: too seldom for this.
    let heard = async {
        asked.recv().await.expect("the proxy runs");
        for _ in 0..4 {
            while asked.try_recv().is_ok() {}
            let passing = member(near).await.unwrap();
            asked.recv().await.expect("the proxy runs");
            while asked.try_recv().is_ok() {}
            passing.shutdown().await;
            asked.recv().await.expect("the proxy runs");
        }
    };
    timeout(LIMIT, heard).await.expect("the broker tells of every change");
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_the_broker_wants_popped_is_told_so() {
    let broker = Broker::builder().temporary().start().await.unwrap();
    let client = broker.client();
    client.create_topic("t", 1).await.unwrap();
    let body = RequestModeBody {
        consumer_group: "g".into(),
        topic: "t".into(),
        mode: RequestMode::Pop,
        pop_share_queue_num: 0,
    };
    let body = Bytes::from(troupemq_codec::loose_json::to_standard(&body));
    client.admin().ask::<SetMessageRequestMode>("broker", &NoHeader, body).await.unwrap();
    let consumer = client.consumer("g").subscribe("t", "*").assigned_by_broker();
    let mut stream = consumer.stream().await.unwrap();
    let error = timeout(LIMIT, stream.next()).await.expect("in time").unwrap().unwrap_err();
    assert!(error.to_string().contains("popped by g; this client only pulls"), "{error}");
    broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_server_that_is_down_is_passed_over() {
    let behind = Behind::start(|_| Verdict::Pass).await;
    let (_kept, free) = silent_address();
    let error = Client::builder().name_servers(&free.to_string()).connect().await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot connect to {free}")), "{error}");
    let both = format!("{free};{}", behind.names());
    let client = Client::builder().name_servers(&both).connect().await.unwrap();
    let producer = client.producer("p").start().await.unwrap();
    producer.send(Message::new("t", "x")).await.unwrap();
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_messages_are_out_than_their_bound() {
    let broker = Broker::builder().temporary().start().await.unwrap();
    let client = broker.client();
    client.create_topic("many", 1).await.unwrap();
    let producer = broker.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let batch: Vec<_> = (0..500).map(|n| Message::new("many", format!("{n}"))).collect();
    for _ in 0..4 {
        producer.send_batch(&batch).await.unwrap();
    }
    let mut many = broker.consumer("g").subscribe("many", "*").from_first().stream().await.unwrap();
    let mut out = Vec::new();
    for _ in 0..UNSETTLED_MAX {
        let delivery = timeout(LIMIT, many.next()).await.expect("as many come as may be out");
        out.push(delivery.unwrap().unwrap());
    }
    let beyond = timeout(Duration::from_millis(300), many.next()).await;
    assert!(beyond.is_err(), "{} are out", UNSETTLED_MAX + 1);
    let mut count = out.len();
    for delivery in out {
        delivery.ack().await.unwrap();
    }
    while count < 2000 {
        next_body(&mut many).await;
        count += 1;
    }
    broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_kept_stops_the_pulls_a_bounded_span_behind_it() {
    let broker = Broker::builder().temporary().start().await.unwrap();
    let client = broker.client();
    client.create_topic("many", 1).await.unwrap();
    let producer = broker.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let batch: Vec<_> = (0..500).map(|n| Message::new("many", format!("{n}"))).collect();
    for _ in 0..6 {
        producer.send_batch(&batch).await.unwrap();
    }
    let mut many = broker.consumer("g").subscribe("many", "*").from_first().stream().await.unwrap();
    let kept = timeout(LIMIT, many.next()).await.expect("in time").unwrap().unwrap();
    let mut count = 1;
    while let Ok(next) = timeout(Duration::from_secs(1), many.next()).await {
        next.unwrap().unwrap().ack().await.unwrap();
        count += 1;
    }
    // The last pull before the bound goes over it.
    assert!(count <= SPAN_MAX + 64, "{count} came beside one that was kept");
    kept.ack().await.unwrap();
    while count < 3000 {
        next_body(&mut many).await;
        count += 1;
    }
    broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_in_the_middle_of_everything_loses_nothing_that_was_done() {
    let behind = Behind::start(|_| Verdict::Pass).await;
    let (client, other) = (behind.client().await, behind.client().await);
    client.create_topic("t", 2).await.unwrap();
    let (tell, mut done) = mpsc::unbounded_channel();
    let consumer = client.consumer("g").subscribe("t", "*").from_first();
    let listener = consumer.listen(move |message| {
        let told = tell.send((message.queue().clone(), message.queue_offset()));
        async move { told.map_or(Outcome::Again, |()| Outcome::Done) }
    });
    let listener = listener.await.unwrap();
    let mut sends = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let producer = client.producer("p").start().await.unwrap();
        sends.spawn(async move {
            let mut stored = 0_u32;
            loop {
                match producer.send(Message::new("t", "x")).await {
                    Ok(_) => stored += 1,
                    Err(error) => return (stored, error),
                }
            }
        });
    }
    for _ in 0..100 {
        timeout(LIMIT, done.recv()).await.expect("in time").expect("the listener runs");
    }
    timeout(LIMIT, client.shutdown()).await.expect("it ends");
    let mut stored = 0;
    while let Some(ended) = timeout(LIMIT, sends.join_next()).await.expect("every send ends") {
        let (count, error) = ended.unwrap();
        stored += i64::from(count);
        let says_why = matches!(error, ClientError::ShutDown { .. } | ClientError::Disconnected { .. });
        assert!(says_why, "{error}");
    }
    timeout(LIMIT, listener.shutdown()).await.expect("it has ended with the client");
    let (mut finished, mut committed, mut there) = (0, 0, 0);
    while done.recv().await.is_some() {
        finished += 1;
    }
    for queue in other.queues("t").await.unwrap() {
        committed += other.committed("g", &queue).await.unwrap().unwrap_or(0);
        there += other.max_offset(&queue).await.unwrap();
    }
    // What ran when the end came may come again; what was acknowledged before it does not.
    assert!(committed <= 100 + finished && committed > 0, "{committed} of {}", 100 + finished);
    assert!(there >= stored, "{there} are there, {stored} were acknowledged");
    behind.broker.shutdown().await.unwrap();
}
