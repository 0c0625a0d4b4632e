//! Retries and dead letters of a node: limits, levels, orderly groups, what a message keeps. The clock is the test's.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::sync::Arc;

use troupemq_codec::ResponseCode;
use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::message::Message;
use troupemq_codec::request::*;
use troupemq_codec::topic::MessageQueue;
use troupemq_store::ManualClock;

use super::delivery_test::{NOW_MS, back, count, join, start};
use crate::node::NodeHandle;
use crate::testing::{
    self, Client, member_data, publish, reader_of, request, send_request, stored, topic_request, wait_for,
};

const RETRY: &str = "%RETRY%Group";
const DEAD: &str = "%DLQ%Group";
/// A client whose own limit counts.
const NEW: i32 = 475;
/// One from before that (V3_4_6).
const OLD: i32 = 115;

fn put_group(client: &mut Client, retry_max_times: i32, retry_queue_nums: i32) {
    let group = SubscriptionGroupConfig {
        group_name: "Group".into(),
        retry_max_times,
        retry_queue_nums,
        ..SubscriptionGroupConfig::default()
    };
    let put = request::<UpdateAndCreateSubscriptiongroup>(&Default::default());
    assert_eq!(client.call(put.with_body(to_fastjson(&group).into())).code, 0);
}

/// 3.5 #39: the client's limit overrides the group's, but that of an old client does not count; 0 means no retry.
#[test]
fn the_limit_of_a_client_comes_before_that_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    put_group(&mut client, 1, 1);
    let first = publish(&mut client, "Work", b"m");
    assert_eq!(client.call(back(&first, 0, (Some(0), NEW))).code, 0);
    assert_eq!(wait_for(&mut client, DEAD, 0, 0).reconsume_times, 1);
    // By the group's limit there is one retry, and no second.
    for (max, version) in [(None, NEW), (Some(0), OLD)] {
        let (retries, dead) = (count(&mut client, RETRY, 0), count(&mut client, DEAD, 0));
        assert_eq!(client.call(back(&first, 0, (max, version))).code, 0);
        clock.advance_ms(10_000);
        let again = wait_for(&mut client, RETRY, 0, i64::try_from(retries).unwrap());
        assert_eq!(again.reconsume_times, 1);
        assert_eq!(client.call(back(&again, 0, (max, version))).code, 0);
        assert_eq!(wait_for(&mut client, DEAD, 0, i64::try_from(dead).unwrap()).reconsume_times, 2);
    }
    // A greater limit of the client than the group's.
    let again = wait_for(&mut client, RETRY, 0, 0);
    assert_eq!(client.call(back(&again, 0, (Some(2), NEW))).code, 0);
    clock.advance_ms(30_000);
    assert_eq!(wait_for(&mut client, RETRY, 0, 2).reconsume_times, 2);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.5 #40 and 4.3: a level of the client's own is used as it is; one above the last is the last, below 0 is the end.
#[test]
fn a_message_is_sent_back_with_a_level() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let first = publish(&mut client, "Work", b"m");
    let levels = [(1, 1000), (2, 5000), (5, 60_000), (18, 7_200_000), (i32::MAX, 7_200_000)];
    for (expected, (level, delay_ms)) in levels.into_iter().enumerate() {
        assert_eq!(client.call(back(&first, level, (None, NEW))).code, 0, "{level}");
        clock.advance_ms(delay_ms - 1);
        stored(&client.produce("Work", 0, b"meanwhile", ""));
        assert_eq!(count(&mut client, RETRY, 0), expected, "not before its time: {level}");
        clock.advance_ms(1);
        wait_for(&mut client, RETRY, 0, i64::try_from(expected).unwrap());
    }
    for level in [-1, i32::MIN] {
        assert_eq!(client.call(back(&first, level, (None, NEW))).code, 0, "{level}");
    }
    assert_eq!(count(&mut client, DEAD, 0), 2);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.5 #38, #44, 4.3: nothing of a message gets lost on its way, and its first id and topic stay its own.
