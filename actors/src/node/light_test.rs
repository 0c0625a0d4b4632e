//! Light queues over a socket: statements 3.12 #114 and 4.21, and what Java leaves open.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::path::Path;

use troupemq_codec::message::{Message, properties};
use troupemq_codec::request::*;
use troupemq_codec::{Command, ResponseCode, Text};

use crate::node::NodeHandle;
use crate::testing::{
    Client, commit_request, held_pull_header, pull_header, request, send_request, start_broker,
    start_broker_as,
};

fn start(dir: &Path, light_queues_max: u32) -> NodeHandle {
    start_broker_as(dir, |part| {
        part.store.light_queues_enabled = true;
        part.store.multi_dispatch_enabled = true;
        part.store.light_queues_max = light_queues_max;
        part.config.auto_create_subscription_group = false;
        part.config.transaction_time_out = 60_000;
    })
}

fn names(list: &str) -> String {
    format!("INNER_MULTI_DISPATCH\u{1}{list}\u{2}TAGS\u{1}A\u{2}")
}

/// What a group that is itself light pulls.
fn pull(client: &mut Client, topic: &str, offset: i64) -> (Command, Vec<Message>) {
    let header = PullMessageHeader { group: Text::from("%LMQ%g"), ..pull_header(topic, 0, offset, "*") };
    let answer = client.call(request::<PullMessage>(&header));
    let messages = Message::decode_all(answer.body.clone()).expect("records");
    (answer, messages)
}

fn bodies(client: &mut Client, topic: &str) -> Vec<Vec<u8>> {
    pull(client, topic, 0).1.iter().map(|message| message.body.to_vec()).collect()
}

#[test]
fn a_message_is_in_the_queue_of_its_topic_and_in_every_light_queue_that_it_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = start(dir.path(), 100);
    let mut client = Client::of(&node);
    assert_eq!(client.produce("T", 3, b"one", &names("%LMQ%a,%LMQ%b")).code, 0);
    assert_eq!(client.produce("T", 1, b"two", "TAGS\u{1}A\u{2}").code, 0);
    assert_eq!(client.produce("T", 0, b"three", &names("%LMQ%b")).code, 0);
    let (answer, messages) = pull(&mut client, "%LMQ%b", 0);
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let found: Vec<_> = messages.iter().map(|message| (&message.body[..], message.topic.as_str())).collect();
    assert_eq!(found, [(&b"one"[..], "T"), (b"three", "T")]);
    let numbers =
        |message: &Message| message.properties.get(properties::INNER_MULTI_QUEUE_OFFSET).map(str::to_owned);
    assert_eq!(messages.iter().map(numbers).collect::<Vec<_>>(), [Some("0,0".into()), Some("1".into())]);
    assert_eq!(bodies(&mut client, "%LMQ%a"), [b"one"]);
    let reply: PullMessageReplyHeader = answer.header().expect("a reply header");
    assert_eq!((reply.min_offset, reply.max_offset, reply.next_offset), (0, 2, 2));
    let max =
        GetMaxOffsetHeader { topic: Text::from("%LMQ%b"), queue_id: 0, ..GetMaxOffsetHeader::default() };
    assert_eq!(client.call(request::<GetMaxOffset>(&max)).fields.get("offset"), Some("2"));
    assert_eq!(pull(&mut client, "%LMQ%never", 0).0.code, ResponseCode::PULL_NOT_FOUND.0);
    node.stop_and_wait().expect("a clean stop");
    // All of it is made again from the log alone.
    std::fs::remove_dir_all(dir.path().join("consumequeue")).expect("queues");
    let node = start(dir.path(), 100);
    let mut client = Client::of(&node);
    assert_eq!(bodies(&mut client, "%LMQ%b"), [&b"one"[..], b"three"]);
    client.produce("T", 0, b"four", &names("%LMQ%b"));
    assert_eq!(bodies(&mut client, "%LMQ%b"), [&b"one"[..], b"three", b"four"]);
}

#[test]
fn a_pull_held_at_a_light_queue_is_woken_by_a_message_that_names_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = start(dir.path(), 100);
    let (mut reader, mut writer) = (Client::of(&node), Client::of(&node));
    let header = held_pull_header("%LMQ%a", 0, 0, "*");
    let header = PullMessageHeader { group: Text::from("%LMQ%g"), ..header };
    let opaque = reader.send(request::<PullMessage>(&header));
    assert_eq!(writer.produce("T", 2, b"other", &names("%LMQ%b")).code, 0);
    assert_eq!(writer.produce("T", 2, b"wakes", &names("%LMQ%b,%LMQ%a")).code, 0);
    let answer = reader.receive().expect("an answer");
    assert_eq!((answer.opaque, answer.code), (opaque, 0));
    assert_eq!(&Message::decode_all(answer.body).expect("records")[0].body[..], b"wakes");
}

