//! The end of what a client does: with brokers that are silent, and with futures that are dropped half way.
//!
//! Invariants:
//! - limits of the client that a test is about are an hour, so that a wait for the wrong thing is a failure.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use troupemq::{Broker, BrokerError, Client, ClientError, Decision, Message, Outcome, Received};
use troupemq_codec::request::{
    ConsumerSendMsgBack, PullMessage, SendBatchMessage, SendMessageV2, UpdateConsumerOffset,
};
use troupemq_codec::{Command, Request};

use crate::client_trouble::pair;
use crate::daemon::{LIMIT, until};
use crate::proxy::{Behind, Verdict};

const FOR_EVER: Duration = Duration::from_secs(3600);
/// Long enough for a future to be on its way, which none of these tests needs it to be.
const HALF_WAY: Duration = Duration::from_millis(20);

/// Loses the first request of a kind, and how many of it came.
fn loses_the_first(code: i32) -> (impl Fn(&Command) -> Verdict + Send + Sync, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counting = seen.clone();
    let judge =
        move |command: &Command| match command.code == code && counting.fetch_add(1, Ordering::SeqCst) == 0 {
            true => Verdict::Lose,
            false => Verdict::Pass,
        };
    (judge, seen)
}

/// Drops a future when its request was lost.
async fn dropped_when_lost<T: Debug>(seen: &AtomicUsize, future: impl Future<Output = T>) {
    tokio::select! {
        ended = future => panic!("nobody answers it: {ended:?}"),
        () = until("it is on its way", async || seen.load(Ordering::SeqCst) > 0) => {}
    }
}

/// Drops a future when it has waited for a while.
async fn dropped_half_way<T>(future: impl Future<Output = T>) {
    assert!(timeout(HALF_WAY, future).await.is_err(), "it waits for something that does not come");
}

