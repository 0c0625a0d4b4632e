//! What waits is delivered: delay levels, retries, dead letters, transactions. The clock is turned by hand.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::path::Path;
use std::sync::Arc;

use troupemq_codec::Request;
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, ProducerData};
use troupemq_codec::loose_json::to_fastjson;
use troupemq_codec::message::Message;
use troupemq_codec::message::OffsetId;
use troupemq_codec::request::{
    CheckTransactionState, CheckTransactionStateHeader, EndTransaction, EndTransactionHeader, HeartBeat,
    TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, TRANSACTION_UNKNOWN,
};
use troupemq_codec::request::{
    ConsumerSendMsgBack, ConsumerSendMsgBackHeader, PULL_SUSPENDS, PullMessage, PullMessageHeader,
    SendMessageReplyHeader,
};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::ManualClock;

use crate::config::NodeClock;
use crate::node::{Node, NodeHandle};
use crate::testing::{Client, pull_header, request, send_request, small_broker};

const NOW_MS: i64 = 1_795_000_000_000;

fn start(dir: &Path, clock: &Arc<ManualClock>) -> NodeHandle {
    start_with(dir, clock, true)
}

fn start_with(dir: &Path, clock: &Arc<ManualClock>, auto_groups: bool) -> NodeHandle {
    let mut config = small_broker(dir);
    config.clock = NodeClock(clock.clone());
    if let Some(part) = &mut config.broker {
        part.config.auto_create_subscription_group = auto_groups;
    }
    Node::start(config).expect("a small broker starts")
}

fn stored(answer: &Command) -> SendMessageReplyHeader {
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.header().expect("a stored message has the whole header")
}

/// The message at `offset`, as soon as it is there.
fn wait_for(client: &mut Client, topic: &str, queue_id: i32, offset: i64) -> Message {
    let header = pull_header(topic, queue_id, offset, "*");
    let header = PullMessageHeader { sys_flag: header.sys_flag | PULL_SUSPENDS, ..header };
    let answer = client.call(request::<PullMessage>(&header));
    assert_eq!(answer.code, 0, "{answer:?}");
    Message::decode_all(answer.body).expect("whole records").remove(0)
}

fn count(client: &mut Client, topic: &str, queue_id: i32) -> usize {
    let answer = client.pull(topic, queue_id, 0, "*");
    Message::decode_all(answer.body).map_or(0, |messages| messages.len())
}

/// A producer of a group; it stays one as long as its connection is kept.
fn produce_for(node: &NodeHandle, group: &str) -> Client {
    let data = HeartbeatData {
        client_id: Text::from("client-1"),
        producer_data_set: vec![ProducerData { group_name: Text::from(group) }],
        ..HeartbeatData::default()
    };
    let mut client = Client::of(node);
    let beat = request::<HeartBeat>(&Default::default()).with_body(to_fastjson(&data).into());
    assert_eq!(client.call(beat).code, 0);
    client
}

fn end(client: &mut Client, at: (i64, i64), outcome: i32) -> Command {
    let header = EndTransactionHeader {
        producer_group: Text::from("Payers"),
        queue_offset: at.0,
        log_offset: at.1,
        outcome,
        ..EndTransactionHeader::default()
    };
    client.call(request::<EndTransaction>(&header))
}

/// Sends half of a transaction; its queue offset in the half topic and its log offset.
fn half(client: &mut Client, uniq_key: &str, more: &str) -> (i64, i64) {
    let properties =
        format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}Payers\u{2}UNIQ_KEY\u{1}{uniq_key}\u{2}{more}");
    let mut send = send_request("Paid", 1, uniq_key.as_bytes(), &properties);
    send.fields.set("f", "4");
    let header = stored(&client.call(send));
    assert_eq!(header.queue_id, 1);
    let id: OffsetId = header.message_id.parse().expect("an offset id");
    (header.queue_offset, id.log_offset)
}

/// A member of a group; it stays one as long as its connection is kept.
fn join(node: &NodeHandle, group: &str) -> Client {
    let data = HeartbeatData {
        client_id: Text::from("client-1"),
        consumer_data_set: vec![ConsumerData { group_name: Text::from(group), ..ConsumerData::default() }],
        ..HeartbeatData::default()
    };
    let mut member = Client::of(node);
    member.send(request::<HeartBeat>(&Default::default()).with_body(to_fastjson(&data).into()));
    while !member.receive().expect("an answer comes").is_response() {}
    member
}

fn send_back(client: &mut Client, message: &Message, level: i32, max: Option<i32>) -> Command {
    let header = ConsumerSendMsgBackHeader {
        log_offset: message.log_offset,
        group: Text::from("Group"),
        delay_level: level,
        reconsume_max: max,
        ..ConsumerSendMsgBackHeader::default()
    };
    let mut back = request::<ConsumerSendMsgBack>(&header);
    back.version = 475;
    client.call(back)
}

