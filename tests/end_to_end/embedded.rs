//! A broker within the program that uses it.
//!
//! Invariants:
//! - every test has brokers of its own in temporary folders, so tests run side by side.

use tokio::task::JoinSet;
use tokio::time::timeout;
use troupemq::embedded::cast::{AllTopics, QueueReading, TellQueue, TellRates};
use troupemq::{
    Broker, Client, ClientError, Compression, Deliveries, FlushMode, Message, Producer, PullRequest,
};
use troupemq_codec::message::sys_flag;

use crate::daemon::{LIMIT, until};

async fn start() -> Broker {
    Broker::builder().temporary().start().await.expect("a temporary broker starts")
}

#[tokio::test]
async fn a_broker_leaves_signals_and_logs_to_its_program() {
    let broker = start().await;
    send_and_receive(&broker).await.expect("the broker serves");
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the kernel tells");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("it is a mask");
    for (signal, name) in [(1, "HUP"), (2, "INT"), (15, "TERM")] {
        assert_eq!(caught >> (signal - 1) & 1, 0, "{name} is caught");
    }
    assert!(!tracing::dispatcher::has_been_set(), "a logger was installed");
    broker.shutdown().await.expect("it ends");
}

async fn next(deliveries: &mut Deliveries) -> String {
    let next = timeout(LIMIT, deliveries.next()).await.expect("a message comes in time");
    let delivery = next.expect("the consumer runs").expect("the broker refuses nothing");
    let body = String::from_utf8(delivery.message().body().to_vec()).expect("the body is text");
    delivery.ack().await.expect("the consumer runs");
    body
}

async fn send_and_receive(broker: &Broker) -> Result<(), ClientError> {
    let producer = broker.producer("writer").send_timeout(LIMIT).start().await?;
    let receipt = producer.send(Message::new("orders", "hello").tag("new").key("42")).await?;
    assert_eq!((receipt.queue.topic.as_str(), receipt.queue_offset), ("orders", 0));
    let consumer = broker.consumer("reader").subscribe("orders", "new || paid").from_first();
    let mut orders = consumer.stream().await?;
    assert_eq!(next(&mut orders).await, "hello");
    // The pulls are on hold by now: an arrival wakes them.
    producer.send(Message::new("orders", "again").tag("paid")).await?;
    assert_eq!(next(&mut orders).await, "again");
    Ok(())
}

#[test]
fn a_connection_outlives_the_runtime_that_opened_it() {
    let one_thread =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let send_many = async |producer: Producer| {
        let mut senders = JoinSet::new();
        for _ in 0..64 {
            let producer = producer.clone();
            senders.spawn(async move { producer.send(Message::new("t", "x")).await });
        }
        senders.join_all().await.into_iter().for_each(|sent| drop(sent.expect("the broker serves")));
        producer
    };
    let (stays, opens, comes_later) = (one_thread(), one_thread(), one_thread());
    let broker = stays.block_on(start());
    let producer = opens.block_on(async {
        let producer = broker.producer("p").send_timeout(LIMIT).start().await.expect("the broker serves");
        send_many(producer).await
    });
    drop(opens);
    comes_later.block_on(send_many(producer));
    stays.block_on(broker.shutdown()).expect("a clean end");
}

#[tokio::test]
async fn what_is_set_of_a_store_holds_in_whichever_order_it_is_said() {
    let small = |store: &mut troupemq::StoreConfig| store.log_segment_bytes = 4 << 20;
    for builder in [
        Broker::builder().store_settings(small).temporary(),
        Broker::builder().temporary().store_settings(small),
    ] {
        let broker = builder.start().await.expect("the broker starts");
        let producer = broker.producer("p").send_timeout(LIMIT).start().await.expect("the broker serves");
        producer.send(Message::new("t", "x")).await.expect("the broker serves");
        let segment = broker.store_dir().join("commitlog").join("00000000000000000000");
        assert_eq!(std::fs::metadata(segment).expect("it is there").len(), 4 << 20);
        broker.shutdown().await.expect("a clean end");
    }
}

#[tokio::test]
async fn what_a_consumer_or_producer_could_not_keep_is_refused_at_once() {
    let broker = start().await;
    let consumer = || broker.consumer("g").subscribe("t", "*");
    for contradiction in [consumer().offset_file("offsets"), consumer().in_order().offset_file("offsets")] {
        let error = contradiction.stream().await.expect_err("brokers keep the progress").to_string();
        assert!(error.starts_with("offset_file: only a broadcasting consumer has one"), "{error}");
    }
    let error = broker.consumer("g").subscribe("*", "*").stream().await.expect_err("no topic");
    assert!(error.to_string().starts_with("topic \"*\" is illegal: '*' is not allowed"), "{error}");
    let long = "g".repeat(256);
    let error = broker.consumer(&long).subscribe("t", "*").stream().await.expect_err("no group");
    assert!(error.to_string().ends_with("it has 256 characters, at most 255 are allowed"), "{error}");
    let error = broker.producer("a group").send_timeout(LIMIT).start().await.expect_err("no group");
    assert!(error.to_string().starts_with("group \"a group\" is illegal: ' ' is not allowed"), "{error}");
    broker.shutdown().await.expect("a clean end");
}

