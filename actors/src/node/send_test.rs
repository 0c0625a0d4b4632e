//! Sends over a socket: what the broker adds to a message and what it asks of one.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use troupemq_codec::message::{Message, sys_flag};
use troupemq_codec::request::{UpdateAndCreateTopic, UpdateAndCreateTopicHeader};
use troupemq_codec::{Command, ResponseCode, Text};

use crate::testing::{Client, request, start_broker};

fn make(client: &mut Client, topic: &str, filter_type: &str, attributes: &str) {
    let made = client.call(request::<UpdateAndCreateTopic>(&UpdateAndCreateTopicHeader {
        topic: Text::from(topic),
        default_topic: Text::from("TBW102"),
        read_queue_nums: 1,
        write_queue_nums: 1,
        perm: 6,
        topic_filter_type: Text::from(filter_type),
        attributes: Some(Text::from(attributes)),
        ..Default::default()
    }));
    assert_eq!(made.code, 0, "{made:?}");
}

fn first(answer: Command) -> Message {
    Message::decode_all(answer.body).unwrap().remove(0)
}

/// 4.2, step 11.
#[test]
fn messages_of_a_topic_with_many_tags_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    for (topic, filter_type, flag) in [("Many", "MULTI_TAG", sys_flag::MULTI_TAGS), ("One", "SINGLE_TAG", 0)]
    {
        make(&mut client, topic, filter_type, "");
        assert_eq!(client.produce(topic, 0, b"x", "TAGS\u{1}A\u{2}").code, 0);
        let message = first(client.pull(topic, 0, 0, "A"));
        assert_eq!(message.sys_flag & sys_flag::MULTI_TAGS, flag, "{topic}");
    }
}

/// 4.2, step 12.
#[test]
fn a_message_without_a_unique_id_or_with_a_blank_one_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    for (offset, properties) in [(0, ""), (1, "UNIQ_KEY\u{1} \u{2}")] {
        let sent = client.produce("T", 0, b"x", properties);
        let id = first(client.pull("T", 0, offset, "*")).properties.get("UNIQ_KEY").map(str::to_owned);
        assert_eq!(id.as_deref().map(str::len), Some(32), "{properties:?}");
        assert_eq!(sent.fields.get("transactionId"), id.as_deref());
    }
}

/// 4.2, step 12.
#[test]
fn a_topic_that_keeps_the_last_message_of_a_key_refuses_one_without() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    make(&mut client, "Kept", "SINGLE_TAG", "+cleanup.policy=COMPACTION");
    for properties in ["", "KEYS\u{1} \u{2}"] {
        let refused = client.produce("Kept", 0, b"x", properties);
        assert_eq!(refused.response_code(), ResponseCode::MESSAGE_ILLEGAL);
        assert_eq!(refused.remark.as_deref(), Some("Required message key is missing"));
    }
    assert_eq!(client.produce("Kept", 0, b"x", "KEYS\u{1}k\u{2}").code, 0);
}