#[test]
fn a_group_that_reads_as_a_light_queue_keeps_its_offsets_over_a_restart_without_being_made() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = start(dir.path(), 100);
    let mut client = Client::of(&node);
    client.produce("T", 0, b"one", &names("%LMQ%a"));
    assert_eq!(client.call(commit_request("%LMQ%g", "%LMQ%a", 0, 1)).code, 0);
    let refused = client.call(commit_request("stranger", "%LMQ%a", 0, 1));
    assert_eq!(refused.code, ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST.0);
    node.stop_and_wait().expect("a clean stop");
    let saved = std::fs::read_to_string(dir.path().join("config/lmqConsumerOffset.json")).expect("the file");
    assert!(saved.contains("\"%LMQ%a@%LMQ%g\":1"), "{saved}");
    let groups =
        std::fs::read_to_string(dir.path().join("config/subscriptionGroup.json")).unwrap_or_default();
    assert!(!groups.contains("%LMQ%g"), "it has no settings to keep");
    let node = start(dir.path(), 100);
    let query = QueryConsumerOffsetHeader {
        group: Text::from("%LMQ%g"),
        topic: Text::from("%LMQ%a"),
        queue_id: 0,
        ..QueryConsumerOffsetHeader::default()
    };
    let answer = Client::of(&node).call(request::<QueryConsumerOffset>(&query));
    assert_eq!(answer.fields.get("offset"), Some("1"));
}

/// Java's broker shows a half message in light queues before it is committed.
#[test]
fn half_of_a_transaction_is_in_its_light_queues_when_it_is_committed_and_not_before() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = start(dir.path(), 100);
    let mut client = Client::of(&node);
    let properties =
        format!("{}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}producers\u{2}UNIQ_KEY\u{1}U\u{2}", names("%LMQ%a"));
    let half = client.produce("T", 0, b"half", &properties);
    assert_eq!(half.code, 0, "{:?}", half.remark);
    assert_eq!(bodies(&mut client, "%LMQ%a"), Vec::<Vec<u8>>::new());
    let place = half.fields.get("msgId").expect("an id");
    let log_offset = i64::from_str_radix(&place[16..], 16).expect("a place in the log");
    let ending = EndTransactionHeader {
        producer_group: Text::from("producers"),
        queue_offset: 0,
        log_offset,
        outcome: 8,
        ..EndTransactionHeader::default()
    };
    let ended = client.call(request::<EndTransaction>(&ending));
    assert_eq!(ended.code, 0, "{:?}", ended.remark);
    assert_eq!(bodies(&mut client, "%LMQ%a"), [b"half"]);
}

#[test]
fn names_of_no_light_queue_offsets_of_the_client_and_one_queue_too_many_are_refused_or_left_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = start(dir.path(), 2);
    let mut client = Client::of(&node);
    for name in ["plain", "%LMQ%a,,%LMQ%b", "%LMQ%a/b", "%LMQ%..x.", &format!("%LMQ%{}", "x".repeat(130))] {
        let refused = client.produce("T", 0, b"body", &names(name));
        assert_eq!(refused.code, ResponseCode::MESSAGE_ILLEGAL.0, "{name}");
        assert!(
            refused.remark.as_deref().is_some_and(|remark| remark.contains("INNER_MULTI_DISPATCH names"))
        );
    }
    let numbered = format!("{}INNER_MULTI_QUEUE_OFFSET\u{1}77\u{2}", names("%LMQ%a"));
    assert_eq!(client.produce("T", 0, b"one", &numbered).code, 0);
    assert_eq!(bodies(&mut client, "%LMQ%a"), [b"one"], "the number is the broker's");
    assert_eq!(client.produce("T", 0, b"two", &names("%LMQ%b,%LMQ%b")).code, 0);
    assert_eq!(bodies(&mut client, "%LMQ%b"), [b"two"], "a queue that is named twice has it once");
    let refused = client.produce("T", 0, b"three", &names("%LMQ%c"));
    assert_eq!(refused.code, ResponseCode::SYSTEM_ERROR.0);
    let remark = refused.remark.expect("a remark");
    assert!(remark.starts_with("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]") && remark.contains("limit 2"), "{remark}");
    let delete = DeleteTopicInBrokerHeader { topic: Text::from("%LMQ%b") };
    assert_eq!(client.call(request::<DeleteTopicInBroker>(&delete)).code, 0);
    assert_eq!(client.produce("T", 0, b"four", &names("%LMQ%c")).code, 0, "there is room again");
    assert_eq!(bodies(&mut client, "%LMQ%b"), Vec::<Vec<u8>>::new());
}

#[test]
fn without_the_settings_the_property_is_kept_and_does_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(client.call(send_request("T", 0, b"one", &names("%LMQ%a,plain"))).code, 0);
    assert_eq!(pull(&mut client, "%LMQ%a", 0).0.code, ResponseCode::TOPIC_NOT_EXIST.0);
    let stored = Message::decode_all(client.pull("T", 0, 0, "*").body).expect("records");
    assert_eq!(stored[0].properties.get(properties::INNER_MULTI_DISPATCH), Some("%LMQ%a,plain"));
}