/// 3.3 #23, #24, #29, #30.
#[test]
fn a_delayed_message_comes_at_its_time_and_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    stored(&client.produce("Late", 1, b"plain", ""));
    let sent = client.produce(
        "Late",
        1,
        b"later",
        "DELAY\u{1}2\u{2}UNIQ_KEY\u{1}U1\u{2}TAGS\u{1}A\u{2}KEYS\u{1}k\u{2}",
    );
    assert_eq!(stored(&sent).queue_id, 1);
    clock.advance_ms(4999);
    stored(&client.produce("Late", 1, b"meanwhile", ""));
    assert_eq!(count(&mut client, "Late", 1), 2);
    clock.advance_ms(1);
    let message = wait_for(&mut client, "Late", 1, 2);
    assert_eq!((&message.body[..], message.queue_id), (&b"later"[..], 1));
    assert_eq!(message.born_timestamp_ms, 1_795_000_000_000);
    let wanted = [("UNIQ_KEY", "U1"), ("TAGS", "A"), ("KEYS", "k"), ("DELAY", "2"), ("REAL_TOPIC", "Late")];
    for (name, value) in wanted {
        assert_eq!(message.properties.get(name), Some(value), "{name}");
    }
    node.stop_and_wait().expect("a clean stop");
}

/// 3.3 #31.
#[test]
fn a_delay_goes_on_over_a_restart_and_nothing_comes_twice() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for at in 0..20_u8 {
        stored(&client.produce("Late", 0, &[at], "DELAY\u{1}1\u{2}"));
    }
    clock.advance_ms(1000);
    let first = wait_for(&mut client, "Late", 0, 0);
    assert_eq!(&first.body[..], [0]);
    stored(&client.produce("Late", 0, b"last", "DELAY\u{1}1\u{2}"));
    node.stop_and_wait().expect("a clean stop");
    clock.advance_ms(10_000);
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let last = wait_for(&mut client, "Late", 0, 20);
    assert_eq!(&last.body[..], b"last");
    assert_eq!(count(&mut client, "Late", 0), 21);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.5 #37, #38, #42, #44.
#[test]
fn a_message_sent_back_is_retried_later_and_given_up_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let _member = join(&node, "Group");
    let sent = stored(&client.produce("Work", 0, b"hard", "UNIQ_KEY\u{1}U1\u{2}KEYS\u{1}k\u{2}"));
    let first = wait_for(&mut client, "Work", 0, 0);
    assert_eq!(send_back(&mut client, &first, 0, Some(1)).code, 0);
    assert_eq!(count(&mut client, "%RETRY%Group", 0), 0);
    clock.advance_ms(10_000);
    let again = wait_for(&mut client, "%RETRY%Group", 0, 0);
    let id = again.properties.get("ORIGIN_MESSAGE_ID").expect("the first id");
    assert_eq!(id, sent.message_id.as_str());
    assert!(id.parse::<OffsetId>().is_ok());
    assert_eq!((again.reconsume_times, again.properties.get("RETRY_TOPIC")), (1, Some("Work")));
    assert_eq!(send_back(&mut client, &again, 0, Some(1)).code, 0);
    let dead = wait_for(&mut client, "%DLQ%Group", 0, 0);
    assert_eq!((&dead.body[..], dead.reconsume_times), (&b"hard"[..], 2));
    let wanted =
        [("UNIQ_KEY", "U1"), ("KEYS", "k"), ("RETRY_TOPIC", "Work"), ("ORIGIN_MESSAGE_ID", &sent.message_id)];
    for (name, value) in wanted {
        assert_eq!(dead.properties.get(name), Some(value), "{name}");
    }
    // 3.5 #43.
    let nowhere = Message { log_offset: 7, ..first };
    let answer = send_back(&mut client, &nowhere, 0, None);
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(answer.remark.as_deref(), Some("look message by offset failed, 7"));
    node.stop_and_wait().expect("a clean stop");
}

