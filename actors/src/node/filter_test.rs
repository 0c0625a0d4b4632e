//! SQL92 filters of pulls over a socket, and what a poisoned node does.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use troupemq_codec::message::Message;
use troupemq_codec::request::{PULL_SUSPENDS, PullMessage, PullMessageHeader, PullMessageReplyHeader};
use troupemq_codec::{Command, ResponseCode};

use crate::node::{Node, NodeError, NodeHandle};
use crate::testing::{Client, pull_header, request, small_broker, start_broker};

fn filtering_broker(dir: &std::path::Path) -> NodeHandle {
    let mut config = small_broker(dir);
    config.broker.as_mut().unwrap().config.enable_property_filter = true;
    Node::start(config).unwrap()
}

fn sql_pull(offset: i64, expression: &str) -> PullMessageHeader {
    let expression_type = Some("SQL92".into());
    PullMessageHeader { expression_type, ..pull_header("Sql", 0, offset, expression) }
}

fn bodies(answer: &Command) -> Vec<u8> {
    let messages = Message::decode_all(answer.body.clone()).unwrap();
    messages.iter().map(|message| message.body[0]).collect()
}

fn produce(client: &mut Client, price: u8) {
    let properties = format!("price\u{1}{price}\u{2}");
    assert_eq!(client.produce("Sql", 0, &[price], &properties).code, 0);
}

#[test]
fn a_pull_selects_by_properties() {
    let dir = tempfile::tempdir().unwrap();
    let node = filtering_broker(dir.path());
    let mut client = Client::of(&node);
    (0..10).for_each(|price| produce(&mut client, price));
    let cases: [(&str, &[u8], i64); 3] =
        [("price > 6", &[7, 8, 9], 0), ("price BETWEEN 2 AND 3", &[2, 3], 0), ("price > 99", &[], 20)];
    for (expression, expected, code) in cases {
        let answer = client.call(request::<PullMessage>(&sql_pull(0, expression)));
        assert_eq!((i64::from(answer.code), bodies(&answer)), (code, expected.to_vec()), "{expression}");
        let header: PullMessageReplyHeader = answer.header().unwrap();
        assert_eq!(header.next_offset, 10);
    }
    let broken = client.call(request::<PullMessage>(&sql_pull(0, "price >")));
    assert_eq!(broken.response_code(), ResponseCode::SUBSCRIPTION_PARSE_FAILED);
}

#[test]
fn a_held_pull_sleeps_on_through_what_its_sql_does_not_select() {
    let dir = tempfile::tempdir().unwrap();
    let node = filtering_broker(dir.path());
    let (mut producer, mut consumer) = (Client::of(&node), Client::of(&node));
    produce(&mut producer, 1);
    let header = sql_pull(1, "price > 6");
    let sys_flag = header.sys_flag | PULL_SUSPENDS;
    let held = consumer.send(request::<PullMessage>(&PullMessageHeader { sys_flag, ..header.clone() }));
    // Requests of a connection are served in their order: once this is answered the pull is held.
    assert_eq!(consumer.pull("Nowhere", 0, 0, "*").response_code(), ResponseCode::TOPIC_NOT_EXIST);
    (1..6).for_each(|price| produce(&mut producer, price));
    produce(&mut producer, 8);
    let woken = consumer.receive().expect("the pull is woken");
    assert_eq!((woken.opaque, woken.code, bodies(&woken)), (held, 0, vec![8]));
    let header = PullMessageHeader { sys_flag, suspend_timeout_ms: 1500, queue_offset: 7, ..header };
    consumer.send(request::<PullMessage>(&header));
    assert_eq!(consumer.pull("Nowhere", 0, 0, "*").response_code(), ResponseCode::TOPIC_NOT_EXIST);
    produce(&mut producer, 2);
    let late = consumer.receive().expect("an answer at the deadline");
    assert_eq!((late.code, late.fields.get("nextBeginOffset")), (20, Some("8")));
}

#[test]
fn a_broker_that_does_not_filter_by_properties_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    produce(&mut client, 1);
    let answer = client.call(request::<PullMessage>(&sql_pull(0, "price > 6")));
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
    assert!(answer.remark.unwrap().contains("does not support consumer to filter message by SQL92"));
}

#[test]
fn a_poisoned_node_stops_says_why_and_recovers_at_its_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    assert_eq!(Client::of(&node).produce("Kept", 0, b"x", "").code, 0);
    node.broker().unwrap().poison.trip("the test says so");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ended = runtime.block_on(node.ended()).expect_err("a poisoned node does not end well");
    assert!(matches!(&*ended, NodeError::Poisoned { cause } if cause == "the test says so"));
    assert!(dir.path().join("abort").try_exists().unwrap(), "the next start must recover");
    drop(node);
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(Message::decode_all(client.pull("Kept", 0, 0, "*").body).unwrap().len(), 1);
}
