//! The client library against a broker: every way to send, every way to receive.
//!
//! Invariants:
//! - a test waits for messages, never for time.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::timeout;
use troupemq::{Client, Decision, Deliveries, Message, PullRequest, PullStatus, Received, ResponseCode};

use crate::daemon::{Daemon, LIMIT, store};

async fn connect(daemon: &Daemon) -> Client {
    let address = daemon.name_server.expect("it has a name server").to_string();
    let builder = Client::builder().name_servers(&address);
    builder.request_timeout(LIMIT).connect().await.expect("the name server listens")
}

/// The bodies of the next messages, acknowledged.
async fn bodies(deliveries: &mut Deliveries, count: usize) -> Vec<String> {
    let mut bodies = Vec::new();
    for _ in 0..count {
        let next = timeout(LIMIT, deliveries.next()).await.expect("a message comes in time");
        let delivery = next.expect("the consumer runs").expect("the broker refuses nothing");
        bodies.push(String::from_utf8(delivery.message().body().to_vec()).expect("the body is text"));
        delivery.ack().await.expect("the consumer runs");
    }
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_ordered_messages_keep_their_order() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let client = connect(&daemon).await;
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let batch: Vec<_> = (0..5).map(|n| Message::new("batch", format!("{n}"))).collect();
    let receipt = producer.send_batch(&batch).await.unwrap();
    assert_eq!(receipt.message_id.split(',').count(), 5);
    let pulled = client.pull(&receipt.queue, &PullRequest::from("g", receipt.queue_offset)).await.unwrap();
    assert_eq!(pulled.status, PullStatus::Found);
    let got: Vec<_> = pulled.messages.iter().map(|message| message.body.to_vec()).collect();
    assert_eq!(got, [b"0", b"1", b"2", b"3", b"4"]);
    assert_eq!((pulled.next_offset, pulled.min_offset, pulled.max_offset), (5, 0, 5));

    let first = producer.send_ordered("one key", Message::new("ordered", "0")).await.unwrap();
    for n in 1..10 {
        let receipt = producer.send_ordered("one key", Message::new("ordered", n.to_string())).await.unwrap();
        assert_eq!(
            (receipt.queue.clone(), receipt.queue_offset),
            (first.queue.clone(), first.queue_offset + n)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oneway_and_concurrent_sends_arrive_once_each() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let client = connect(&daemon).await;
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let mut deliveries = client.consumer("g").subscribe("many", "*").from_first().stream().await.unwrap();
    let mut sends = tokio::task::JoinSet::new();
    for n in 0..200 {
        let producer = producer.clone();
        sends.spawn(async move {
            let message = Message::new("many", n.to_string());
            if n % 10 == 0 {
                producer.send_oneway(message).await
            } else {
                producer.send(message).await.map(|_| ())
            }
        });
    }
    while let Some(sent) = sends.join_next().await {
        sent.unwrap().unwrap();
    }
    let got: BTreeSet<_> = bodies(&mut deliveries, 200).await.into_iter().collect();
    assert_eq!(got, (0..200).map(|n| n.to_string()).collect());
    deliveries.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_subscribed_tags_come_and_a_new_message_is_not_waited_for() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let client = connect(&daemon).await;
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    producer.send(Message::new("tags", "first").tag("a")).await.unwrap();
    let consumer = client.consumer("g").subscribe("tags", "a || c").from_first().hold(10 * LIMIT);
    let mut deliveries = consumer.stream().await.unwrap();
    assert_eq!(bodies(&mut deliveries, 1).await, ["first"]);
    for (tag, body) in [("b", "no"), ("c", "yes"), ("A", "no"), ("a", "too")] {
        let queue = &client.queues("tags").await.unwrap()[0];
        producer.send_to(queue, Message::new("tags", body).tag(tag)).await.unwrap();
    }
    // The pulls are on hold at the broker, for longer than this limit: an arrival must wake them.
    let woken = timeout(LIMIT, bodies(&mut deliveries, 2)).await.expect("an arrival wakes a pull");
    assert_eq!(woken, ["yes", "too"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_begins_where_it_is_told_to() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let client = connect(&daemon).await;
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    producer.send(Message::new("start", "old")).await.unwrap();
    let mut last = client.consumer("last").subscribe("start", "*").from_last().stream().await.unwrap();
    let mut first = client.consumer("first").subscribe("start", "*").from_first().stream().await.unwrap();
    let mut timed = client.consumer("timed").subscribe("start", "*").from_time(0).stream().await.unwrap();
    assert_eq!(bodies(&mut first, 1).await, ["old"]);
    assert_eq!(bodies(&mut timed, 1).await, ["old"]);
    // Until the group has begun, what is sent may lie before its beginning.
    let queues = client.queues("start").await.unwrap();
    for n in 0.. {
        producer.send(Message::new("start", format!("new {n}"))).await.unwrap();
        if timeout(Duration::from_millis(200), last.next()).await.is_ok() {
            break;
        }
    }
    let mut stored = 0;
    for queue in &queues {
        stored += client.max_offset(queue).await.unwrap();
    }
    assert!(stored >= 2, "{stored}");
    // What is behind the beginning comes, up to the end of each queue, and nothing from before it.
    for queue in &queues {
        producer.send_to(queue, Message::new("start", "end")).await.unwrap();
    }
    let mut ends = BTreeSet::new();
    while ends.len() < queues.len() {
        let delivery = timeout(LIMIT, last.next()).await.expect("in time").unwrap().unwrap();
        let message = delivery.message();
        assert_ne!(&message.body()[..], b"old", "nothing old comes to a group that begins with the last");
        if message.body() == "end" {
            ends.insert(message.queue().clone());
        }
        delivery.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_share_the_queues_and_take_over_from_who_leaves() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let (one, two) = (connect(&daemon).await, connect(&daemon).await);
    one.create_topic("shared", 4).await.unwrap();
    let producer = one.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let join = |client: &Client| client.consumer("g").subscribe("shared", "*").from_first().stream();
    let mut first = join(&one).await.unwrap();
    let mut second = join(&two).await.unwrap();
    let queues = one.queues("shared").await.unwrap();
    assert_eq!(queues.len(), 4);
    // Once both are in the group, one message to each queue brings two to either.
    let share = async {
        let mut of_first = 0;
        while of_first != 2 {
            for queue in &queues {
                producer.send_to(queue, Message::new("shared", "x")).await.unwrap();
            }
            of_first = 0;
            for _ in &queues {
                let delivery = tokio::select! {
                    next = first.next() => {
                        of_first += 1;
                        next
                    }
                    next = second.next() => next,
                };
                delivery.expect("the consumers run").unwrap().ack().await.unwrap();
            }
        }
    };
    timeout(2 * LIMIT, share).await.expect("the members share the queues");
    first.shutdown().await;
    let after: Vec<_> = (0..4).map(|n| format!("after {n}")).collect();
    for (queue, body) in queues.iter().zip(&after) {
        producer.send_to(queue, Message::new("shared", body.clone())).await.unwrap();
    }
    let mut missing: BTreeSet<_> = after.into_iter().collect();
    while !missing.is_empty() {
        missing.remove(&bodies(&mut second, 1).await[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_goes_on_after_the_broker_was_killed_and_started_again() {
    let (_folder, store) = store();
    let mut daemon = Daemon::start(&store);
    let client = connect(&daemon).await;
    let producer = client.producer("p").send_timeout(LIMIT).retries(1000).start().await.unwrap();
    let mut deliveries = client.consumer("g").subscribe("again", "*").from_first().stream().await.unwrap();
    producer.send(Message::new("again", "before")).await.unwrap();
    assert_eq!(bodies(&mut deliveries, 1).await, ["before"]);
    daemon.kill();
    let _daemon = daemon.start_again(&store);
    producer.send(Message::new("again", "after")).await.unwrap();
    // Progress that was not committed before the kill comes again, nothing is left out.
    while bodies(&mut deliveries, 1).await != ["after"] {}
}

#[tokio::test(flavor = "multi_thread")]
async fn another_client_of_the_group_is_asked_about_the_transaction_of_one_that_went() {
    let (folder, store) = store();
    let quick = folder.path().join("quick.conf");
    let settings = "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n\
        transactionTimeOut=50\ntransactionCheckInterval=50\ntransactionCheckMax=1000\n";
    std::fs::write(&quick, settings).unwrap();
    let ports = "--listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0 --broker-name b";
    let daemon =
        Daemon::spawn(&format!("{ports} --store-dir {} --config {}", store.display(), quick.display()));
    let gone = connect(&daemon).await;
    let ignorant = gone.producer("p").checker(|_| async { Decision::Unknown }).start().await.unwrap();
    let undecided = ignorant.begin(Message::new("paid", "half")).await.unwrap();
    let half = undecided.message_id().to_owned();
    drop((undecided, ignorant));
    gone.shutdown().await;

    let client = connect(&daemon).await;
    let (tell, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let checker = move |message: Received| {
        // A broker that asks twice may do so when the test is over.
        let _ = tell.send(message.message_id());
        async { Decision::Commit }
    };
    // It sends nothing: that it has started is enough for the broker to ask it.
    let _knowing = client.producer("p").checker(checker).start().await.unwrap();
    assert_eq!(timeout(LIMIT, asked.recv()).await.expect("it is asked"), Some(half));
    let mut paid = client.consumer("g").subscribe("paid", "*").from_first().stream().await.unwrap();
    assert_eq!(bodies(&mut paid, 1).await, ["half"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_committed_and_asked_for_by_hand() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let client = connect(&daemon).await;
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let queue = producer.send(Message::new("offsets", "x")).await.unwrap().queue;
    let unknown = client.commit("g", &queue, 1).await.unwrap_err();
    assert_eq!(unknown.code(), Some(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST), "{unknown}");
    let _member = client.consumer("g").subscribe("elsewhere", "*").stream().await.unwrap();
    assert_eq!(client.committed("g", &queue).await.unwrap(), None);
    client.commit("g", &queue, 1).await.unwrap();
    assert_eq!(client.committed("g", &queue).await.unwrap(), Some(1));
    assert_eq!(client.min_offset(&queue).await.unwrap(), 0);
    assert_eq!(client.offset_at(&queue, 0).await.unwrap(), 0);
    let nothing = client.pull(&queue, &PullRequest::from("g", 1)).await.unwrap();
    assert_eq!((nothing.status, nothing.messages.len()), (PullStatus::NothingNew, 0));
    let beyond = client.pull(&queue, &PullRequest::from("g", 99)).await.unwrap();
    assert_eq!((beyond.status, beyond.next_offset), (PullStatus::OffsetMoved, 1));
    let missing = troupemq::Queue { queue_id: 77, ..queue };
    let error = client.pull(&missing, &PullRequest::from("g", 0)).await.unwrap_err();
    assert_eq!(error.code(), Some(ResponseCode::INVALID_PARAMETER), "{error}");
}