/// Tasks of this runtime.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn until_there_are(count: usize) {
    until(&format!("{count} tasks are left"), async || tasks() <= count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_waits_not_long_for_a_broker_that_is_silent_and_commits_at_the_others() {
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = hangs.clone();
    let silent =
        move |_: &Command| if hanging.load(Ordering::SeqCst) { Verdict::Lose } else { Verdict::Pass };
    let (good, bad, _) = pair(silent).await;
    bad.broker.client().create_topic("many", 16).await.unwrap();
    let builder = Client::builder().name_servers(&good.names()).request_timeout(FOR_EVER);
    let client = builder.connect().await.unwrap();
    client.await_route("many").await.unwrap();
    let producer = client.producer("p").trace(true).start().await.unwrap();
    let consumer = client.consumer("g").subscribe("both", "*").subscribe("many", "*").from_first();
    let mut all = consumer.stream().await.unwrap();
    let mut queues = client.writable_queues("both").await.unwrap();
    queues.extend(client.writable_queues("many").await.unwrap());
    assert_eq!(queues.len(), 20);
    for queue in &queues {
        producer.send_to(queue, Message::new(&*queue.topic, "x")).await.unwrap();
    }
    for _ in &queues {
        let delivery = timeout(LIMIT, all.next()).await.expect("in time").unwrap().unwrap();
        delivery.ack().await.unwrap();
    }
    hangs.store(true, Ordering::SeqCst);
    timeout(LIMIT, client.shutdown()).await.expect("nobody is waited for one queue after the other");
    let there = good.broker.client();
    for queue in queues.iter().filter(|queue| queue.broker_name == "good") {
        assert_eq!(there.committed("g", queue).await.unwrap(), Some(1), "{queue}");
    }
    for broker in [bad.broker, good.broker] {
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_is_committed_while_another_broker_is_silent() {
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = hangs.clone();
    let silent =
        move |_: &Command| if hanging.load(Ordering::SeqCst) { Verdict::Lose } else { Verdict::Pass };
    let (good, bad, client) = pair(silent).await;
    let producer = good.broker.producer("p").start().await.unwrap();
    let mut all = client.consumer("g").subscribe("both", "*").from_first().stream().await.unwrap();
    let there = good.broker.client();
    let queues = there.writable_queues("both").await.unwrap();
    let each = async |count: i64| {
        for queue in &queues {
            producer.send_to(queue, Message::new("both", "x")).await.unwrap();
        }
        count
    };
    let mut count = each(1).await;
    for _ in &queues {
        timeout(LIMIT, all.next()).await.expect("in time").unwrap().unwrap().ack().await.unwrap();
    }
    hangs.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        count = each(count + 1).await;
        for _ in &queues {
            timeout(LIMIT, all.next()).await.expect("in time").unwrap().unwrap().ack().await.unwrap();
        }
        for queue in &queues {
            let is_committed = async || there.committed("g", queue).await.unwrap() == Some(count);
            until("the progress is committed", is_committed).await;
        }
    }
    for broker in [bad.broker, good.broker] {
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_a_queue_over_commits_nothing_but_what_it_has_done() {
    let (pulls, commits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (pulling, committing) = (pulls.clone(), commits.clone());
    let behind = Behind::start(move |command| {
        let topic = command.fields.get("topic").or_else(|| command.fields.get("b"));
        if topic == Some("t") {
            pulling.fetch_add(usize::from(command.code == PullMessage::CODE), Ordering::SeqCst);
            committing.fetch_add(usize::from(command.code == UpdateConsumerOffset::CODE), Ordering::SeqCst);
        }
        Verdict::Pass
    });
    let behind = behind.await;
    let client = behind.client().await;
    let there = behind.broker.client();
    there.create_topic("t", 1).await.unwrap();
    there.producer("p").start().await.unwrap().send(Message::new("t", "x")).await.unwrap();
    let queue = there.queues("t").await.unwrap().remove(0);
    let mut earlier = there.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    timeout(LIMIT, earlier.next()).await.expect("in time").unwrap().unwrap().ack().await.unwrap();
    earlier.shutdown().await;
    assert_eq!(there.committed("g", &queue).await.unwrap(), Some(1));
    let all = client.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    until("the queue is taken up", async || pulls.load(Ordering::SeqCst) > 0).await;
    timeout(LIMIT, all.shutdown()).await.expect("it ends");
    assert_eq!(commits.load(Ordering::SeqCst), 0, "nothing was done");
    assert_eq!(there.committed("g", &queue).await.unwrap(), Some(1));
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_dropped_all_the_time_hold_up_no_commit() {
    let behind = Behind::start(|command| match command.code == ConsumerSendMsgBack::CODE {
        true => Verdict::Lose,
        false => Verdict::Pass,
    });
    let behind = behind.await;
    let builder = Client::builder().name_servers(&behind.names()).request_timeout(FOR_EVER);
    let client = builder.connect().await.unwrap();
    client.create_topic("t", 2).await.unwrap();
    let producer = client.producer("p").start().await.unwrap();
    let queues = client.writable_queues("t").await.unwrap();
    for queue in &queues {
        for _ in 0..100 {
            producer.send_to(queue, Message::new("t", "x")).await.unwrap();
        }
    }
    let mut all = client.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    for _ in 0..200 {
        let delivery = timeout(LIMIT, all.next()).await.expect("in time").unwrap().unwrap();
        match delivery.message().queue().queue_id {
            0 => drop(delivery),
            _ => delivery.ack().await.unwrap(),
        }
    }
    let there = behind.broker.client();
    let is_committed = async || there.committed("g", &queues[1]).await.unwrap() == Some(100);
    until("the progress of the other queue is committed", is_committed).await;
    assert_eq!(
        there.committed("g", &queues[0]).await.unwrap().unwrap_or(0),
        0,
        "nothing of it was sent back"
    );
    timeout(LIMIT, client.shutdown()).await.expect("the end is not held up either");
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_its_end_a_client_begins_nothing_more() {
    let behind = Behind::start(|_| Verdict::Pass).await;
    let far = behind.client().await;
    for client in [&far, behind.broker.client()] {
        client.create_topic("t", 1).await.unwrap();
        client.queues("t").await.unwrap();
        let producer = client.producer("p").start().await.unwrap();
        client.shutdown().await;
        let is_over = |error: ClientError| assert!(matches!(error, ClientError::ShutDown { .. }), "{error}");
        is_over(client.producer("q").start().await.unwrap_err());
        is_over(client.consumer("g").subscribe("t", "*").stream().await.unwrap_err());
        is_over(client.queues("t").await.unwrap_err());
        is_over(client.writable_queues("new").await.unwrap_err());
        is_over(producer.send(Message::new("t", "x")).await.unwrap_err());
        timeout(LIMIT, client.shutdown()).await.expect("a second end changes nothing");
    }
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_dropped_half_way_disturbs_nobody() {
    let (judge, seen) = loses_the_first(SendBatchMessage::CODE);
    let behind = Behind::start(judge).await;
    let client = behind.client().await;
    client.create_topic("t", 1).await.unwrap();
    let producer = client.producer("p").send_timeout(FOR_EVER).start().await.unwrap();
    let batch = [Message::new("t", "one"), Message::new("t", "two")];
    dropped_when_lost(&seen, producer.send_batch(&batch)).await;
    let receipt = timeout(LIMIT, producer.send_batch(&batch)).await.expect("in time").unwrap();
    assert_eq!(receipt.queue_offset, 0, "the first was lost");
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_dropped_half_way_is_decided_by_its_checker() {
    let quick = |settings: &mut troupemq::BrokerConfig| {
        settings.transaction_time_out = 50;
        settings.transaction_check_interval = 50;
        // A slow machine may need many.
        settings.transaction_check_max = 1000;
    };
    let (judge, seen) = loses_the_first(SendMessageV2::CODE);
    let any = ([127, 0, 0, 1], 0);
    let behind =
        Behind::start_with(judge, |builder| builder.listen_as_name_server(any).settings(quick)).await;
    let client = behind.client().await;
    client.create_topic("t", 1).await.unwrap();
    let producer = client.producer("p").send_timeout(FOR_EVER).checker(|_| async { Decision::Commit });
    let producer = producer.start().await.unwrap();
    dropped_when_lost(&seen, producer.begin(Message::new("t", "lost"))).await;
    let begun = timeout(LIMIT, producer.begin(Message::new("t", "kept"))).await.expect("in time").unwrap();
    // Never polled: the decision has not left.
    drop(begun.commit());
    let mut all = client.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    let delivery = timeout(LIMIT, all.next()).await.expect("the checker decides").unwrap().unwrap();
    assert_eq!(&delivery.message().body()[..], b"kept");
    behind.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dropped_half_way_leaves_its_reply_to_nobody() {
    let broker = Broker::builder().temporary().start().await.unwrap();
    let answering = broker.producer("answers").start().await.unwrap();
    let asking = broker.producer("asks").start().await.unwrap();
    let (tell, mut asked) = mpsc::unbounded_channel();
    let (answer, answered) = tokio::sync::watch::channel(false);
    let consumer = broker.consumer("g").subscribe("questions", "*").from_first();
    let listening = consumer.listen(move |question: Received| {
        let (answering, mut answered) = (answering.clone(), answered.clone());
        let told = tell.send(question.body().clone());
        async move {
            let may = answered.wait_for(|may| *may).await.is_ok() && told.is_ok();
            if may && answering.reply(&question, question.body().clone()).await.is_ok() {
                return Outcome::Done;
            }
            // Who asked is gone: nobody wants it again.
            Outcome::Done
        }
    });
    let listener = listening.await.unwrap();
    let first = asking.request(Message::new("questions", "first"), FOR_EVER);
    tokio::select! {
        reply = first => panic!("nobody answers yet: {reply:?}"),
        body = asked.recv() => assert_eq!(&body.unwrap()[..], b"first"),
    }
    answer.send(true).unwrap();
    let second = asking.request(Message::new("questions", "second"), FOR_EVER);
    let reply = timeout(LIMIT, second).await.expect("in time").unwrap();
    assert_eq!(&reply.body[..], b"second", "each reply finds its own question");
    listener.shutdown().await;
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_end_that_is_dropped_half_way_leaves_no_task_when_the_handles_are_gone() {
    let before = tasks();
    let behind = Behind::start(|_| Verdict::Pass).await;
    let idle = tasks();
    for is_whole_client in [false, true] {
        let client = behind.client().await;
        let producer = client.producer("p").start().await.unwrap();
        producer.send(Message::new("t", "x")).await.unwrap();
        let (tell, mut begun) = mpsc::unbounded_channel();
        let group = if is_whole_client { "client" } else { "listener" };
        let consumer = client.consumer(group).subscribe("t", "*").from_first().in_order();
        let listening = consumer.listen(move |_| {
            let told = tell.send(());
            async move {
                std::future::pending::<()>().await;
                told.map_or(Outcome::Again, |()| Outcome::Done)
            }
        });
        let listener = listening.await.unwrap();
        timeout(LIMIT, begun.recv()).await.expect("in time").unwrap();
        if is_whole_client {
            dropped_half_way(client.shutdown()).await;
            timeout(LIMIT, client.shutdown()).await.expect("asked again it comes to its end");
            drop(listener);
        } else {
            dropped_half_way(listener.shutdown()).await;
        }
        drop((client, producer));
        assert!(tasks() >= idle);
    }
    behind.broker.shutdown().await.unwrap();
    drop(behind);
    until_there_are(before).await;
}

#[tokio::test]
async fn a_start_that_is_dropped_half_way_leaves_nothing() {
    let before = tasks();
    let folder = tempfile::tempdir().unwrap();
    let any = ([127, 0, 0, 1], 0);
    let start = || {
        let builder = Broker::builder().store_dir(folder.path()).listen(any).listen_as_name_server(any);
        builder.store_settings(|store| store.log_segment_bytes = 32 << 20).start()
    };
    let (mut cut_short, mut patience) = (0, Duration::ZERO);
    // Later and later, until it is not dropped any more.
    let started = async {
        loop {
            match timeout(patience, start()).await {
                Err(_) => {
                    cut_short += 1;
                    patience += patience / 4 + Duration::from_millis(1);
                }
                Ok(Ok(broker)) => return broker,
                // The one before is on its way out.
                Ok(Err(BrokerError::Node(_))) => tokio::task::yield_now().await,
                Ok(Err(error)) => panic!("{error}"),
            }
        }
    };
    timeout(LIMIT, started).await.expect("the folder is free again").shutdown().await.unwrap();
    assert!(cut_short > 0);
    let opened = async {
        loop {
            match start().await {
                Ok(broker) => return broker,
                Err(error) => assert!(error.to_string().contains("is open in another process"), "{error}"),
            }
        }
    };
    let broker = timeout(LIMIT, opened).await.expect("the folder is free again");
    let ports = BTreeSet::from([broker.address(), broker.name_server_address()]);
    assert_eq!(ports.len(), 2);
    broker.shutdown().await.unwrap();
    drop(broker);
    until_there_are(before).await;
}
