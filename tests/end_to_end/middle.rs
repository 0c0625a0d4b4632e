//! The end in the middle of everything: a name server that goes while its clients work, and an embedded broker that is
//! shut down while all its handles are in use.
//!
//! Invariants:
//! - whatever is waited for ends, with success or with a reason; what was acknowledged is there afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use troupemq::{
    Broker, Client, ClientError, Decision, Deliveries, Listener, Message, Outcome, Producer, PullRequest,
    PullStatus, Queue, Reply, Transaction,
};

use crate::daemon::{Daemon, LIMIT};

const FOR_EVER: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn a_name_server_that_is_killed_stops_nobody_who_knows_the_way_and_is_found_when_it_is_back() {
    let mut names = Daemon::spawn("namesrv --listen 127.0.0.1:0");
    let address = names.name_server.expect("it is one").to_string();
    let builder = Broker::builder().temporary().listen(([127, 0, 0, 1], 0)).name_servers(&address);
    let broker = builder.start().await.unwrap();
    let client = Client::builder().name_servers(&address).connect().await.unwrap();
    client.create_topic("known", 2).await.unwrap();
    let producer = client.producer("p").start().await.unwrap();
    producer.send(Message::new("known", "before")).await.unwrap();
    let mut known = client.consumer("g").subscribe("known", "*").from_first().stream().await.unwrap();

    names.kill();
    for _ in 0..10 {
        producer.send(Message::new("known", "without it")).await.expect("the way is known");
    }
    for _ in 0..11 {
        let delivery = timeout(LIMIT, known.next()).await.expect("messages come").unwrap().unwrap();
        delivery.ack().await.unwrap();
    }
    let error = producer.send(Message::new("new", "x")).await.unwrap_err();
    assert!(error.is_transport() && error.to_string().contains(&address), "it is named: {error}");

    let _names = Daemon::spawn(&format!("namesrv --listen {address}"));
    let found = async {
        while let Err(error) = producer.send(Message::new("new", "x")).await {
            let is_expected = error.is_transport() || matches!(error, ClientError::NoRoute { .. });
            assert!(is_expected, "until the broker has registered: {error}");
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT * 2, found).await.expect("it is found again");
    timeout(LIMIT, client.shutdown()).await.expect("it ends");
    broker.shutdown().await.unwrap();
}

/// Sends until that fails; says what was acknowledged, and why it ended.
async fn send_on(producer: Producer, in_batches: bool) -> (Vec<(Queue, i64)>, ClientError) {
    let mut stored = Vec::new();
    loop {
        let sent = match in_batches {
            true => producer.send_batch(&[Message::new("t", "x"), Message::new("t", "y")]).await,
            false => producer.send(Message::new("t", "x")).await,
        };
        match sent {
            Ok(receipt) => stored.push((receipt.queue, receipt.queue_offset)),
            Err(error) => return (stored, error),
        }
    }
}

/// Every offset of a queue that has a message.
async fn offsets(client: &Client, queue: &Queue) -> BTreeSet<i64> {
    let mut all = BTreeSet::new();
    let mut wanted = PullRequest::from("auditor", 0);
    loop {
        let pulled = client.pull(queue, &wanted).await.expect("the broker serves");
        if pulled.status == PullStatus::NothingNew {
            return all;
        }
        all.extend(pulled.messages.iter().map(|message| message.queue_offset));
        wanted.queue_offset = pulled.next_offset;
    }
}

/// All handles of a broker, each at work.
struct AtWork {
    listeners: Vec<Listener>,
    stream: Deliveries,
    senders: JoinSet<(Vec<(Queue, i64)>, ClientError)>,
    half: Transaction,
    request: JoinHandle<Result<Reply, ClientError>>,
}

impl AtWork {
    /// Begins, and returns when everything has had something to do.
    async fn begin(broker: &Broker) -> Result<AtWork, ClientError> {
        broker.client().create_topic("t", 4).await?;
        let handled = Arc::new(AtomicUsize::new(0));
        let mut listeners = Vec::new();
        for (group, in_order) in [("side-by-side", false), ("in-order", true)] {
            let handling = handled.clone();
            let consumer = broker.consumer(group).subscribe("t", "*").from_first();
            let consumer = if in_order { consumer.in_order() } else { consumer };
            let listening = consumer.listen(move |_| {
                handling.fetch_add(1, Ordering::SeqCst);
                async { Outcome::Done }
            });
            listeners.push(listening.await?);
        }
        let mut stream = broker.consumer("stream").subscribe("t", "*").from_first().stream().await?;
        let (tell, mut asked) = mpsc::unbounded_channel();
        let questions = broker.consumer("questions").subscribe("questions", "*").from_first();
        let silent = questions.listen(move |_| {
            let told = tell.send(());
            async move { told.map_or(Outcome::Again, |()| Outcome::Done) }
        });
        listeners.push(silent.await?);
        let mut senders = JoinSet::new();
        for number in 0..6 {
            let producer = broker.producer("p").send_timeout(FOR_EVER).start().await?;
            senders.spawn(send_on(producer, number % 2 == 0));
        }
        let payments = broker.producer("payments").checker(|_| async { Decision::Unknown }).start().await?;
        let half = payments.begin(Message::new("t", "half")).await?;
        let asking = broker.producer("asks").start().await?;
        let question = Message::new("questions", "?");
        let request = tokio::spawn(async move { asking.request(question, FOR_EVER).await });
        asked.recv().await.expect("the question comes");
        while handled.load(Ordering::SeqCst) < 200 {
            stream.next().await.expect("the broker runs")?.ack().await?;
        }
        Ok(AtWork { listeners, stream, senders, half, request })
    }

    /// Returns when everything has ended; says where the messages are that were acknowledged.
    async fn ended(mut self) -> Vec<(Queue, i64)> {
        let mut acknowledged = Vec::new();
        while let Some(ended) = self.senders.join_next().await {
            let (stored, error) = ended.expect("a sender ends");
            let says_why = matches!(error, ClientError::ShutDown { .. }) || error.is_transport();
            assert!(says_why, "{error}");
            acknowledged.extend(stored);
        }
        self.request.await.expect("the request ends").expect_err("nobody answers any more");
        self.half.commit().await.expect_err("nobody takes the decision any more");
        for listener in self.listeners {
            listener.shutdown().await;
        }
        while self.stream.next().await.is_some() {}
        acknowledged
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_broker_that_is_shut_down_while_all_its_handles_work_keeps_what_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let small = |store: &mut troupemq::StoreConfig| store.log_segment_bytes = 4 << 20;
    let builder = Broker::builder().store_dir(folder.path()).store_settings(small);
    let broker = builder.clone().start().await.unwrap();
    let at_work = timeout(LIMIT * 2, AtWork::begin(&broker)).await.expect("all work").unwrap();
    timeout(LIMIT, broker.shutdown()).await.expect("it ends").expect("in order");
    let acknowledged = timeout(LIMIT, at_work.ended()).await.expect("everything ends with the broker");

    let again = builder.start().await.expect("the folder is free at once");
    for queue in again.client().queues("t").await.unwrap() {
        let there = offsets(again.client(), &queue).await;
        let wanted = acknowledged.iter().filter(|(of, _)| *of == queue).map(|(_, offset)| *offset);
        let lost: Vec<_> = wanted.filter(|offset| !there.contains(offset)).collect();
        assert!(lost.is_empty(), "{queue}: {lost:?} were acknowledged and are not there");
    }
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    again.shutdown().await.unwrap();
}