#[tokio::test]
async fn bodies_are_sent_as_they_are_wherever_that_is_said() {
    let broker = start().await;
    let body = vec![b'x'; 10_000];
    let plain = [
        broker.producer("p").no_compression().compress_from(1).compression(Compression::Zlib, 9),
        broker.producer("p").compression(Compression::Zlib, 9).compress_from(1).no_compression(),
    ];
    for producer in plain {
        let producer = producer.start().await.expect("the broker serves");
        let sent = producer.send(Message::new("t", body.clone())).await.expect("the broker serves");
        let wanted = PullRequest::from("g", sent.queue_offset);
        let pulled = broker.client().pull(&sent.queue, &wanted).await.expect("the broker serves");
        assert_eq!(pulled.messages[0].sys_flag & sys_flag::COMPRESSED, 0);
    }
    broker.shutdown().await.expect("a clean end");
}

#[tokio::test(flavor = "current_thread")]
async fn a_broker_lives_within_a_runtime_of_one_thread() {
    let broker = start().await;
    send_and_receive(&broker).await.unwrap();
    broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_brokers_live_in_one_process_and_know_nothing_of_each_other() {
    let (one, other) = (start().await, start().await);
    tokio::try_join!(send_and_receive(&one), send_and_receive(&other)).unwrap();
    assert_ne!(one.store_dir(), other.store_dir());
    let queues = one.client().queues("orders").await.unwrap();
    one.shutdown().await.unwrap();
    assert_eq!(other.client().queues("orders").await.unwrap(), queues);
    other.shutdown().await.unwrap();
}

#[test]
fn a_broker_lives_within_an_actix_system() {
    actix::System::new().block_on(async {
        let broker = start().await;
        send_and_receive(&broker).await.unwrap();
        broker.shutdown().await.unwrap();
    });
}

#[tokio::test]
async fn a_broker_without_a_port_has_no_address_and_one_with_a_port_serves_everybody() {
    let private = start().await;
    assert_eq!((private.address(), private.name_server_address()), (None, None));
    let any = ([127, 0, 0, 1], 0);
    let open = Broker::builder().temporary().listen(any).listen_as_name_server(any).broker_name("b").start();
    let open = open.await.unwrap();
    assert_ne!(open.address().unwrap().port(), 0);
    let name_server = open.name_server_address().unwrap().to_string();
    let client = Client::builder().name_servers(&name_server).connect().await.unwrap();
    client.create_topic("shared", 2).await.unwrap();
    let far = client.producer("far").send_timeout(LIMIT).start().await.unwrap();
    let near = open.producer("near").send_timeout(LIMIT).start().await.unwrap();
    let mut all = open.consumer("all").subscribe("shared", "*").from_first().stream().await.unwrap();
    far.send(Message::new("shared", "from afar")).await.unwrap();
    assert_eq!(next(&mut all).await, "from afar");
    near.send(Message::new("shared", "from here")).await.unwrap();
    assert_eq!(next(&mut all).await, "from here");
    assert_eq!(client.queues("shared").await.unwrap(), open.client().queues("shared").await.unwrap());
    open.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_was_sent_and_how_far_it_was_read_outlives_a_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Broker::builder().store_dir(folder.path()).flush(FlushMode::Sync).start();
    let broker = start().await.unwrap();
    let producer = broker.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let batch: Vec<_> = (0..3).map(|n| Message::new("kept", n.to_string())).collect();
    producer.send_batch(&batch).await.unwrap();
    let mut kept = broker.consumer("g").subscribe("kept", "*").from_first().stream().await.unwrap();
    assert_eq!(next(&mut kept).await, "0");
    broker.shutdown().await.unwrap();
    while let Some(left) = timeout(LIMIT, kept.next()).await.expect("the stream ends with the broker") {
        drop(left);
    }
    let gone = producer.send(Message::new("kept", "x")).await.unwrap_err();
    assert!(matches!(gone, ClientError::ShutDown { .. }), "{gone}");

    let broker = start().await.unwrap();
    let mut kept = broker.consumer("g").subscribe("kept", "*").from_first().stream().await.unwrap();
    assert_eq!([next(&mut kept).await, next(&mut kept).await], ["1", "2"]);
    broker.shutdown().await.unwrap();
    broker.shutdown().await.expect("a second shutdown changes nothing");
}

#[tokio::test]
async fn the_last_handle_stops_the_broker_and_its_temporary_folder_goes() {
    let broker = start().await;
    let producer = broker.producer("p").send_timeout(LIMIT).start().await.unwrap();
    producer.send(Message::new("t", "x")).await.unwrap();
    let folder = broker.store_dir().to_owned();
    assert!(folder.try_exists().unwrap());
    let mut stream = broker.consumer("g").subscribe("t", "*").from_last().stream().await.unwrap();
    let clone = broker.clone();
    drop(broker);
    assert!(clone.client().queues("t").await.is_ok());
    drop(clone);
    assert!(timeout(LIMIT, stream.next()).await.expect("the stream ends with the broker").is_none());
    until("the folder goes with the broker", async || !folder.try_exists().unwrap()).await;
    producer.send(Message::new("t", "x")).await.expect_err("the broker has ended");
}

#[tokio::test]
async fn a_broker_that_cannot_start_says_why() {
    let missing = Broker::builder().start().await.unwrap_err();
    assert!(missing.to_string().contains("store_dir"), "{missing}");
    let wrong =
        Broker::builder().temporary().settings(|settings| settings.broker_permission = 9).start().await;
    assert!(wrong.unwrap_err().to_string().contains("brokerPermission = 9 is out of bounds"));
    let broker = start().await;
    let twice = Broker::builder().store_dir(broker.store_dir()).start().await.unwrap_err();
    assert!(twice.to_string().contains("is open in another process"), "{twice}");
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_cast_is_reachable_by_typed_addresses() {
    let broker = start().await;
    let producer = broker.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let receipt = producer.send(Message::new("t", "x")).await.unwrap();
    let topics = broker.topics::<AllTopics>().send(AllTopics).await.unwrap();
    assert!(topics.table().topic_config_table.contains_key("t"));
    let queue_id = receipt.queue.queue_id;
    assert!(broker.queue::<TellQueue>("t", queue_id).is_none(), "nobody waits at the queue");
    let mut readers = broker.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    assert_eq!(next(&mut readers).await, "x");
    let held = QueueReading { min_offset: 0, max_offset: 1, held: 1 };
    until("the next pull is held", async || match broker.queue::<TellQueue>("t", queue_id) {
        Some(queue) => queue.send(TellQueue).await.unwrap() == held,
        None => false,
    })
    .await;
    assert!(broker.queue::<TellQueue>("t", 99).is_none());
    let rates = broker.statistics::<TellRates>().send(TellRates).await.unwrap();
    assert_eq!(rates.now.puts, 1);
    broker.shutdown().await.unwrap();
}

/// What this process has open or mapped below a folder.
fn held_below(folder: &std::path::Path) -> Vec<String> {
    let folder = folder.to_str().expect("the path is text");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let mut held: Vec<_> = maps.lines().filter(|line| line.contains(folder)).map(str::to_owned).collect();
    for file in std::fs::read_dir("/proc/self/fd").expect("this is Linux").flatten() {
        // One that is closed meanwhile belongs to another test.
        let Ok(target) = std::fs::read_link(file.path()) else { continue };
        held.extend(target.to_str().filter(|path| path.starts_with(folder)).map(str::to_owned));
    }
    held
}

#[tokio::test]
async fn after_a_shutdown_nothing_of_the_broker_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let any = ([127, 0, 0, 1], 0);
    let small = |store: &mut troupemq::StoreConfig| store.log_segment_bytes = 1 << 20;
    let builder = Broker::builder().store_dir(folder.path()).store_settings(small);
    let broker = builder.clone().listen(any).listen_as_name_server(any).start().await.unwrap();
    send_and_receive(&broker).await.unwrap();
    assert!(held_below(folder.path()).len() > 5, "while it runs its files are open");
    let ports = [broker.address().unwrap(), broker.name_server_address().unwrap()];
    broker.shutdown().await.unwrap();
    drop(broker);
    // Without a pause: what is given back late is not complete.
    assert_eq!(held_below(folder.path()), Vec::<String>::new());
    for port in ports {
        std::net::TcpListener::bind(port).unwrap_or_else(|error| panic!("{port}: {error}"));
    }
    assert!(!folder.path().join("abort").try_exists().unwrap(), "it was closed in order");
    let again = builder.start().await.expect("the folder is free at once");
    assert!(!again.client().queues("orders").await.unwrap().is_empty(), "what it had is there");
    again.shutdown().await.unwrap();
}