/// 3.5 #40.
#[test]
fn a_send_to_a_retry_topic_beyond_its_limit_is_a_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let _member = join(&node, "Group");
    let retry = |times: &str, body: &[u8]| {
        let mut send = send_request("%RETRY%Group", 0, body, "DELAY\u{1}3\u{2}");
        send.fields.set("j", times);
        send.fields.set("l", "2");
        send.version = 475;
        send
    };
    stored(&client.call(retry("2", b"again")));
    stored(&client.call(retry("3", b"dead")));
    assert_eq!(&wait_for(&mut client, "%DLQ%Group", 0, 0).body[..], b"dead");
    clock.advance_ms(10_000);
    assert_eq!(&wait_for(&mut client, "%RETRY%Group", 0, 0).body[..], b"again");
    node.stop_and_wait().expect("a clean stop");
    // 3.5 #43.
    let node = start_with(dir.path(), &clock, false);
    let mut unknown = retry("0", b"x");
    unknown.fields.set("b", "%RETRY%Nobody");
    let answer = Client::of(&node).call(unknown);
    assert_eq!(answer.response_code(), ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #104, #105, #109.
#[test]
fn a_committed_transaction_is_delivered_once_and_a_rolled_back_one_never() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let (good, bad, open) =
        (half(&mut client, "G", ""), half(&mut client, "B", ""), half(&mut client, "O", ""));
    assert_eq!(count(&mut client, "Paid", 1), 0);
    assert_eq!(end(&mut client, open, TRANSACTION_UNKNOWN).code, 0);
    let wrong = end(&mut client, (good.0 + 1, good.1), TRANSACTION_COMMIT);
    assert_eq!(wrong.remark.as_deref(), Some("The transaction state table offset wrong"));
    let wrong = end(&mut client, (good.0, 1), TRANSACTION_COMMIT);
    assert_eq!(wrong.remark.as_deref(), Some("Find prepared transaction message failed"));
    assert_eq!(end(&mut client, good, TRANSACTION_COMMIT).code, 0);
    assert_eq!(end(&mut client, bad, TRANSACTION_ROLLBACK).code, 0);
    for late in [good, bad] {
        let answer = end(&mut client, late, TRANSACTION_COMMIT);
        assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR, "the first decision wins");
    }
    let message = wait_for(&mut client, "Paid", 1, 0);
    assert_eq!(&message.body[..], b"G");
    assert_eq!(message.prepared_log_offset, good.1);
    for (name, value) in [("TRAN_MSG", "true"), ("__transactionId__", "G"), ("PGROUP", "Payers")] {
        assert_eq!(message.properties.get(name), Some(value), "{name}");
    }
    node.stop_and_wait().expect("a clean stop");
    // What was decided stays so, what was open can be decided.
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    assert_eq!(end(&mut client, good, TRANSACTION_COMMIT).response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(end(&mut client, open, TRANSACTION_COMMIT).code, 0);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 1).body[..], b"O");
    assert_eq!(count(&mut client, "Paid", 1), 2);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #106, #107, #111.
#[test]
fn a_producer_is_asked_about_its_open_transaction_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let first = half(&mut client, "Q", "DELAY\u{1}1\u{2}");
    let mut producer = produce_for(&node, "Payers");
    clock.advance_ms(30_000);
    let asked = producer.receive().expect("a question");
    assert_eq!((asked.code, asked.is_oneway()), (CheckTransactionState::CODE, true));
    let header: CheckTransactionStateHeader = asked.header().unwrap();
    assert_eq!((header.message_id.as_deref(), header.queue_offset), (Some("Q"), first.0 + 1));
    let message = Message::decode_all(asked.body).expect("a whole record").remove(0);
    assert_eq!((message.topic.as_str(), message.queue_id, &message.body[..]), ("Paid", 1, &b"Q"[..]));
    assert_eq!(message.properties.get("TRANSACTION_CHECK_TIMES"), Some("1"));
    let answer = end(&mut client, (header.queue_offset, header.log_offset), TRANSACTION_COMMIT);
    assert_eq!(answer.code, 0);
    assert_eq!(end(&mut client, first, TRANSACTION_ROLLBACK).response_code(), ResponseCode::SYSTEM_ERROR);
    clock.advance_ms(1000);
    assert_eq!(&wait_for(&mut client, "Paid", 1, 0).body[..], b"Q");
    node.stop_and_wait().expect("a clean stop");
}

/// 3.11 #106.
#[test]
fn a_transaction_nobody_decides_is_given_up_after_its_last_check() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    half(&mut client, "L", "");
    let mut producer = produce_for(&node, "Payers");
    for times in 1..=15 {
        clock.advance_ms(30_000);
        let asked = producer.receive().expect("a question");
        let message = Message::decode_all(asked.body).expect("a whole record").remove(0);
        let expected = times.to_string();
        assert_eq!(message.properties.get("TRANSACTION_CHECK_TIMES"), Some(expected.as_str()));
        // The connection stays alive by its heartbeats.
        let data = HeartbeatData {
            client_id: Text::from("client-1"),
            producer_data_set: vec![ProducerData { group_name: Text::from("Payers") }],
            ..HeartbeatData::default()
        };
        let beat = request::<HeartBeat>(&Default::default()).with_body(to_fastjson(&data).into());
        assert_eq!(producer.call(beat).code, 0);
    }
    clock.advance_ms(30_000);
    let given_up = loop {
        let answer = client.pull("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0, "*");
        if answer.code == 0 {
            break Message::decode_all(answer.body).expect("whole records").remove(0);
        }
    };
    assert_eq!(&given_up.body[..], b"L");
    assert_eq!(count(&mut client, "Paid", 1), 0);
    node.stop_and_wait().expect("a clean stop");
}
