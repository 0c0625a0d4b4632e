//! Topics of a running broker, changed from outside.
//!
//! Invariants:
//! - each test has a broker of its own.

use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{
    DeleteTopicInBroker, DeleteTopicInBrokerHeader, GetTopicConfig, GetTopicConfigHeader, GetTopicStatsInfo,
    GetTopicStatsInfoHeader, QueryConsumerOffset, QueryConsumerOffsetHeader, TopicStats,
    UpdateAndCreateTopic, UpdateAndCreateTopicHeader,
};
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{Command, ResponseCode, Text};

use crate::testing::{Client, commit_request, request, start_broker};

fn change(topic: &str, perm: i32) -> Command {
    request::<UpdateAndCreateTopic>(&UpdateAndCreateTopicHeader {
        topic: Text::from(topic),
        default_topic: Text::from("TBW102"),
        read_queue_nums: 1,
        write_queue_nums: 1,
        perm,
        topic_filter_type: Text::from("SINGLE_TAG"),
        ..Default::default()
    })
}

fn delete(topic: &str) -> Command {
    request::<DeleteTopicInBroker>(&DeleteTopicInBrokerHeader { topic: Text::from(topic) })
}

fn commit(group: &str, topic: &str, queue_offset: i64) -> Command {
    commit_request(group, topic, 0, queue_offset)
}

fn committed(client: &mut Client, group: &str, topic: &str) -> Option<String> {
    let answer = client.call(request::<QueryConsumerOffset>(&QueryConsumerOffsetHeader {
        group: Text::from(group),
        topic: Text::from(topic),
        queue_id: 0,
        zero_if_not_found: Some(false),
    }));
    answer.fields.get("offset").map(str::to_owned)
}

fn exists(client: &mut Client, topic: &str) -> bool {
    let header = GetTopicConfigHeader { topic: Text::from(topic), ..Default::default() };
    client.call(request::<GetTopicConfig>(&header)).code == 0
}

#[test]
fn a_deleted_topic_is_unknown_to_the_broker_and_its_name_can_be_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start_broker(dir.path());
    let mut client = Client::of(&broker);
    for _ in 0..2 {
        assert_eq!(client.produce("T", 0, b"x", "").code, 0);
        let pulled = client.pull("T", 0, 0, "*");
        assert_eq!(pulled.code, 0, "{:?}", pulled.remark);
        assert_eq!(pulled.fields.get("maxOffset"), Some("1"), "its queues begin anew");
        assert_eq!(client.call(delete("T")).code, 0);
        let gone = client.pull("T", 0, 0, "*");
        assert_eq!(gone.response_code(), ResponseCode::TOPIC_NOT_EXIST);
    }
    broker.stop_and_wait().unwrap();
}

#[test]
fn what_groups_had_of_a_deleted_topic_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start_broker(dir.path());
    let mut client = Client::of(&broker);
    let group = "TOOLS_CONSUMER";
    let retries = ["%RETRY%TOOLS_CONSUMER_T", "%RETRY%other_T"];
    for topic in ["T", "U", retries[0], retries[1]] {
        assert_eq!(client.call(change(topic, 6)).code, 0);
    }
    assert_eq!(client.call(commit(group, "T", 1)).code, 0);
    assert_eq!(client.call(commit(group, "U", 1)).code, 0);
    assert_eq!(committed(&mut client, group, "T").as_deref(), Some("1"));

    assert_eq!(client.call(delete("T")).code, 0);
    assert!(!exists(&mut client, retries[0]), "the retry topic that the group had for it");
    assert!(exists(&mut client, retries[1]), "a group that never read it had none");
    assert_eq!(committed(&mut client, group, "U").as_deref(), Some("1"));
    assert_eq!(client.call(change("T", 6)).code, 0);
    assert_eq!(committed(&mut client, group, "T"), None);
    broker.stop_and_wait().unwrap();
}

#[test]
fn the_ends_of_every_queue_are_told_with_the_time_of_the_last_message() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start_broker(dir.path());
    let mut client = Client::of(&broker);
    for body in ["a", "b"] {
        assert_eq!(client.produce("T", 1, body.as_bytes(), "").code, 0);
    }
    let header = GetTopicStatsInfoHeader { topic: Text::from("T") };
    let answer = client.call(request::<GetTopicStatsInfo>(&header));
    let stats: TopicStats = from_loose(&answer.body).unwrap();
    let of = |queue_id| {
        let queue = MessageQueue { broker_name: Text::from("broker-a"), queue_id, topic: Text::from("T") };
        stats.offset_table[&queue]
    };
    assert_eq!(stats.offset_table.len(), 4);
    assert_eq!((of(0).min_offset, of(0).max_offset, of(0).last_update_timestamp), (0, 0, 0));
    assert_eq!((of(1).min_offset, of(1).max_offset), (0, 2));
    assert!(of(1).last_update_timestamp > 1_700_000_000_000);
    broker.stop_and_wait().unwrap();
}