#[test]
fn a_message_keeps_everything_through_every_hop() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let own = "UNIQ_KEY\u{1}U1\u{2}KEYS\u{1}k1 k2\u{2}TAGS\u{1}A\u{2}mine\u{1}wert\u{2}BUYER_ID\u{1}b\u{2}\
               INSTANCE_ID\u{1}i\u{2}CORRELATION_ID\u{1}c\u{2}";
    let mut send = send_request("Work", 0, b"body", own);
    send.fields.set("h", "-7");
    send.fields.set("f", "1");
    let sent = stored(&client.call(send));
    let first = wait_for(&mut client, "Work", 0, 0);
    let mut at = first.clone();
    for hop in 0..4_i64 {
        let max = (Some(3), NEW);
        assert_eq!(client.call(back(&at, 0, max)).code, 0);
        clock.advance_ms([10_000, 30_000, 60_000, 0][usize::try_from(hop).unwrap()]);
        at = if hop < 3 { wait_for(&mut client, RETRY, 0, hop) } else { wait_for(&mut client, DEAD, 0, 0) };
        assert_eq!(at.reconsume_times, i32::try_from(hop).unwrap() + 1, "3.5 #38");
        assert_eq!((&at.body, at.flag, at.sys_flag), (&first.body, first.flag, first.sys_flag));
        assert_eq!((at.born_timestamp_ms, at.born_host), (first.born_timestamp_ms, first.born_host));
        let changes = ["WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"];
        let kept = first.properties.iter().filter(|(name, _)| !changes.contains(name));
        for (name, value) in kept {
            assert_eq!(at.properties.get(name), Some(value), "hop {hop}: {name}");
        }
        assert_eq!(at.properties.get("ORIGIN_MESSAGE_ID"), Some(sent.message_id.as_str()), "3.5 #44");
        assert_eq!(at.properties.get("RETRY_TOPIC"), Some("Work"));
    }
    // 3.5 #42: dead letters are read like any other message.
    let config = node.broker().unwrap().directory.topic(DEAD).expect("it was made").config.clone();
    assert_eq!((config.read_queue_nums, config.write_queue_nums, config.perm), (1, 1, 6));
    node.stop_and_wait().expect("a clean stop");
}

/// 3.5 #40, #41: a group that holds a lease consumes in order, and what it gives up is dead at once.
#[test]
fn what_an_orderly_group_gives_up_is_dead_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let _member = join(&node, "Group");
    let retry = |body: &[u8]| {
        let mut send = send_request(RETRY, 0, body, "DELAY\u{1}3\u{2}RETRY_TOPIC\u{1}Work\u{2}");
        send.fields.set("j", "0");
        send.version = NEW;
        send
    };
    let lock = |code: bool| {
        let queue = MessageQueue { topic: "Work".into(), broker_name: "broker-a".into(), queue_id: 0 };
        let body = LockBody {
            client_id: "client-1".into(),
            consumer_group: "Group".into(),
            queues: vec![queue],
            ..LockBody::default()
        };
        let body = to_fastjson(&body).into();
        if code {
            request::<LockBatchMq>(&Default::default()).with_body(body)
        } else {
            request::<UnlockBatchMq>(&Default::default()).with_body(body)
        }
    };
    assert_eq!(client.call(lock(true)).code, 0);
    stored(&client.call(retry(b"in order")));
    let dead = wait_for(&mut client, DEAD, 0, 0);
    assert_eq!((&dead.body[..], dead.properties.get("RETRY_TOPIC")), (&b"in order"[..], Some("Work")));
    // A lease that ends, by itself or given back, ends the order.
    clock.advance_ms(60_000);
    stored(&client.call(retry(b"expired")));
    assert_eq!(client.call(lock(true)).code, 0);
    assert_eq!(client.call(lock(false)).code, 0);
    stored(&client.call(retry(b"given back")));
    clock.advance_ms(10_000);
    assert_eq!(&wait_for(&mut client, RETRY, 0, 0).body[..], b"expired");
    assert_eq!(&wait_for(&mut client, RETRY, 0, 1).body[..], b"given back");
    assert_eq!(count(&mut client, DEAD, 0), 1);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.5 #43.
#[test]
fn a_group_without_retry_queues_drops_what_is_sent_back() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    put_group(&mut client, 16, 0);
    let first = publish(&mut client, "Work", b"m");
    for level in [0, -1] {
        assert_eq!(client.call(back(&first, level, (None, NEW))).code, 0);
    }
    assert!(node.broker().unwrap().directory.topic(DEAD).is_none());
    node.stop_and_wait().expect("a clean stop");
}

/// 3.5 #45, #46: the retry topic is there before anything fails, and its first offset is 0.
#[test]
fn the_retry_topic_is_there_after_the_first_heartbeat_and_read_from_its_begin() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    assert!(node.broker().unwrap().directory.topic(RETRY).is_none());
    let mut member = join(&node, "Group");
    let config = node.broker().unwrap().directory.topic(RETRY).expect("it was made").config.clone();
    assert_eq!((config.read_queue_nums, config.write_queue_nums, config.perm), (1, 1, 6));
    // One that is sent back before the group asks where to begin is not passed over.
    let first = publish(&mut client, "Work", b"m");
    assert_eq!(client.call(back(&first, 1, (None, NEW))).code, 0);
    clock.advance_ms(1000);
    wait_for(&mut client, RETRY, 0, 0);
    let header = QueryConsumerOffsetHeader {
        group: "Group".into(),
        topic: RETRY.into(),
        queue_id: 0,
        zero_if_not_found: None,
    };
    let answer = member.call(request::<QueryConsumerOffset>(&header));
    let offset = answer.header::<QueryConsumerOffsetReplyHeader>().expect("an offset").queue_offset;
    assert_eq!((answer.response_code(), offset), (ResponseCode::SUCCESS, 0));
    node.stop_and_wait().expect("a clean stop");
}

