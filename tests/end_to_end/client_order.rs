//! How many functions run, in which order, and what becomes of the others when one fails.
//!
//! Invariants:
//! - every test has a broker of its own within the program; whatever is waited for has a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::{Actor, Context, Handler, MessageResult};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use troupemq::embedded::Incoming;
use troupemq::{Broker, Decision, Message, Outcome, PullRequest, Queue, Received, ResponseCode};
use troupemq_codec::Command;
use troupemq_codec::Request;
use troupemq_codec::request::SendMessageV2;

use crate::client_trouble::{judged_pair, pair, until_the_bad_one_is_avoided};
use crate::daemon::{LIMIT, until};
use crate::proxy::{Behind, Verdict};

/// A broker that lets messages come again soon, and asks about transactions soon.
async fn start() -> Broker {
    let quick = |store: &mut troupemq::StoreConfig| store.delay_levels = "1s 1s 1s 1s 1s 1s 1s 1s".to_owned();
    let asks = |settings: &mut troupemq::BrokerConfig| {
        settings.transaction_time_out = 50;
        settings.transaction_check_interval = 50;
        settings.transaction_check_max = 1000;
    };
    let builder = Broker::builder().temporary().store_settings(quick).settings(asks);
    builder.start().await.expect("a temporary broker starts")
}

fn text(message: &Received) -> String {
    String::from_utf8(message.body().to_vec()).expect("the body is text")
}

async fn next<T>(seen: &mut mpsc::UnboundedReceiver<T>) -> T {
    timeout(LIMIT, seen.recv()).await.expect("something comes in time").expect("the listener runs")
}

/// The queues of a topic that is made for it.
async fn topic(broker: &Broker, name: &str, queues: i32) -> Vec<Queue> {
    broker.client().create_topic(name, queues).await.expect("the broker serves");
    broker.client().writable_queues(name).await.expect("the broker serves")
}

