//! Topics in use over a socket: what becomes of pulls on hold when a topic changes, goes, or rests.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::sync::Arc;

use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{
    BrokerStats, DeleteTopicInBroker, DeleteTopicInBrokerHeader, PullMessage, PullMessageHeader,
    ViewBrokerStatsData, ViewBrokerStatsDataHeader,
};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::ManualClock;

use crate::config::BrokerConfig;
use crate::node::NodeHandle;
use crate::testing::{
    Client, held_pull_header, pull_header, request, start_broker, start_broker_as, start_broker_at,
    topic_request, until,
};
use crate::topics::Rests;

fn change(queues: i32, perm: i32) -> Command {
    topic_request("T", queues, perm, None)
}

fn delete() -> Command {
    request::<DeleteTopicInBroker>(&DeleteTopicInBrokerHeader { topic: Text::from("T") })
}

/// A pull that waits at the end of a queue for an hour, longer than any of these tests takes.
fn waiting_pull(queue_id: i32, offset: i64) -> Command {
    let header = held_pull_header("T", queue_id, offset, "*");
    request::<PullMessage>(&PullMessageHeader { suspend_timeout_ms: 3_600_000, ..header })
}

/// Has pulls wait at queues 0 and 1 of a topic with two queues, and gives who waits.
fn two_wait(node: &NodeHandle) -> [Client; 2] {
    let mut admin = Client::of(node);
    assert_eq!(admin.call(change(2, 6)).code, 0);
    let broker = node.broker().unwrap();
    let view = broker.directory.topic("T").unwrap();
    [0, 1].map(|queue_id| {
        let mut client = Client::of(node);
        client.send(waiting_pull(queue_id, 0));
        let queue = broker.directory.queue(&view, queue_id, &broker.queues).unwrap().unwrap();
        until("the pull is held", || queue.is_waited_for());
        client
    })
}

fn answers(waiting: &mut [Client; 2]) -> [ResponseCode; 2] {
    waiting.each_mut().map(|client| client.receive().expect("an answer").response_code())
}

#[test]
fn pulls_on_hold_at_a_deleted_topic_hear_that_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut waiting = two_wait(&node);
    assert_eq!(Client::of(&node).call(delete()).code, 0);
    assert_eq!(answers(&mut waiting), [ResponseCode::TOPIC_NOT_EXIST; 2]);
}

#[test]
fn pulls_on_hold_at_a_topic_that_may_not_be_read_any_more_hear_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut waiting = two_wait(&node);
    assert_eq!(Client::of(&node).call(change(2, 2)).code, 0);
    assert_eq!(answers(&mut waiting), [ResponseCode::NO_PERMISSION; 2]);
}

#[test]
fn a_pull_on_hold_at_a_queue_that_a_topic_gives_up_hears_so_and_others_wait_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let [mut stays, mut goes] = two_wait(&node);
    assert_eq!(Client::of(&node).call(change(1, 6)).code, 0);
    assert_eq!(goes.receive().expect("an answer").response_code(), ResponseCode::INVALID_PARAMETER);
    assert_eq!(Client::of(&node).produce("T", 0, b"x", "").code, 0);
    assert_eq!(stays.receive().expect("it is woken").response_code(), ResponseCode::SUCCESS);
}

#[test]
fn a_topic_made_again_holds_pulls_and_wakes_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut admin = Client::of(&node);
    for body in [b"a", b"b"] {
        let [mut first, second] = two_wait(&node);
        assert_eq!(admin.produce("T", 0, body, "").code, 0);
        let woken = first.receive().expect("it is woken");
        assert_eq!((woken.code, woken.fields.get("nextBeginOffset")), (0, Some("1")));
        drop(second);
        assert_eq!(admin.call(delete()).code, 0);
    }
}

/// Has a pull wait, and gives back when it does.
fn wait_at(node: &NodeHandle, client: &mut Client, (queue_id, offset): (i32, i64)) {
    let room = &node.broker().unwrap().held_pulls;
    let before = room.taken();
    client.send(waiting_pull(queue_id, offset));
    until("the pull is held", || room.taken() > before);
}