/// 4.9: a group that reads an ordered topic has an ordered retry topic, also if that was made before.
#[test]
fn the_retry_topic_of_a_group_that_reads_an_ordered_topic_is_ordered() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let mut make = |topic: &str, order| {
        assert_eq!(client.call(topic_request(topic, 1, 6, Some(order))).code, 0);
    };
    make("InOrder", true);
    make("Plain", false);
    let directory = &node.broker().unwrap().directory;
    let is_ordered = |topic: &str| directory.topic(topic).expect("it was made").config.order;
    let _members = [subscribe(&node, "First", "InOrder"), subscribe(&node, "Later", "Plain")];
    assert_eq!((is_ordered("%RETRY%First"), is_ordered("%RETRY%Later")), (true, false));
    let _member = subscribe(&node, "Later", "InOrder");
    // One save after the other: when this topic is published, the mark is.
    make("Other", false);
    assert!(is_ordered("%RETRY%Later"));
    node.stop_and_wait().expect("a clean stop");
}

fn subscribe(node: &NodeHandle, group: &str, topic: &str) -> Client {
    testing::join(node, &member_data("client-1", reader_of(group, topic, 0)))
}

/// What waits for its time or its decision cannot be had early by sending it back.
#[test]
fn a_message_that_waits_cannot_be_sent_back() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let first = publish(&mut client, "Work", b"m");
    let half = "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}Payers\u{2}UNIQ_KEY\u{1}U\u{2}";
    for (topic, properties) in
        [("SCHEDULE_TOPIC_XXXX", "DELAY\u{1}5\u{2}"), ("RMQ_SYS_TRANS_HALF_TOPIC", half)]
    {
        let sent = stored(&client.produce("Work", 0, b"waits", properties));
        let id: troupemq_codec::message::OffsetId = sent.message_id.parse().expect("an offset id");
        let forged = Message { log_offset: id.log_offset, ..first.clone() };
        let answer = client.call(back(&forged, -1, (None, NEW)));
        assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
        let wanted = format!(
            "look message by offset failed, {}: a message of {topic} was given to no consumer",
            id.log_offset
        );
        assert_eq!(answer.remark.as_deref(), Some(wanted.as_str()));
    }
    assert!(node.broker().unwrap().directory.topic(DEAD).is_none());
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #111, 4.2: a client before 4.6.1 leaves the marks of a transaction in a message that it sends to be retried.
#[test]
fn a_retry_that_says_it_is_half_of_a_transaction_is_a_retry() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let _member = join(&node, "Group");
    for (times, limit) in [("1", "16"), ("3", "2")] {
        let properties = "TRAN_MSG\u{1}true\u{2}DELAY\u{1}3\u{2}RETRY_TOPIC\u{1}Work\u{2}";
        let mut send = send_request(RETRY, 0, times.as_bytes(), properties);
        for (key, value) in [("f", "4"), ("j", times), ("l", limit)] {
            send.fields.set(key, value);
        }
        send.version = NEW;
        stored(&client.call(send));
    }
    clock.advance_ms(10_000);
    for (topic, body) in [(RETRY, &b"1"[..]), (DEAD, &b"3"[..])] {
        let message = wait_for(&mut client, topic, 0, 0);
        assert_eq!((&message.body[..], message.sys_flag & 12), (body, 0), "{topic}");
    }
    node.stop_and_wait().expect("a clean stop");
}

/// 4.3: the queues of a retry topic are those that it has, however many its group asks for since.
#[test]
fn a_group_that_asks_for_more_retry_queues_later_gets_every_retry() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    put_group(&mut client, 16, 1);
    let _member = join(&node, "Group");
    put_group(&mut client, 16, 3);
    for at in 1..=9 {
        let message = publish(&mut client, "Work", &b"longer and longer"[..at]);
        assert_eq!(client.call(back(&message, 1, (None, NEW))).code, 0);
    }
    clock.advance_ms(1000);
    (0..9).for_each(|at| assert_eq!(wait_for(&mut client, RETRY, 0, at).reconsume_times, 1));
    let queues = &node.broker().unwrap().queues;
    assert!(queues.get(RETRY, 1).is_none() && queues.get(RETRY, 2).is_none(), "nobody reads there");
    node.stop_and_wait().expect("a clean stop");
}
