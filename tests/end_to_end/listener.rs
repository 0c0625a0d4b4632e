//! Consumers that call functions, and what producers and consumers tell each other through them.
//!
//! Invariants:
//! - every test has a broker of its own within the program; whatever is waited for has a limit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use troupemq::embedded::cast::TellRates;
use troupemq::{Broker, Client, Compression, Decision, Message, Outcome, PullRequest, Received};
use troupemq_codec::Request;
use troupemq_codec::request::{ConsumerSendMsgBack, PullMessage, PullMessageHeader};

use crate::daemon::{LIMIT, until};
use crate::proxy::{Behind, Verdict};

/// A broker that lets messages come again soon.
async fn start() -> Broker {
    let quick = |store: &mut troupemq::StoreConfig| store.delay_levels = "1s 1s 1s 1s 1s 1s 1s 1s".to_owned();
    Broker::builder().temporary().store_settings(quick).start().await.expect("a temporary broker starts")
}

fn text(message: &Received) -> String {
    String::from_utf8(message.body().to_vec()).expect("the body is text")
}

async fn next<T>(seen: &mut mpsc::UnboundedReceiver<T>) -> T {
    timeout(LIMIT, seen.recv()).await.expect("something comes in time").expect("the listener runs")
}

#[tokio::test]
async fn a_message_whose_function_panics_comes_again() {
    let broker = start().await;
    let (tell, mut seen) = mpsc::unbounded_channel();
    let consumer = broker.consumer("g").subscribe("t", "*").from_first();
    let listener = consumer.listen(move |message| {
        let tell = tell.clone();
        async move {
            assert!(message.reconsume_times() > 0, "a panic that the test wants");
            tell.send((text(&message), message.reconsume_times())).unwrap();
            Outcome::Done
        }
    });
    let listener = listener.await.unwrap();
    let producer = broker.producer("p").send_timeout(LIMIT).start().await.unwrap();
    producer.send(Message::new("t", "x")).await.unwrap();
    assert_eq!(next(&mut seen).await, ("x".to_owned(), 1));
    listener.shutdown().await;
    broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_silent_about_what_it_is_to_take_back_holds_up_no_other_message() {
    for in_order in [false, true] {
        let (tell_lost, mut lost) = mpsc::unbounded_channel();
        let behind = Behind::start(move |command| match command.code == ConsumerSendMsgBack::CODE {
            true => {
                tell_lost.send(()).expect("the test waits for it");
                Verdict::Lose
            }
            false => Verdict::Pass,
        });
        let behind = behind.await;
        // Longer than anything else here: whoever waits for this answer waits too long.
        let builder = Client::builder().name_servers(&behind.names()).request_timeout(2 * LIMIT);
        let client = builder.connect().await.expect("the name server listens");
        client.create_topic("t", 2).await.expect("the broker serves");
        let queues = client.queues("t").await.expect("the broker serves");
        let (tell, mut seen) = mpsc::unbounded_channel();
        let consumer = client.consumer("g").subscribe("t", "*").from_first();
        let consumer = if in_order { consumer.in_order() } else { consumer };
        let listening = consumer.listen(move |message| {
            let body = text(&message);
            let outcome = if body == "bad" { Outcome::GiveUp } else { Outcome::Done };
            let told = tell.send(body);
            async move { told.map_or(Outcome::Again, |()| outcome) }
        });
        let listener = listening.await.expect("the consumer starts");
        let producer = client.producer("p").send_timeout(LIMIT).start().await.expect("the broker serves");
        producer.send_to(&queues[0], Message::new("t", "bad")).await.expect("the broker serves");
        assert_eq!(next(&mut seen).await, "bad");
        next(&mut lost).await;
        producer.send_to(&queues[1], Message::new("t", "good")).await.expect("the broker serves");
        assert_eq!(next(&mut seen).await, "good", "in order: {in_order}");
        drop(listener);
        behind.broker.shutdown().await.expect("a clean end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_back_because_a_listener_is_dropped() {
    for in_order in [false, true] {
        let (tell_returned, mut returned) = mpsc::unbounded_channel();
        let (tell_read, mut read) = mpsc::unbounded_channel();
        let behind = Behind::start(move |command| {
            if command.code == ConsumerSendMsgBack::CODE {
                tell_returned.send(()).expect("the test looks at it");
            }
            let pull = (command.code == PullMessage::CODE).then(|| command.header::<PullMessageHeader>());
            if let Some(Ok(pull)) = pull {
                // Nobody looks for those of a queue that is read already.
                let _ = tell_read.send((pull.topic.to_string(), pull.queue_id, pull.queue_offset));
            }
            Verdict::Pass
        });
        let behind = behind.await;
        let client = behind.client().await;
        client.create_topic("t", 4).await.expect("the broker serves");
        let producer = client.producer("p").send_timeout(LIMIT).start().await.expect("the broker serves");
        // So many that a member which is told of them too early hears it before the last of them is dropped.
        let batch: Vec<_> = (0..500).map(|_| Message::new("t", "x")).collect();
        for _ in 0..4 {
            producer.send_batch(&batch).await.expect("the broker serves");
        }
        let (tell, mut seen) = mpsc::unbounded_channel();
        let consumer = client.consumer("g").subscribe("t", "*").from_first().concurrency(4 * batch.len());
        let consumer = if in_order { consumer.in_order() } else { consumer };
        let listening = consumer.listen(move |message| {
            let told = tell.send(text(&message));
            async move {
                told.expect("the test waits for it");
                std::future::pending::<Outcome>().await
            }
        });
        let listener = listening.await.expect("the consumer starts");
        // In order one of each queue is at work, and the others wait behind it.
        for _ in 0..if in_order { 4 } else { 4 * batch.len() } {
            next(&mut seen).await;
        }
        // A queue is pulled from its end when all of it was given to the listener. Only then are so many dropped.
        let mut whole = BTreeSet::new();
        while whole.len() < 4 {
            let (topic, queue_id, queue_offset) = next(&mut read).await;
            if topic == "t" && queue_offset == 500 {
                whole.insert(queue_id);
            }
        }
        drop(listener);
        // The member leaves with the client at the latest, and its questions are asked then.
        timeout(LIMIT, client.shutdown()).await.expect("in time");
        assert!(returned.try_recv().is_err(), "in order: {in_order}");
        behind.broker.shutdown().await.expect("a clean end");
    }
}

#[tokio::test]
async fn in_order_a_message_that_fails_holds_up_those_behind_it() {
    let broker = start().await;
    let producer = broker.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let batch: Vec<_> = (0..4).map(|n| Message::new("steps", n.to_string())).collect();
    producer.send_batch(&batch).await.unwrap();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let failures = Arc::new(AtomicUsize::new(0));
    let consumer = broker.consumer("g").subscribe("steps", "*").from_first().in_order();
    let listener = consumer.listen(move |message| {
        let (tell, failures) = (tell.clone(), failures.clone());
        async move {
            let step = text(&message);
            let fails = step == "1" && failures.fetch_add(1, Ordering::Relaxed) == 0;
            tell.send((step, fails)).unwrap();
            if fails { Outcome::Again } else { Outcome::Done }
        }
    });
    let listener = listener.await.unwrap();
    for expected in [("0", false), ("1", true), ("1", false), ("2", false), ("3", false)] {
        let (step, failed) = next(&mut seen).await;
        assert_eq!((step.as_str(), failed), expected);
    }
    listener.shutdown().await;
    let queue = &broker.client().queues("steps").await.unwrap()[0];
    let committed = broker.client().committed("g", queue).await.unwrap();
    assert_eq!(committed, Some(4), "what was done is committed at the end");
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn of_two_members_in_order_each_queue_has_one_reader() {
    let broker = start().await;
    let any = ([127, 0, 0, 1], 0);
    let open = Broker::builder().temporary().listen(any).listen_as_name_server(any).start().await.unwrap();
    broker.shutdown().await.unwrap();
    let name_server = open.name_server_address().unwrap().to_string();
    let far = Client::builder().name_servers(&name_server).connect().await.unwrap();
    open.client().create_topic("shared", 4).await.unwrap();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let mut listeners = Vec::new();
    for (name, client) in [("near", open.client()), ("far", &far)] {
        let tell = tell.clone();
        let consumer = client.consumer("g").subscribe("shared", "*").from_first().in_order();
        let listening = consumer.listen(move |message| {
            let told = tell.send((message.queue().queue_id, message.queue_offset(), name));
            async move { told.map_or(Outcome::Again, |()| Outcome::Done) }
        });
        listeners.push(listening.await.unwrap());
    }
    let producer = far.producer("p").send_timeout(LIMIT).start().await.unwrap();
    let mut next_offsets = [0_i64; 4];
    let mut readers = BTreeSet::new();
    // Until both have their share: messages go on meanwhile, and none is lost or out of order.
    while readers.len() < 2 {
        producer.send(Message::new("shared", "x")).await.unwrap();
        let (queue_id, queue_offset, reader) = next(&mut seen).await;
        let expected = &mut next_offsets[usize::try_from(queue_id).unwrap()];
        assert!(queue_offset <= *expected, "a gap before {queue_offset} of queue {queue_id}");
        *expected = (*expected).max(queue_offset + 1);
        readers.insert(reader);
    }
    for listener in listeners {
        listener.shutdown().await;
    }
    far.shutdown().await;
    open.shutdown().await.unwrap();
}

#[tokio::test]
async fn in_order_a_queue_is_not_given_away_while_its_function_runs() {
    let any = ([127, 0, 0, 1], 0);
    let open = Broker::builder().temporary().listen(any).listen_as_name_server(any).start().await.unwrap();
    let name_server = open.name_server_address().unwrap().to_string();
    let far = Client::builder().name_servers(&name_server).connect().await.unwrap();
    open.client().create_topic("held", 2).await.unwrap();
    let producer = open.producer("p").send_timeout(LIMIT).start().await.unwrap();
    for queue in open.client().writable_queues("held").await.unwrap() {
        producer.send_batch(&[Message::new("held", "x"), Message::new("held", "y")]).await.unwrap();
        producer.send_to(&queue, Message::new("held", "z")).await.unwrap();
    }
    let (tell, mut seen) = mpsc::unbounded_channel();
    let (release, released) = watch::channel(false);
    let at_work = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let listen = |name: &'static str, client: &Client| {
        let (tell, released, at_work) = (tell.clone(), released.clone(), at_work.clone());
        let consumer = client.consumer("g").subscribe("held", "*").from_first().in_order();
        consumer.listen(move |message| {
            let (tell, mut released, at_work) = (tell.clone(), released.clone(), at_work.clone());
            async move {
                let queue = &at_work[usize::try_from(message.queue().queue_id).unwrap()];
                tell.send((name, queue.fetch_add(1, Ordering::SeqCst))).unwrap();
                released.wait_for(|is_released| *is_released).await.unwrap();
                queue.fetch_sub(1, Ordering::SeqCst);
                Outcome::Done
            }
        })
    };
    let near_listener = listen("near", open.client()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(next(&mut seen).await, ("near", 0));
    }
    let far_listener = listen("far", &far).await.unwrap();
    let early = timeout(Duration::from_secs(2), seen.recv()).await;
    assert!(early.is_err(), "both queues are at work: {early:?}");
    release.send(true).unwrap();
    loop {
        producer.send(Message::new("held", "x")).await.unwrap();
        let (reader, others) = next(&mut seen).await;
        assert_eq!(others, 0, "{reader} is not alone with the queue");
        if reader == "far" {
            break;
        }
    }
    for listener in [near_listener, far_listener] {
        listener.shutdown().await;
    }
    far.shutdown().await;
    open.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_slow_reader_stops_the_pulls() {
    let broker = start().await;
    broker.client().create_topic("large", 1).await.unwrap();
    let producer = broker.producer("p").no_compression().start().await.unwrap();
    for _ in 0..20 {
        producer.send(Message::new("large", vec![b'x'; 100_000])).await.unwrap();
    }
    let consumer = broker.consumer("g").subscribe("large", "*").from_first();
    let mut large = consumer.batch_max(1).unsettled_max_bytes(250_000).stream().await.unwrap();
    let mut out = Vec::new();
    // The third goes over the bound.
    for _ in 0..3 {
        out.push(timeout(LIMIT, large.next()).await.expect("there is room").unwrap().unwrap());
    }
    assert!(timeout(Duration::from_millis(300), large.next()).await.is_err(), "4 are out");
    assert_eq!(broker.statistics().send(TellRates).await.unwrap().now.gets, 3);
    let mut count = out.len();
    for delivery in out {
        delivery.ack().await.unwrap();
    }
    while count < 20 {
        let delivery = timeout(LIMIT, large.next()).await.expect("pulls go on").unwrap().unwrap();
        delivery.ack().await.unwrap();
        count += 1;
    }
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn compressed_bodies_come_out_as_they_went_in() {
    let broker = start().await;
    let body = "what repeats itself becomes short. ".repeat(1000);
    for by in [Compression::Zlib, Compression::Lz4, Compression::Zstd] {
        let producer = broker.producer("p").compression(by, 5).compress_from(1000).start().await.unwrap();
        let receipt = producer.send(Message::new("large", body.clone())).await.unwrap();
        let wanted = PullRequest::from("g", receipt.queue_offset);
        let pulled = broker.client().pull(&receipt.queue, &wanted).await.unwrap();
        assert_eq!(pulled.messages[0].body, body.as_bytes());
        assert!(pulled.messages[0].stored_bytes < body.len() / 10, "{by:?}");
        let small = producer.send(Message::new("large", "small")).await.unwrap();
        let wanted = PullRequest::from("g", small.queue_offset);
        let pulled = broker.client().pull(&small.queue, &wanted).await.unwrap();
        assert_eq!((&pulled.messages[0].body[..], pulled.messages[0].sys_flag), (&b"small"[..], 0));
    }
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_transaction_is_seen_when_it_is_committed_by_whoever() {
    let quick = |settings: &mut troupemq::BrokerConfig| {
        settings.transaction_time_out = 50;
        settings.transaction_check_interval = 50;
        // A slow machine may need many.
        settings.transaction_check_max = 1000;
    };
    let broker = Broker::builder().temporary().settings(quick).start().await.unwrap();
    let unasked = broker.producer("other").send_timeout(LIMIT).start().await.unwrap();
    let error = unasked.begin(Message::new("t", "x")).await.unwrap_err();
    assert!(error.to_string().contains("checker"), "{error}");

    let (asked, mut questions) = mpsc::unbounded_channel();
    let checker = move |half: Received| {
        let decision = match text(&half).as_str() {
            "checked: yes" => Decision::Commit,
            "checked: no" => Decision::Rollback,
            // Who takes long over a decision is asked as well.
            _ => Decision::Unknown,
        };
        if decision != Decision::Unknown {
            // One that was asked twice may answer when the test is over.
            let _ = asked.send(text(&half));
        }
        async move { decision }
    };
    let producer = broker.producer("p").checker(checker).start().await.unwrap();
    let committed = producer.begin(Message::new("t", "committed")).await.unwrap();
    let rolled_back = producer.begin(Message::new("t", "rolled back")).await.unwrap();
    rolled_back.rollback().await.unwrap();
    for body in ["checked: yes", "checked: no"] {
        let undecided = producer.begin(Message::new("t", body)).await.unwrap();
        drop(undecided);
    }
    committed.commit().await.unwrap();
    let mut all = broker.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let delivery = timeout(LIMIT, all.next()).await.expect("in time").unwrap().unwrap();
        bodies.push(text(delivery.message()));
        delivery.ack().await.unwrap();
    }
    bodies.sort();
    assert_eq!(bodies, ["checked: yes", "committed"]);
    let mut heard = BTreeSet::new();
    while heard.len() < 2 {
        heard.insert(next(&mut questions).await);
    }
    assert_eq!(heard.into_iter().collect::<Vec<_>>(), ["checked: no", "checked: yes"]);
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn nothing_runs_on_when_the_handles_are_gone() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let any = ([127, 0, 0, 1], 0);
    let broker = Broker::builder().temporary().listen(any).listen_as_name_server(any).start().await.unwrap();
    let name_server = broker.name_server_address().unwrap().to_string();
    let far = Client::builder().name_servers(&name_server).connect().await.unwrap();
    for client in [broker.client(), &far] {
        let producer = client.producer("p").trace(true).start().await.unwrap();
        producer.send(Message::new("t", "x")).await.unwrap();
        let consumer = client.consumer("dropped").subscribe("t", "*").from_first().trace(true);
        drop(consumer.stream().await.unwrap());
        let consumer = client.consumer("listening").subscribe("t", "*").from_first();
        drop(consumer.listen(|_| async { Outcome::Done }).await.unwrap());
        // A future that is dropped half way leaves nothing either.
        let consumer = client.consumer("cancelled").subscribe("t", "*").from_first();
        drop(timeout(Duration::ZERO, consumer.stream()).await);
    }
    assert!(tasks() > before);
    drop(far);
    drop(broker);
    until("all tasks end", async || tasks() <= before).await;
}
