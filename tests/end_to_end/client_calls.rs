//! What brokers ask of a client, mostly for tools: 307, 309, 220, 221; and what it takes back: recall.
//!
//! Invariants:
//! - the client is a far one, so that both sides write and read what goes over the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use troupemq::{Broker, Client, Decision, Message, Outcome, Received, ResetTo, ResponseCode};
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::message::message_id::OffsetId;
use troupemq_codec::request::{
    ConsumeDirectlyResult, ConsumeMessageDirectly, ConsumeMessageDirectlyHeader, ConsumerRunningInfo,
    ConsumerStatus, DirectResult, EndTransaction, EndTransactionHeader, GetConsumerRunningInfo,
    GetConsumerRunningInfoHeader, InvokeBrokerToGetConsumerStatus, InvokeBrokerToGetConsumerStatusHeader,
    TRANSACTION_ROLLBACK, UpdateConsumerOffset, UpdateConsumerOffsetHeader,
};
use troupemq_codec::{Command, Request};

use crate::daemon::LIMIT;
use crate::proxy::{Behind, Verdict};

async fn start() -> (Broker, Client) {
    start_with(|_| ()).await
}

async fn start_with(settings: impl FnOnce(&mut troupemq::BrokerConfig)) -> (Broker, Client) {
    let any = ([127, 0, 0, 1], 0);
    let builder = Broker::builder().temporary().listen(any).listen_as_name_server(any).settings(settings);
    let broker = builder.start().await.expect("the broker starts");
    let names = broker.name_server_address().expect("it has one").to_string();
    let client = Client::builder().name_servers(&names).connect().await.expect("it listens");
    (broker, client)
}

fn text(message: &Received) -> String {
    String::from_utf8(message.body().to_vec()).expect("the body is text")
}

async fn next<T>(from: &mut mpsc::UnboundedReceiver<T>) -> T {
    timeout(LIMIT, from.recv()).await.expect("it comes in time").expect("the sender lives")
}