#[test]
fn a_node_that_holds_all_the_pulls_it_may_says_so_and_every_end_of_a_hold_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.held_pulls_node_max = 2);
    let [mut first, second] = two_wait(&node);
    let mut third = Client::of(&node);
    let refused = third.call(waiting_pull(0, 0));
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_BUSY);
    let remark = "[OVERLOAD]system busy, start flow control for a while: \
                  2 pulls held at the node, heldPullsNodeMax = 2 allows no more; try again in 100 ms";
    assert_eq!(refused.remark.as_deref(), Some(remark));
    // An arrival; what need not wait needs no place.
    assert_eq!(third.produce("T", 0, b"x", "").code, 0);
    assert_eq!(first.receive().expect("it is woken").response_code(), ResponseCode::SUCCESS);
    wait_at(&node, &mut first, (0, 1));
    assert_eq!(third.pull("T", 0, 0, "*").response_code(), ResponseCode::SUCCESS);
    assert_eq!(third.call(waiting_pull(1, 0)).response_code(), ResponseCode::SYSTEM_BUSY);
    assert_eq!(third.produce("T", 0, b"y", "").code, 0);
    assert_eq!(first.receive().expect("it is woken").response_code(), ResponseCode::SUCCESS);
    // Deadlines, one after the other until a connection that was closed is noticed.
    let room = node.broker().unwrap().held_pulls.clone();
    assert_eq!(room.taken(), 1);
    drop(second);
    let mut short = waiting_pull(1, 0).header::<PullMessageHeader>().unwrap();
    short.suspend_timeout_ms = 100;
    until("it is noticed", || {
        let late = third.call(request::<PullMessage>(&short));
        assert_eq!(late.response_code(), ResponseCode::PULL_NOT_FOUND);
        room.taken() == 0
    });
    // Queues whose actors are ended.
    wait_at(&node, &mut first, (0, 2));
    wait_at(&node, &mut third, (1, 0));
    assert_eq!(Client::of(&node).call(delete()).code, 0);
    assert_eq!(answers(&mut [first, third]), [ResponseCode::TOPIC_NOT_EXIST; 2]);
    assert_eq!(room.taken(), 0);
}

#[test]
fn a_queue_that_holds_all_the_pulls_it_may_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.held_pulls_max = 1);
    let [mut first, _second] = two_wait(&node);
    let mut third = Client::of(&node);
    let refused = third.call(waiting_pull(0, 0));
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_BUSY);
    let remark = "1 pulls held at the queue, its heldPullsMax; try again in 100 ms";
    assert!(refused.remark.as_deref().is_some_and(|said| said.ends_with(remark)), "{refused:?}");
    assert_eq!(node.broker().unwrap().held_pulls.taken(), 2, "the one refused has given its place back");
    assert_eq!(third.produce("T", 0, b"x", "").code, 0);
    assert_eq!(first.receive().expect("it is woken").response_code(), ResponseCode::SUCCESS);
}

#[test]
fn a_connection_that_floods_with_pulls_is_told_its_limit_and_leaves_room_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.held_pulls_connection_max = 3);
    let (mut flood, mut other) = (Client::of(&node), Client::of(&node));
    assert_eq!(other.call(change(2, 6)).code, 0);
    let sent: Vec<i32> = (0..10).map(|number| flood.send(waiting_pull(number % 2, 0))).collect();
    let held = &sent[..3];
    for _ in 3..10 {
        let refused = flood.receive().expect("each is answered");
        assert_eq!(refused.response_code(), ResponseCode::SYSTEM_BUSY);
        let remark = "3 pulls held for the connection, heldPullsConnectionMax = 3 allows no more";
        assert!(refused.remark.as_deref().is_some_and(|said| said.contains(remark)), "{refused:?}");
    }
    wait_at(&node, &mut other, (0, 0));
    assert_eq!(Client::of(&node).produce("T", 0, b"x", "").code, 0);
    assert_eq!(other.receive().expect("it is woken").code, 0);
    let woken = [0, 1].map(|_| flood.receive().expect("it is woken"));
    assert!(woken.iter().all(|answer| answer.code == 0 && held.contains(&answer.opaque)), "{woken:?}");
    // What has come off the hold has left its place.
    wait_at(&node, &mut flood, (0, 1));
    wait_at(&node, &mut flood, (0, 1));
    assert_eq!(flood.call(waiting_pull(0, 1)).response_code(), ResponseCode::SYSTEM_BUSY);
}

