//! Mailboxes and waiting batches of a running node, filled: whoever finds no room is told the limit, and what was taken
//! in is carried out.
//!
//! Invariants:
//! - the arbiter of the log stands still because a disk does not answer, so that nobody empties what is filled.

use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::prelude::SendError;
use actix::{Actor, Addr, Handler, Message};
use troupemq_codec::message::NewRecord;
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::faults::{Op, hold_up};
use troupemq_store::{AppendBatch, ManualClock};

use crate::cast::BrokerCast;
use crate::commit_log::{Append, Done, MAILBOX, Outcome};
use crate::config::NodeClock;
use crate::dispatcher::Settle;
use crate::flush::Flushed;
use crate::held::{Waiting, hold};
use crate::node::Node;
use crate::offsets::{GroupQueue, QueryOffset};
use crate::schedule::AllPlaces;
use crate::send::slow::Stages;
use crate::testing::{Client, block_on, send_request, small_broker, until};
use crate::timer::Report;

/// Batches that may wait for a segment of the log.
const HELD_MAX: usize = 65_536;

/// A batch of one small message for queue 0 of a topic.
fn one(cast: &BrokerCast, topic: &str) -> (Append, Waiting<Done>) {
    let mut batch = AppendBatch::default();
    let record = NewRecord { topic, body: b"x", born_timestamp_ms: 1, ..NewRecord::PLAIN };
    record.encode(&mut batch.bytes).expect("a short message");
    batch.push(0, &cast.queues.get(topic, 0).expect("it was sent to"), 1, 0);
    let (reply, waiting) = hold();
    let (queues, stages) = (Vec::new(), Stages::default());
    (Append { batch, queues, wait_for_disk: false, credit: None, stages, reply }, waiting)
}

/// How many messages a mailbox takes.
fn fill<A, M>(of: &Addr<A>, message: impl Fn() -> M) -> usize
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    (0..2 * MAILBOX).take_while(|_| of.try_send(message()).is_ok()).count()
}

fn outcomes(waiting: Vec<Waiting<Done>>) -> Vec<Outcome> {
    block_on(async {
        let mut outcomes = Vec::new();
        for done in waiting {
            outcomes.push(done.await.expect("it is answered").outcome);
        }
        outcomes
    })
}

#[test]
fn a_full_mailbox_of_the_log_refuses_sends_with_its_limit_and_what_it_took_in_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.net.session_arbiters = 2;
    config.broker.as_mut().unwrap().store.log_segment_bytes = 64 << 20;
    let node = Node::start(config).unwrap();
    let broker = node.broker().unwrap();
    let mut clients: Vec<Client> = (0..8).map(|_| Client::of(&node)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.produce("Box", 0, b"first", "").code, 0));
    // A queue that grows needs blocks sooner or later, and the disk does not give them.
    let stalled = hold_up(&dir.path().join("consumequeue"), Op::Allocate);
    (0..2_000).for_each(|_| _ = clients[0].send(send_request("Box", 0, b"more", "")));
    until("the queue needs blocks", || stalled.has_struck());
    let of = GroupQueue { group: Text::from("g"), topic: Text::from("Box"), queue_id: 0 };
    let filled = [
        fill(&broker.dispatcher, || Settle),
        fill(&broker.flush, || Flushed { to: 0 }),
        fill(&broker.offsets, || QueryOffset(of.clone())),
        fill(&broker.schedule, || AllPlaces),
        fill(&broker.timer, || Report),
    ];
    assert!(filled.iter().all(|count| (MAILBOX - 100..=MAILBOX + 1).contains(count)), "{filled:?}");
    let mut waiting = Vec::new();
    loop {
        let (append, done) = one(broker, "Box");
        match broker.commit_log.try_send(append) {
            Ok(()) => waiting.push(done),
            Err(_full) => break,
        }
    }
    assert!((MAILBOX - 100..=MAILBOX + 1).contains(&waiting.len()), "{}", waiting.len());
    // Some of them are served by the other arbiter.
    clients[1..].iter_mut().for_each(|client| _ = client.send(send_request("Box", 0, b"refused", "")));
    until("one is refused", || clients[1..].iter().any(Client::has_answer));
    let refused = clients[1..].iter_mut().find(|client| client.has_answer()).expect("it was just seen");
    let answer = refused.receive().expect("an answer");
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_BUSY);
    assert!(
        answer.remark.is_some_and(|remark| remark.contains("65536 batches wait for the log; try again in "))
    );
    drop(stalled);
    assert!(outcomes(waiting).iter().all(|outcome| *outcome == Outcome::Stored));
    assert_eq!(Client::of(&node).produce("Box", 0, b"last", "").code, 0);
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn batches_that_wait_for_a_segment_are_bounded_and_given_up_with_the_cause_when_it_does_not_come() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    let segment_bytes = 64 << 10;
    config.broker.as_mut().unwrap().store.log_segment_bytes = segment_bytes;
    let clock = Arc::new(ManualClock::at(1_795_000_000_000));
    config.clock = NodeClock(clock.clone());
    let second = dir.path().join("commitlog").join(format!("{segment_bytes:020}"));
    let late = hold_up(&second, Op::Create);
    let node = Node::start(config).unwrap();
    let broker = node.broker().unwrap();
    let mut client = Client::of(&node);
    assert_eq!(client.produce("Late", 0, b"first", "").code, 0);
    let mut waiting = Vec::new();
    // More than the first segment takes and than may wait.
    while waiting.len() < HELD_MAX + 2_000 {
        let (append, done) = one(broker, "Late");
        match broker.commit_log.try_send(append) {
            Ok(()) => waiting.push(done),
            Err(SendError::Full(_)) => std::thread::yield_now(),
            Err(SendError::Closed(_)) => panic!("the log ends when the node does"),
        }
    }
    let last = outcomes(vec![waiting.pop().expect("many")]);
    let why = |outcome: &Outcome| match outcome {
        Outcome::Refused(refusal) => refusal.remark.clone(),
        other => format!("{other:?}"),
    };
    assert!(why(&last[0]).ends_with("the next segment of the log is not ready, and 65536 batches wait"));
    clock.advance_ms(5_000);
    let outcomes = outcomes(waiting);
    let count = |text: &str| outcomes.iter().filter(|outcome| why(outcome).ends_with(text)).count();
    assert_eq!(count("the next segment of the log is not ready after 5s"), HELD_MAX);
    let others = count("Stored") + count("is not ready, and 65536 batches wait");
    assert_eq!((others, outcomes.len()), (1_999, HELD_MAX + 1_999));
    drop(late);
    until("the segment has come", || client.produce("Late", 0, b"again", "").code == 0);
    node.stop_and_wait().expect("a clean stop");
}
