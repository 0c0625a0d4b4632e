//! Handles that several runtimes use, some of which nobody drives, or have ended.
//!
//! Invariants:
//! - whatever is waited for has a limit.

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;
use troupemq::{Broker, Client, Message, Producer};
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{ConsumerRunningInfo, GetConsumerRunningInfo, GetConsumerRunningInfoHeader};

use crate::daemon::{LIMIT, until};

/// A runtime that works only while something is waited for in it.
fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn start() -> Broker {
    let any = ([127, 0, 0, 1], 0);
    let builder = Broker::builder().temporary().listen(any).listen_as_name_server(any);
    builder.start().await.expect("the broker starts")
}

async fn far(broker: &Broker) -> Client {
    let names = broker.name_server_address().expect("it has one").to_string();
    let builder = Client::builder().name_servers(&names).request_timeout(LIMIT);
    builder.connect().await.expect("it listens")
}

/// Sends so many at a time that their answers come together.
async fn send_many(producer: &Producer) {
    let mut senders = JoinSet::new();
    for _ in 0..64 {
        let producer = producer.clone();
        senders.spawn(async move { producer.send(Message::new("t", "x")).await });
    }
    senders.join_all().await.into_iter().for_each(|sent| drop(sent.expect("the broker serves")));
}

#[test]
fn a_runtime_that_nobody_drives_holds_up_no_other() {
    let (idle, driven) = (one_thread(), one_thread());
    let broker = idle.block_on(start());
    let far = idle.block_on(far(&broker));
    for client in [broker.client(), &far] {
        // Without another try: what stays unanswered is an error.
        let starting = client.producer("p").retries(0).send_timeout(LIMIT).start();
        let producer = idle.block_on(starting).expect("the broker serves");
        idle.block_on(send_many(&producer));
        driven.block_on(send_many(&producer));
    }
    idle.block_on(far.shutdown());
    idle.block_on(broker.shutdown()).expect("a clean end");
}

#[test]
fn when_the_runtime_of_a_client_has_ended_another_does_what_brokers_ask() {
    let (stays, ends) = (one_thread(), one_thread());
    let broker = stays.block_on(start());
    let client = ends.block_on(far(&broker));
    drop(ends);
    stays.block_on(async {
        broker.client().create_topic("t", 1).await.expect("the broker serves");
        let member = client.consumer("g").subscribe("t", "*").stream().await.expect("the broker serves");
        let address = broker.address().expect("it listens").to_string();
        let header = GetConsumerRunningInfoHeader {
            group: "g".into(),
            client_id: client.client_id().into(),
            with_stacks: Some(false),
        };
        let admin = broker.client().admin();
        // The broker hears of the member with the heart-beats of this runtime.
        until("the member answers", async || {
            let asked = admin.ask::<GetConsumerRunningInfo>(&address, &header, Bytes::new()).await;
            let Ok((_, body)) = asked else { return false };
            let told: ConsumerRunningInfo = from_loose(&body).expect("it can be read");
            told.subscription_set.iter().any(|subscription| subscription.topic == "t")
        })
        .await;
        timeout(LIMIT, member.shutdown()).await.expect("in time");
        client.shutdown().await;
        broker.shutdown().await.expect("a clean end");
    });
}