/// What was counted under a name; none if it does not exist.
fn counted(client: &mut Client, name: &str, key: &str) -> Option<BrokerStats> {
    let header = ViewBrokerStatsDataHeader { name: name.into(), key: key.into() };
    let answer = client.call(request::<ViewBrokerStatsData>(&header));
    match answer.code {
        0 => Some(from_loose(&answer.body).expect("sums")),
        _ => {
            assert!(answer.remark.is_some_and(|remark| remark.contains(key)), "{name} {key}");
            None
        }
    }
}

#[test]
fn what_java_counts_by_queue_by_group_and_by_connection_is_told_under_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    (0..2).for_each(|queue_id| assert_eq!(client.produce("T", queue_id, b"x", "").code, 0));
    assert_eq!(client.pull("T", 1, 0, "*").code, 0);
    let group = pull_header("T", 1, 0, "*").group;
    let cluster = BrokerConfig::default().broker_cluster_name;
    for (name, key) in [
        ("TOPIC_PUT_NUMS", "T".to_owned()),
        ("QUEUE_PUT_NUMS", "T@0".to_owned()),
        ("QUEUE_PUT_SIZE", "T@1".to_owned()),
        ("TOPIC_PUT_LATENCY", "1@T".to_owned()),
        ("GROUP_GET_NUMS", format!("T@{group}")),
        ("QUEUE_GET_NUMS", format!("T@1@{group}")),
        ("QUEUE_GET_SIZE", format!("T@1@{group}")),
        ("GROUP_GET_LATENCY", format!("1@T@{group}")),
        ("BROKER_PUT_NUMS", cluster),
        ("CHANNEL_ACTIVITY", "CONNECT".to_owned()),
    ] {
        assert!(counted(&mut client, name, &key).is_some(), "{name} {key}");
    }
    for (name, key) in [
        ("QUEUE_PUT_NUMS", "T@2".to_owned()),
        ("QUEUE_GET_NUMS", format!("T@0@{group}")),
        ("TOPIC_PUT_LATENCY", "2@T".to_owned()),
        ("SNDBCK2DLQ_TIMES", format!("null@T@{group}@SEND_BACK_TO_DLQ")),
        ("DLQ_PUT_NUMS", "T".to_owned()),
        ("CHANNEL_ACTIVITY", "IDLE".to_owned()),
    ] {
        assert_eq!(counted(&mut client, name, &key), None, "{name} {key}");
    }
    let header = ViewBrokerStatsDataHeader { name: "QUEUE_PUT_NUMS".into(), key: "T@1024".into() };
    let remark = client.call(request::<ViewBrokerStatsData>(&header)).remark.unwrap();
    assert!(remark.ends_with("not exist: queues from 1024 on are counted with their topic only"), "{remark}");
}

#[test]
fn a_topic_that_rests_is_sent_to_and_held_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_795_000_000_000));
    let node = start_broker_at(&clock, dir.path(), |_| {});
    let mut client = Client::of(&node);
    assert_eq!(client.call(change(1, 6)).code, 0);
    let broker = node.broker().unwrap().clone();
    let counters = broker.directory.topic("T").unwrap().counters.clone();
    clock.advance_ms(60_000);
    broker.topics.try_send(Rests(Text::from("T"))).unwrap();
    // The answer comes after the owner of the topics has let it rest.
    assert_eq!(client.call(change(1, 6)).code, 0);
    assert_eq!(client.produce("T", 0, b"x", "").code, 0);
    assert!(!counters.claim(), "the send has it attended to");
    let mut reader = Client::of(&node);
    reader.send(waiting_pull(0, 1));
    let view = broker.directory.topic("T").unwrap();
    let queue = broker.directory.queue(&view, 0, &broker.queues).unwrap().unwrap();
    until("the pull is held", || queue.is_waited_for());
    assert_eq!(client.produce("T", 0, b"y", "").code, 0);
    assert_eq!(reader.receive().expect("it is woken").code, 0);
    let header = ViewBrokerStatsDataHeader { name: "TOPIC_PUT_NUMS".into(), key: "T".into() };
    assert_eq!(client.call(request::<ViewBrokerStatsData>(&header)).code, 0, "what was stored is counted");
    let unknown = ViewBrokerStatsDataHeader { key: "Nowhere".into(), ..header };
    assert_eq!(client.call(request::<ViewBrokerStatsData>(&unknown)).code, 1);
}
