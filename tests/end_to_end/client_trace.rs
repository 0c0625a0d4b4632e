//! Traces of the client: what it tells of its messages in the topic of traces.
//!
//! Invariants:
//! - a test waits for records, never for time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::timeout;
use troupemq::{Broker, Client, Decision, Message, PullRequest};

use crate::daemon::LIMIT;

const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";

/// All records in the topic of traces, as lists of their fields.
async fn records(client: &Client) -> Vec<Vec<String>> {
    let mut records = Vec::new();
    for queue in client.queues(TRACE_TOPIC).await.expect("traces can be read") {
        let mut wanted = PullRequest::from("reader of traces", 0);
        loop {
            let pulled = client.pull(&queue, &wanted).await.expect("traces can be read");
            if pulled.messages.is_empty() {
                break;
            }
            wanted.queue_offset = pulled.next_offset;
            for message in pulled.messages {
                let body = String::from_utf8(message.body.to_vec()).expect("traces can be read");
                let all = body.split_terminator('\u{2}');
                records.extend(all.map(|record| record.split('\u{1}').map(str::to_owned).collect()));
            }
        }
    }
    records
}

/// Waits until there are records of these kinds, in any order.
async fn until(client: &Client, kinds: &[&str]) -> Vec<Vec<String>> {
    let mut kinds: Vec<_> = kinds.to_vec();
    kinds.sort_unstable();
    let all = async {
        loop {
            let records = records(client).await;
            let mut found: Vec<_> = records.iter().map(|record| record[0].clone()).collect();
            found.sort_unstable();
            if found == kinds {
                return records;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, all).await.expect("the traces come")
}

fn of<'a>(records: &'a [Vec<String>], kind: &str) -> &'a [String] {
    records.iter().find(|record| record[0] == kind).expect("there is one")
}