#[tokio::test]
async fn a_consumer_tells_what_it_does_and_how_far_it_is() {
    let (broker, client) = start().await;
    let address = broker.address().unwrap().to_string();
    client.create_topic("t", 1).await.unwrap();
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    producer.send(Message::new("t", "x").tag("a")).await.unwrap();
    let mut all = client.consumer("g").subscribe("t", "a || b").from_first().stream().await.unwrap();
    let held = timeout(LIMIT, all.next()).await.unwrap().unwrap().unwrap();

    let header = GetConsumerRunningInfoHeader {
        group: "g".into(),
        client_id: client.client_id().into(),
        with_stacks: Some(false),
    };
    let admin = broker.client().admin();
    let asked = admin.ask::<GetConsumerRunningInfo>(&address, &header, Bytes::new()).await.unwrap();
    let info: ConsumerRunningInfo = from_loose(&asked.1).unwrap();
    assert_eq!(info.properties["PROP_CONSUMEORDERLY"].as_str(), "false");
    let subscribed = info.subscription_set.iter().find(|subscription| subscription.topic == "t").unwrap();
    assert_eq!(subscribed.sub_string.as_str(), "a || b");
    let (_, queue) = info.pulled_queues.iter().find(|(queue, _)| queue.topic == "t").unwrap();
    assert_eq!((queue.cached_msg_count, queue.commit_offset), (1, 0));

    // The status is asked again until the acknowledgement has reached the member's task.
    held.ack().await.unwrap();
    let header =
        InvokeBrokerToGetConsumerStatusHeader { topic: "t".into(), group: "g".into(), client_address: None };
    let told = async {
        loop {
            let asked = admin.ask::<InvokeBrokerToGetConsumerStatus>(&address, &header, Bytes::new()).await;
            let told: ConsumerStatus = from_loose(&asked.unwrap().1).unwrap();
            let own = told
                .consumer_table
                .get(&troupemq::Text::from(client.client_id()))
                .expect("the client answers");
            if own.iter().any(|(queue, queue_offset)| queue.topic == "t" && *queue_offset == 1) {
                return;
            }
        }
    };
    timeout(LIMIT, told).await.expect("the progress is told");
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_message_is_consumed_at_once_when_a_tool_wants_it() {
    let (broker, client) = start().await;
    let address = broker.address().unwrap().to_string();
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let receipt = producer.send(Message::new("t", "x")).await.unwrap();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let panics = Arc::new(AtomicBool::new(false));
    let panicking = panics.clone();
    let listener = client.consumer("g").subscribe("elsewhere", "*").listen(move |message| {
        let (tell, panics) = (tell.clone(), panicking.load(Ordering::Relaxed));
        async move {
            assert!(!panics, "a panic that the test wants");
            tell.send(text(&message)).unwrap();
            Outcome::Done
        }
    });
    let listener = listener.await.unwrap();
    let header = ConsumeMessageDirectlyHeader {
        group: "g".into(),
        client_id: Some(client.client_id().into()),
        message_id: Some(receipt.offset_id.as_str().into()),
        topic: Some("t".into()),
        ..Default::default()
    };
    let admin = broker.client().admin();
    for (panic, expected) in [(false, DirectResult::Success), (true, DirectResult::Later)] {
        panics.store(panic, Ordering::Relaxed);
        let asked = admin.ask::<ConsumeMessageDirectly>(&address, &header, Bytes::new()).await.unwrap();
        let result: ConsumeDirectlyResult = from_loose(&asked.1).unwrap();
        assert_eq!(result.consume_result, expected);
    }
    assert_eq!(next(&mut seen).await, "x");
    listener.shutdown().await;
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_reset_moves_a_running_consumer() {
    let by_clients = |settings: &mut troupemq::BrokerConfig| settings.use_server_side_reset_offset = false;
    let (broker, client) = start_with(by_clients).await;
    client.create_topic("t", 1).await.unwrap();
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    for n in 0..3 {
        producer.send(Message::new("t", n.to_string())).await.unwrap();
    }
    let (tell, mut seen) = mpsc::unbounded_channel();
    let listener =
        client.consumer("g").subscribe("t", "*").from_first().concurrency(1).listen(move |message| {
            let told = tell.send(text(&message));
            async move { told.map_or(Outcome::Again, |()| Outcome::Done) }
        });
    let listener = listener.await.unwrap();
    for expected in ["0", "1", "2"] {
        assert_eq!(next(&mut seen).await, expected);
    }
    let queue = &client.queues("t").await.unwrap()[0];
    // Only what has a committed offset can be reset.
    client.commit("g", queue, 3).await.unwrap();
    client.admin().reset_offsets("g", "t", ResetTo::Earliest).await.unwrap();
    for expected in ["0", "1", "2"] {
        assert_eq!(next(&mut seen).await, expected);
    }
    listener.shutdown().await;
    assert_eq!(broker.client().committed("g", queue).await.unwrap(), Some(3));
    broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_waits_for_no_commit_and_none_overtakes_another() {
    let (tell_lost, mut lost) = mpsc::unbounded_channel();
    let silent_about_commits = move |command: &Command| {
        let is_one = command.code == UpdateConsumerOffset::CODE
            && command.header::<UpdateConsumerOffsetHeader>().is_ok_and(|header| header.topic == "t");
        match is_one {
            true => tell_lost.send(()).map_or(Verdict::Pass, |()| Verdict::Lose),
            false => Verdict::Pass,
        }
    };
    let behind = Behind::start_with(silent_about_commits, |builder| {
        let by_clients =
            |settings: &mut troupemq::BrokerConfig| settings.use_server_side_reset_offset = false;
        builder.listen_as_name_server(([127, 0, 0, 1], 0)).settings(by_clients)
    });
    let behind = behind.await;
    // Longer than anything else here: whoever waits for the answer to the commit waits too long.
    let builder = Client::builder().name_servers(&behind.names()).request_timeout(4 * LIMIT);
    let client = builder.connect().await.expect("the name server listens");
    client.create_topic("t", 1).await.expect("the broker serves");
    let near = behind.broker.client();
    let producer = near.producer("p").send_timeout(LIMIT).start().await.expect("the broker serves");
    producer.send(Message::new("t", "x")).await.expect("the broker serves");
    let (tell, mut seen) = mpsc::unbounded_channel();
    let listening = client.consumer("g").subscribe("t", "*").from_first().listen(move |message| {
        let told = tell.send(text(&message));
        async move { told.map_or(Outcome::Again, |()| Outcome::Done) }
    });
    let listener = listening.await.expect("the consumer starts");
    assert_eq!(next(&mut seen).await, "x");
    next(&mut lost).await;
    let queue = &near.queues("t").await.expect("the broker serves")[0];
    near.commit("g", queue, 1).await.expect("the broker serves");
    near.admin().reset_offsets("g", "t", ResetTo::Earliest).await.expect("the broker asks the member");
    assert_eq!(next(&mut seen).await, "x", "though a commit of what was before has no answer yet");
    timeout(LIMIT, listener.shutdown()).await.expect("it gives up waiting for the broker");
    assert!(lost.try_recv().is_err(), "no commit is sent while another of its queue is under way");
    behind.broker.shutdown().await.expect("a clean end");
}

#[tokio::test]
async fn a_message_for_later_is_recalled_by_its_handle() {
    let (broker, client) = start_with(|settings| settings.recall_message_enable = true).await;
    let producer = client.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let mut all = client.consumer("g").subscribe("later", "*").from_first().stream().await.unwrap();
    let later = |body: String, after| Message::new("later", body).deliver_after(Duration::from_secs(after));
    // On a slow machine one or the other comes before it is recalled.
    let (mut after, mut handle) = (2, String::new());
    let mut is_recalled = false;
    while !is_recalled {
        let sent = producer.send(later(format!("recalled {after}"), after)).await.unwrap();
        handle = sent.recall_handle.expect("a message for later has a handle");
        is_recalled = producer.recall("later", &handle).await.is_ok();
        after *= 2;
    }
    producer.send(later("kept".to_owned(), after)).await.unwrap();
    let mut came = String::new();
    while came != "kept" {
        let delivery = timeout(LIMIT, all.next()).await.expect("in time").unwrap().unwrap();
        came = text(delivery.message());
        assert_ne!(came, format!("recalled {}", after / 2));
        delivery.ack().await.unwrap();
    }
    let garbled = producer.recall("later", "no handle").await.unwrap_err();
    assert!(garbled.to_string().contains("\"no handle\" is no handle"), "{garbled}");
    let elsewhere = producer.recall("another", &handle).await.unwrap_err();
    assert!(elsewhere.code().is_some_and(|code| code != ResponseCode::SUCCESS), "{elsewhere}");
    assert_eq!(producer.send(Message::new("later", "now")).await.unwrap().recall_handle, None);
    broker.shutdown().await.unwrap();
}

/// A broker in the process takes ends as they are, from others they come as frames; long half messages it reads again.
#[tokio::test]
async fn transactions_end_alike_within_the_process_and_over_a_socket() {
    let (broker, far) = start().await;
    let address = broker.address().unwrap().to_string();
    broker.client().create_topic("t", 1).await.unwrap();
    let mut all = broker.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    let mut answers = Vec::new();
    for client in [broker.client(), &far] {
        let producer = client.producer("p").checker(|_| async { Decision::Unknown }).send_timeout(LIMIT);
        let producer = producer.start().await.unwrap();
        for body in ["short".to_owned(), "long".repeat(16_384)] {
            producer.begin(Message::new("t", "nobody sees it")).await.unwrap().rollback().await.unwrap();
            producer.begin(Message::new("t", body.clone())).await.unwrap().commit().await.unwrap();
            let delivery = timeout(LIMIT, all.next()).await.expect("it is committed").unwrap().unwrap();
            assert!(text(delivery.message()) == body);
        }
        let transaction = producer.begin(Message::new("t", "decided before")).await.unwrap();
        let receipt = transaction.receipt().clone();
        let header = EndTransactionHeader {
            topic: None,
            producer_group: "p".into(),
            queue_offset: receipt.queue_offset,
            log_offset: receipt.offset_id.parse::<OffsetId>().unwrap().log_offset,
            outcome: TRANSACTION_ROLLBACK,
            from_check: None,
            message_id: receipt.message_id.as_str().into(),
            transaction_id: None,
        };
        let admin = client.admin();
        admin.ask::<EndTransaction>(&address, &header, Bytes::new()).await.unwrap();
        let refused = transaction.commit().await.expect_err("the first decision wins").to_string();
        answers.push(refused.replace(&format!("half message {}", receipt.queue_offset), "half message N"));
    }
    assert!(answers[0].contains("END_TRANSACTION") && answers[0].contains("message N"), "{answers:?}");
    assert_eq!(answers[0], answers[1]);
    broker.shutdown().await.unwrap();
}