#[tokio::test]
async fn in_order_queues_that_stand_still_hold_up_no_other() {
    let broker = start().await;
    let queues = topic(&broker, "steps", 3).await;
    let producer = broker.producer("p").start().await.unwrap();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let consumer = broker.consumer("g").subscribe("steps", "*").from_first().in_order().concurrency(2);
    let listening = consumer.tries_max(i32::MAX).listen(move |message: Received| {
        // The first two never come to an end.
        let is_poison = message.queue().queue_id < 2;
        let told = tell.send((message.queue().queue_id, message.queue_offset()));
        async move { if told.is_ok() && !is_poison { Outcome::Done } else { Outcome::Again } }
    });
    for queue in &queues[..2] {
        for _ in 0..400 {
            producer.send_to(queue, Message::new("steps", "x")).await.unwrap();
        }
    }
    let listener = listening.await.unwrap();
    let (mut poisoned, mut done) = ([0; 2], 0);
    while poisoned[0] < 2 || poisoned[1] < 2 || done < 5 {
        if done < 5 {
            producer.send_to(&queues[2], Message::new("steps", "y")).await.unwrap();
        }
        let (queue_id, queue_offset) = next(&mut seen).await;
        match usize::try_from(queue_id).unwrap() {
            2 => done += 1,
            queue_id => {
                assert_eq!(queue_offset, 0, "those behind wait");
                poisoned[queue_id] += 1;
            }
        }
    }
    timeout(LIMIT, listener.shutdown()).await.expect("what is suspended is not waited for");
    assert_eq!(broker.client().committed("g", &queues[0]).await.unwrap().unwrap_or(0), 0);
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn as_many_functions_run_at_a_time_as_was_asked_for_and_never_more() {
    let broker = start().await;
    let producer = broker.producer("p").start().await.unwrap();
    let batch: Vec<_> = (0..20).map(|n| Message::new("t", n.to_string())).collect();
    for (in_order, queues) in [(false, 1), (true, 8)] {
        let name = format!("of-{queues}");
        for queue in topic(&broker, &name, queues).await {
            for _ in 0..batch.len() {
                producer.send_to(&queue, Message::new(&*name, "x")).await.unwrap();
            }
        }
        let (tell, mut begun) = mpsc::unbounded_channel();
        let (release, released) = watch::channel(false);
        let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (working, peak) = (at_work.clone(), most.clone());
        let consumer = broker.consumer(&name).subscribe(&name, "*").from_first().concurrency(3);
        let consumer = if in_order { consumer.in_order() } else { consumer };
        let listening = consumer.listen(move |_| {
            let (tell, mut released) = (tell.clone(), released.clone());
            let (working, peak) = (working.clone(), peak.clone());
            async move {
                peak.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tell.send(()).unwrap();
                released.wait_for(|is_released| *is_released).await.unwrap();
                working.fetch_sub(1, Ordering::SeqCst);
                Outcome::Done
            }
        });
        let listener = listening.await.unwrap();
        for _ in 0..3 {
            next(&mut begun).await;
        }
        assert_eq!(at_work.load(Ordering::SeqCst), 3, "so many run at the same time");
        let fourth = timeout(Duration::from_millis(300), begun.recv()).await;
        assert!(fourth.is_err(), "a fourth runs beside three");
        release.send(true).unwrap();
        for _ in 3..batch.len() * usize::try_from(queues).unwrap() {
            next(&mut begun).await;
        }
        listener.shutdown().await;
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn in_order_a_message_whose_function_panics_comes_before_those_behind_it() {
    let broker = start().await;
    topic(&broker, "steps", 1).await;
    let producer = broker.producer("p").start().await.unwrap();
    let batch: Vec<_> = (0..3).map(|n| Message::new("steps", n.to_string())).collect();
    producer.send_batch(&batch).await.unwrap();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let panics = AtomicUsize::new(0);
    let consumer = broker.consumer("g").subscribe("steps", "*").from_first().in_order();
    let listening = consumer.listen(move |message| {
        tell.send(text(&message)).unwrap();
        let at = if text(&message) == "1" { panics.fetch_add(1, Ordering::SeqCst) } else { 9 };
        assert!(at > 0, "a panic that the test wants, before there is a future");
        async move {
            assert!(at > 1, "a panic that the test wants");
            Outcome::Done
        }
    });
    let listener = listening.await.unwrap();
    for expected in ["0", "1", "1", "1", "2"] {
        assert_eq!(next(&mut seen).await, expected);
    }
    listener.shutdown().await;
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_checker_that_panics_is_asked_again() {
    let broker = start().await;
    let (tell, mut asked) = mpsc::unbounded_channel();
    let times = AtomicUsize::new(0);
    let checker = move |_: Received| {
        let time = times.fetch_add(1, Ordering::SeqCst);
        tell.send(time).unwrap();
        assert!(time > 0, "a panic that the test wants, before there is a future");
        async move {
            assert!(time > 1, "a panic that the test wants");
            Decision::Commit
        }
    };
    let producer = broker.producer("p").checker(checker).start().await.unwrap();
    drop(producer.begin(Message::new("t", "x")).await.unwrap());
    for expected in 0..3 {
        assert_eq!(next(&mut asked).await, expected);
    }
    let mut all = broker.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    let delivery = timeout(LIMIT, all.next()).await.expect("it is committed").unwrap().unwrap();
    assert_eq!(text(delivery.message()), "x");
    broker.shutdown().await.unwrap();
}

/// An actor that panics over messages with the text `bad`, until it is told not to.
struct Worker {
    is_touchy: bool,
    tell: mpsc::UnboundedSender<String>,
}

impl Actor for Worker {
    type Context = Context<Worker>;
}

impl Handler<Incoming> for Worker {
    type Result = MessageResult<Incoming>;

    fn handle(&mut self, Incoming(job): Incoming, _: &mut Context<Worker>) -> MessageResult<Incoming> {
        assert!(!self.is_touchy || text(&job) != "bad", "a panic that the test wants");
        let told = self.tell.send(text(&job));
        MessageResult(if told.is_ok() { Outcome::Done } else { Outcome::Again })
    }
}

#[test]
fn an_actor_that_panics_lets_its_messages_come_again() {
    actix::System::new().block_on(async {
        let broker = start().await;
        let (tell, mut seen) = mpsc::unbounded_channel();
        let producer = broker.producer("p").start().await.unwrap();
        let touchy = Worker { is_touchy: true, tell: tell.clone() }.start();
        let consumer = || broker.consumer("g").subscribe("jobs", "*").from_first();
        let listener = consumer().deliver_to(touchy.clone().recipient()).await.unwrap();
        producer.send(Message::new("jobs", "good")).await.unwrap();
        assert_eq!(next(&mut seen).await, "good");
        producer.send(Message::new("jobs", "bad")).await.unwrap();
        until("the actor ends with its panic", async || !touchy.connected()).await;
        listener.shutdown().await;
        let calm = Worker { is_touchy: false, tell }.start();
        let listener = consumer().deliver_to(calm.recipient()).await.unwrap();
        assert_eq!(next(&mut seen).await, "bad");
        listener.shutdown().await;
        broker.shutdown().await.unwrap();
    });
}

#[tokio::test]
async fn of_a_broadcast_nothing_is_sent_back() {
    let broker = start().await;
    let queues = topic(&broker, "news", 1).await;
    let producer = broker.producer("p").start().await.unwrap();
    for body in ["again", "level", "up", "panic", "done"] {
        producer.send(Message::new("news", body)).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let consumer = || {
        let consumer = broker.consumer("g").subscribe("news", "*").from_first().broadcast();
        consumer.offset_file(folder.path().join("offsets"))
    };
    let (tell, mut seen) = mpsc::unbounded_channel();
    let listening = consumer().concurrency(1).listen(move |message| {
        let (told, body) = (tell.send(text(&message)), text(&message));
        async move {
            told.unwrap();
            match body.as_str() {
                "again" => Outcome::Again,
                "level" => Outcome::AgainAtLevel(1),
                "up" => Outcome::GiveUp,
                "panic" => panic!("a panic that the test wants"),
                _ => Outcome::Done,
            }
        }
    });
    let listener = listening.await.unwrap();
    for expected in ["again", "level", "up", "panic", "done"] {
        assert_eq!(next(&mut seen).await, expected);
    }
    listener.shutdown().await;
    for queue in broker.client().queues("%RETRY%g").await.unwrap() {
        assert_eq!(broker.client().max_offset(&queue).await.unwrap(), 0, "sent back to {queue}");
    }
    broker.client().queues("%DLQ%g").await.expect_err("nothing was given up to the broker");
    // All five count as settled: the next of this group's members here goes on behind them.
    let mut rest = consumer().stream().await.unwrap();
    producer.send_to(&queues[0], Message::new("news", "new")).await.unwrap();
    let delivery = timeout(LIMIT, rest.next()).await.expect("in time").unwrap().unwrap();
    assert_eq!(text(delivery.message()), "new");
    broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_refuses_because_of_itself_is_avoided() {
    for code in [ResponseCode::SYSTEM_BUSY, ResponseCode::SERVICE_NOT_AVAILABLE] {
        let refused = Arc::new(AtomicUsize::new(0));
        let refusing = refused.clone();
        let judge = move |command: &Command| match command.code == SendMessageV2::CODE {
            true => {
                refusing.fetch_add(1, Ordering::SeqCst);
                Verdict::Answer(Command::response(code).with_remark("full"))
            }
            false => Verdict::Pass,
        };
        let (good, bad, client) = pair(judge).await;
        let producer = client.producer("p").start().await.unwrap();
        until_the_bad_one_is_avoided(&producer).await;
        assert!(refused.load(Ordering::SeqCst) > 0, "it was tried");
        for broker in [bad.broker, good.broker] {
            broker.shutdown().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_refused_for_what_it_is_goes_to_no_other_broker() {
    let came = Arc::new(AtomicUsize::new(0));
    let (at_good, at_bad) = (came.clone(), came.clone());
    let is_send = |command: &Command| command.code == SendMessageV2::CODE;
    let takes = move |command: &Command| {
        at_good.fetch_add(usize::from(is_send(command)), Ordering::SeqCst);
        Verdict::Pass
    };
    let refuses = move |command: &Command| match is_send(command) {
        true => {
            at_bad.fetch_add(1, Ordering::SeqCst);
            let refusal = Command::response(ResponseCode::MESSAGE_ILLEGAL).with_remark("too long");
            Verdict::Answer(refusal)
        }
        false => Verdict::Pass,
    };
    let (good, bad, client) = judged_pair(takes, refuses).await;
    let producer = client.producer("p").retries(9).send_timeout(LIMIT).start().await.unwrap();
    let (mut sent, mut refusals) = (0, 0);
    // One of two brokers refuses, and is not avoided for it.
    while refusals < 4 {
        sent += 1;
        match producer.send(Message::new("both", "x")).await {
            Ok(receipt) => assert_eq!(receipt.queue.broker_name, "good"),
            Err(error) => {
                assert_eq!(error.code(), Some(ResponseCode::MESSAGE_ILLEGAL), "{error}");
                refusals += 1;
            }
        }
    }
    assert_eq!(came.load(Ordering::SeqCst), sent, "each was tried once");
    for broker in [bad.broker, good.broker] {
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_a_broker_moves_again_and_again_is_asked_for_at_a_pace() {
    use troupemq_codec::request::{PullMessage, PullMessageReplyHeader};

    let pulls = Arc::new(AtomicUsize::new(0));
    let pulled = pulls.clone();
    let behind = Behind::start(move |command| {
        if command.code != PullMessage::CODE {
            return Verdict::Pass;
        }
        pulled.fetch_add(1, Ordering::SeqCst);
        let reply = PullMessageReplyHeader { next_offset: 7, ..Default::default() };
        Verdict::Answer(Command::response(ResponseCode::PULL_OFFSET_MOVED).with_header(&reply))
    });
    let behind = behind.await;
    let client = behind.client().await;
    client.create_topic("t", 1).await.unwrap();
    let begun = tokio::time::Instant::now();
    let _stream = client.consumer("g").subscribe("t", "*").from_first().stream().await.unwrap();
    until("pulls go on", async || pulls.load(Ordering::SeqCst) >= 10).await;
    // Two topics are pulled, that of the retries too, each after a pause of 50 ms at least.
    let (seen, most) = (pulls.load(Ordering::SeqCst), 2 * (begun.elapsed().as_millis() / 50 + 1));
    assert!(u128::try_from(seen).unwrap() <= most, "{seen} pulls, {most} are a pace");
    let queue = &client.queues("t").await.unwrap()[0];
    assert!(client.pull(queue, &PullRequest::from("h", 0)).await.unwrap().messages.is_empty());
    behind.broker.shutdown().await.unwrap();
}