#[tokio::test]
async fn both_sides_tell_what_happens_to_a_message() {
    let broker = Broker::builder().temporary().start().await.unwrap();
    let client = broker.client();
    let producer = broker.producer("writers").trace(true).start().await.unwrap();
    let message = Message::new("traced", "hello").tag("new").key("k1").key("k2");
    let receipt = producer.send(message).await.unwrap();
    let consumer = broker.consumer("readers").subscribe("traced", "*").from_first().trace(true);
    let mut traced = consumer.stream().await.unwrap();
    timeout(LIMIT, traced.next()).await.unwrap().unwrap().unwrap().ack().await.unwrap();

    let records = until(client, &["Pub", "SubBefore", "SubAfter"]).await;
    let id = receipt.message_id.as_str();
    let sent = of(&records, "Pub");
    assert_eq!(sent[2..8], ["DefaultRegion", "writers", "traced", id, "new", "k1 k2"]);
    assert_eq!((sent[9].as_str(), sent[11].as_str()), ("5", "0"));
    assert_eq!(sent[12..], [receipt.offset_id.clone(), "true".to_owned()]);
    let (before, after) = (of(&records, "SubBefore"), of(&records, "SubAfter"));
    assert_eq!(before[3], "readers");
    assert_eq!(before[5..], [id, "0", "k1 k2"]);
    assert_eq!(after[1], before[4], "one delivery, one request id");
    assert_eq!((after[2].as_str(), after[4].as_str(), after[6].as_str()), (id, "true", "0"));

    // Traces are found by id and by key, as mqadmin looks for them.
    for key in [id, "k2"] {
        let found = client.admin().messages_by_key(TRACE_TOPIC, key, (0, i64::MAX), 32).await.unwrap();
        assert!(!found.is_empty(), "{key}");
    }
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn batches_transactions_and_failures_have_their_own_records() {
    let broker = Broker::builder().temporary().start().await.unwrap();
    let client = broker.client();
    let checker = |_| async { Decision::Unknown };
    let producer = broker.producer("p").trace(true).checker(checker).start().await.unwrap();
    let batch = [Message::new("t", "1"), Message::new("t", "22")];
    let receipt = producer.send_batch(&batch).await.unwrap();
    let transaction = producer.begin(Message::new("t", "half")).await.unwrap();
    let half = transaction.message_id().to_owned();
    transaction.rollback().await.unwrap();
    let consumer = broker.consumer("g").subscribe("t", "*").from_first().trace(true);
    let mut all = consumer.stream().await.unwrap();
    timeout(LIMIT, all.next()).await.unwrap().unwrap().unwrap().give_up().await.unwrap();

    let kinds = ["Pub", "Pub", "Pub", "EndTransaction", "SubBefore", "SubAfter"];
    let records = until(client, &kinds).await;
    let sent: Vec<_> = records.iter().filter(|record| record[0] == "Pub").collect();
    let ids: Vec<_> = receipt.message_id.split(',').chain([half.as_str()]).collect();
    assert_eq!(sent.iter().map(|record| record[5].as_str()).collect::<Vec<_>>(), ids);
    let types: Vec<_> = sent.iter().map(|record| (record[9].as_str(), record[11].as_str())).collect();
    assert_eq!(types, [("1", "0"), ("2", "0"), ("4", "1")]);
    let ended = of(&records, "EndTransaction");
    assert_eq!((ended[5].as_str(), ended[11].as_str()), (half.as_str(), "ROLLBACK_MESSAGE"));
    let failed = of(&records, "SubAfter");
    assert_eq!((failed[4].as_str(), failed[6].as_str()), ("false", "4"));
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_a_checker_decides_is_told_too() {
    let any = ([127, 0, 0, 1], 0);
    let quick = |settings: &mut troupemq::BrokerConfig| {
        settings.transaction_time_out = 50;
        settings.transaction_check_interval = 50;
        settings.transaction_check_max = 1000;
    };
    let builder = Broker::builder().temporary().settings(quick).listen(any).listen_as_name_server(any);
    let broker = builder.start().await.unwrap();
    let names = broker.name_server_address().unwrap().to_string();
    let far = Client::builder().name_servers(&names).connect().await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let checker = move |_| {
        let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
        async move { if is_first { Decision::Unknown } else { Decision::Commit } }
    };
    let producer = far.producer("p").trace(true).checker(checker).start().await.unwrap();
    let undecided = producer.begin(Message::new("t", "half").tag("new").key("k1")).await.unwrap();
    let half = undecided.message_id().to_owned();
    drop(undecided);
    let told = async {
        loop {
            let mut ended = records(broker.client()).await;
            ended.retain(|record| record[0] == "EndTransaction");
            if ended.iter().any(|record| record[11] == "COMMIT_MESSAGE") {
                return ended;
            }
            tokio::task::yield_now().await;
        }
    };
    let mut ended = timeout(LIMIT, told).await.expect("the decisions are told");
    let address = broker.address().unwrap().to_string();
    ended.sort_by(|one, other| one[1].cmp(&other[1]));
    // The broker asks until it hears a decision, and may have asked once more before it heard it.
    let decisions = std::iter::once("UNKNOW").chain(std::iter::repeat("COMMIT_MESSAGE"));
    for (record, decision) in ended.iter().zip(decisions) {
        let expected =
            ["DefaultRegion", "p", "t", &half, "new", "k1", &address, "2", &half, decision, "true"];
        assert_eq!(record[2..], expected);
    }
    far.shutdown().await;
    broker.shutdown().await.unwrap();
}

/// What is told by the time that a client has ended which sent a message with and one without traces, its producers
/// dropped before that or not.
async fn told_by_the_end(trace_on: bool, is_dropped: bool) -> Vec<Vec<String>> {
    let any = ([127, 0, 0, 1], 0);
    let builder = Broker::builder().temporary().listen(any).listen_as_name_server(any);
    let broker =
        builder.settings(|settings| settings.trace_on = trace_on).start().await.expect("the broker serves");
    let names = broker.name_server_address().expect("the broker serves").to_string();
    let far = Client::builder().name_servers(&names).connect().await.expect("the broker serves");
    let silent = far.producer("silent").start().await.expect("the broker serves");
    let telling = far.producer("telling").trace(true).start().await.expect("the broker serves");
    for producer in [&silent, &telling] {
        producer.send(Message::new("t", "x")).await.expect("the broker serves");
    }
    let kept = (!is_dropped).then_some((silent, telling));
    far.shutdown().await;
    drop(kept);
    let records = records(broker.client()).await;
    broker.shutdown().await.expect("the broker serves");
    records
}

#[tokio::test]
async fn a_shutdown_sends_what_was_not_sent_yet() {
    for is_dropped in [false, true] {
        let records = told_by_the_end(true, is_dropped).await;
        assert_eq!(records.len(), 1, "{is_dropped}: {records:?}");
        assert_eq!((records[0][0].as_str(), records[0][3].as_str()), ("Pub", "telling"));
    }
}

#[tokio::test]
async fn a_broker_that_wants_no_traces_gets_none() {
    assert_eq!(told_by_the_end(false, false).await, Vec::<Vec<String>>::new());
}
