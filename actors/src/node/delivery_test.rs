//! What waits is delivered: delay levels, retries, dead letters. The clock is turned by hand.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::path::Path;
use std::sync::Arc;

use troupemq_codec::heartbeat_data::ConsumerData;
use troupemq_codec::message::Message;
use troupemq_codec::message::OffsetId;
use troupemq_codec::request::{ConsumerSendMsgBack, ConsumerSendMsgBackHeader};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::ManualClock;

use crate::node::NodeHandle;
use crate::testing::{self, Client, member_data, request, send_request, start_broker_at, stored, wait_for};

pub(super) const NOW_MS: i64 = 1_795_000_000_000;

pub(super) fn start(dir: &Path, clock: &Arc<ManualClock>) -> NodeHandle {
    start_broker_at(clock, dir, |_| {})
}

pub(super) fn count(client: &mut Client, topic: &str, queue_id: i32) -> usize {
    let answer = client.pull(topic, queue_id, 0, "*");
    Message::decode_all(answer.body).map_or(0, |messages| messages.len())
}

/// A member of a group; it stays one as long as its connection is kept.
pub(super) fn join(node: &NodeHandle, group: &str) -> Client {
    let consumer = ConsumerData { group_name: Text::from(group), ..ConsumerData::default() };
    testing::join(node, &member_data("client-1", consumer))
}

/// A message of `Group` sent back, with the limit and the version of the client that sends.
pub(super) fn back(message: &Message, level: i32, (max, version): (Option<i32>, i32)) -> Command {
    let header = ConsumerSendMsgBackHeader {
        log_offset: message.log_offset,
        group: Text::from("Group"),
        delay_level: level,
        reconsume_max: max,
        ..ConsumerSendMsgBackHeader::default()
    };
    let mut back = request::<ConsumerSendMsgBack>(&header);
    back.version = version;
    back
}

/// 3.3 #23, #24, #29, #30.
#[test]
fn a_delayed_message_comes_at_its_time_and_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    stored(&client.produce("Late", 1, b"plain", ""));
    stored(&client.produce("Late", 1, b"sooner", "DELAY\u{1}1\u{2}"));
    let sent = client.produce(
        "Late",
        1,
        b"later",
        "DELAY\u{1}2\u{2}UNIQ_KEY\u{1}U1\u{2}TAGS\u{1}A\u{2}KEYS\u{1}k\u{2}",
    );
    assert_eq!(stored(&sent).queue_id, 1);
    clock.advance_ms(4999);
    // Now it was looked what is due.
    assert_eq!(&wait_for(&mut client, "Late", 1, 1).body[..], b"sooner");
    stored(&client.produce("Late", 1, b"meanwhile", ""));
    assert_eq!(count(&mut client, "Late", 1), 3);
    clock.advance_ms(1);
    let message = wait_for(&mut client, "Late", 1, 3);
    assert_eq!((&message.body[..], message.queue_id), (&b"later"[..], 1));
    assert_eq!(message.born_timestamp_ms, 1_795_000_000_000);
    let wanted = [("UNIQ_KEY", "U1"), ("TAGS", "A"), ("KEYS", "k"), ("DELAY", "2"), ("REAL_TOPIC", "Late")];
    for (name, value) in wanted {
        assert_eq!(message.properties.get(name), Some(value), "{name}");
    }
    node.stop_and_wait().expect("a clean stop");
}

/// 3.3 #30.
#[test]
fn messages_of_a_level_come_in_the_order_in_which_they_were_sent() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for at in 0..25_u8 {
        stored(&client.produce("Late", 0, &[at], "DELAY\u{1}2\u{2}"));
        clock.advance_ms(u32::from(at % 3) * 100);
    }
    clock.advance_ms(10_000);
    let come: Vec<u8> = (0..25).map(|at| wait_for(&mut client, "Late", 0, at).body[0]).collect();
    assert_eq!(come, (0..25).collect::<Vec<u8>>());
    assert_eq!(count(&mut client, "Late", 0), 25);
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
    assert_eq!(client.call(back(&first, 0, (Some(1), 475))).code, 0);
    assert_eq!(count(&mut client, "%RETRY%Group", 0), 0);
    clock.advance_ms(10_000);
    let again = wait_for(&mut client, "%RETRY%Group", 0, 0);
    let id = again.properties.get("ORIGIN_MESSAGE_ID").expect("the first id");
    assert_eq!(id, sent.message_id.as_str());
    assert!(id.parse::<OffsetId>().is_ok());
    assert_eq!((again.reconsume_times, again.properties.get("RETRY_TOPIC")), (1, Some("Work")));
    assert_eq!(client.call(back(&again, 0, (Some(1), 475))).code, 0);
    let dead = wait_for(&mut client, "%DLQ%Group", 0, 0);
    assert_eq!((&dead.body[..], dead.reconsume_times), (&b"hard"[..], 2));
    let wanted =
        [("UNIQ_KEY", "U1"), ("KEYS", "k"), ("RETRY_TOPIC", "Work"), ("ORIGIN_MESSAGE_ID", &sent.message_id)];
    for (name, value) in wanted {
        assert_eq!(dead.properties.get(name), Some(value), "{name}");
    }
    // 3.5 #43.
    let nowhere = Message { log_offset: 7, ..first };
    let answer = client.call(back(&nowhere, 0, (None, 475)));
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
    let dead = wait_for(&mut client, "%DLQ%Group", 0, 0);
    assert_eq!(
        (&dead.body[..], dead.properties.get("DELAY")),
        (&b"dead"[..], Some("-1")),
        "4.2: it waits no more"
    );
    clock.advance_ms(10_000);
    assert_eq!(&wait_for(&mut client, "%RETRY%Group", 0, 0).body[..], b"again");
    node.stop_and_wait().expect("a clean stop");
    // 3.5 #43.
    let node = start_broker_at(&clock, dir.path(), |part| part.config.auto_create_subscription_group = false);
    let mut unknown = retry("0", b"x");
    unknown.fields.set("b", "%RETRY%Nobody");
    let mut client = Client::of(&node);
    let answer = client.call(unknown);
    assert_eq!(answer.response_code(), ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
    let header = ConsumerSendMsgBackHeader {
        log_offset: dead.log_offset,
        group: Text::from("Nobody"),
        ..ConsumerSendMsgBackHeader::default()
    };
    let answer = client.call(request::<ConsumerSendMsgBack>(&header));
    assert_eq!(answer.response_code(), ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
    assert_eq!(answer.remark.as_deref(), Some("subscription group not exist, Nobody"));
    node.stop_and_wait().expect("a clean stop");
}
