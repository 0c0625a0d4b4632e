//! Reads over a socket: how much one pull or query gives, and what tools hear of progress.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use troupemq_codec::filter::MessageFilter;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::message::{Message, OffsetId};
use troupemq_codec::request::*;
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::inspect::{StoreView, rebuild};
use troupemq_store::{StoreConfig, SystemClock};

use crate::config::BrokerConfig;
use crate::pull::check::Selects;
use crate::pull::read::{self, Bounds, Source};
use crate::testing::{
    Client, commit_request, pull_header, request, send_request, start_broker, stored, topic_request,
};

fn messages(answer: &Command) -> Vec<Message> {
    assert_eq!(answer.code, 0, "{answer:?}");
    Message::decode_all(answer.body.clone()).unwrap()
}

/// Sends as many messages to queue 0 of the topic `T`, several at a time.
fn fill(client: &mut Client, count: usize, body: &[u8], properties: &str) {
    for _ in 0..count {
        client.send(send_request("T", 0, body, properties));
    }
    for _ in 0..count {
        assert_eq!(client.receive().expect("an answer").code, 0);
    }
}

fn query_request(key: &str, is_unique_key: Option<bool>) -> Command {
    request::<QueryMessage>(&QueryMessageHeader {
        topic: Text::from("T"),
        key: Text::from(key),
        messages_max: 500,
        begin_timestamp_ms: 0,
        end_timestamp_ms: i64::MAX,
        is_unique_key,
    })
}

fn query(client: &mut Client, key: &str, is_unique_key: Option<bool>) -> Vec<Message> {
    messages(&client.call(query_request(key, is_unique_key)))
}

fn pull(client: &mut Client, queue_offset: i64, messages_max: i32) -> Vec<Message> {
    let header = PullMessageHeader { messages_max, ..pull_header("T", 0, queue_offset, "*") };
    messages(&client.call(request::<PullMessage>(&header)))
}

/// 3.8 #67.
#[test]
fn a_pull_gives_32_messages_or_256_kib_unless_the_first_is_larger() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    fill(&mut client, 60, b"x", "");
    assert_eq!(pull(&mut client, 0, 50).len(), 32);
    assert_eq!(pull(&mut client, 0, 5).len(), 5);
    assert_eq!(pull(&mut client, 40, 50).len(), 20);
    fill(&mut client, 3, &[7; 300 << 10], "");
    fill(&mut client, 4, &[7; 100 << 10], "");
    assert_eq!(pull(&mut client, 60, 50).len(), 1, "the first is taken, however large it is");
    assert_eq!(pull(&mut client, 63, 50).len(), 2, "the third would be over the limit");
}

/// Who is further behind than the share of memory that counts as such reads from the disk, as far as anybody knows.
#[test]
fn a_pull_from_far_back_gives_8_messages_or_64_kib_unless_the_first_is_larger() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    fill(&mut client, 20, b"x", "");
    fill(&mut client, 1, &[7; 100 << 10], "");
    fill(&mut client, 4, &[7; 30 << 10], "");
    let queue = node.broker().unwrap().queues.get("T", 0).unwrap();
    let (log, config) = (&node.broker().unwrap().log, BrokerConfig::default());
    // Of 100 bytes of memory 40 count: no record is so short.
    let found = |queue_offset| {
        let bounds = Bounds { is_warm: true, ..Bounds::of(&config, 100, 0, 32) };
        let selects = Selects { filter: Arc::new(MessageFilter::compile(None, "*").unwrap()), bits: None };
        let source = Source { units: &queue, log, selects: &selects, bounds };
        let reading = read::read(&source, queue_offset);
        (reading.count, reading.is_far)
    };
    assert_eq!([0, 8, 16].map(found), [(8, true), (8, true), (4, true)]);
    assert_eq!([20, 21].map(found), [(1, true), (2, true)], "64 KiB, and the first however large it is");
}

#[test]
fn a_query_gives_the_newest_messages_that_fit_into_8_mib_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    fill(&mut client, 30, &[7; 300 << 10], "KEYS\u{1}large\u{2}");
    let found: Vec<_> = query(&mut client, "large", None).iter().map(|one| one.queue_offset).collect();
    assert_eq!(found, (3..30).collect::<Vec<_>>(), "as of more than 64 the newest are given");
}

#[test]
fn a_message_whose_body_is_damaged_is_found_by_no_id_and_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let sent = stored(&client.produce("T", 0, &[7; 1_000], "KEYS\u{1}rotten\u{2}"));
    let id: OffsetId = sent.message_id.parse().unwrap();
    let file = dir.path().join("commitlog").join(format!("{:020}", 0));
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[8], u64::try_from(id.log_offset).unwrap() + 500).unwrap();
    let by_id = ViewMessageByIdHeader { topic: None, log_offset: id.log_offset };
    let answer = client.call(request::<ViewMessageById>(&by_id));
    assert_eq!((answer.response_code(), answer.body.len()), (ResponseCode::SYSTEM_ERROR, 0));
    let answer = client.call(query_request("rotten", None));
    assert_eq!((answer.response_code(), answer.body.len()), (ResponseCode::QUERY_NOT_FOUND, 0));
}

#[test]
fn a_queue_that_is_written_and_not_read_is_refused_to_a_pull() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let mut two_written = topic_request("Grows", 1, 6, None);
    two_written.fields.set("writeQueueNums", "2");
    assert_eq!(client.call(two_written).code, 0);
    assert_eq!(client.produce("Grows", 1, b"x", "").code, 0);
    let answer = client.call(request::<PullMessage>(&pull_header("Grows", 1, 0, "*")));
    assert_eq!(answer.response_code(), ResponseCode::INVALID_PARAMETER);
    let told = "queueId[1] is illegal, topic:[Grows] topicConfig.readQueueNums:[1]";
    assert!(answer.remark.as_deref().unwrap_or_default().starts_with(told), "{answer:?}");
}

/// 3.8 #78, #79.
#[test]
fn a_query_gives_64_messages_and_one_by_unique_id_32() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    fill(&mut client, 70, b"x", "KEYS\u{1}first second\u{2}UNIQ_KEY\u{1}U\u{2}");
    let mut query = |key: &str, is_unique_key| query(&mut client, key, is_unique_key).len();
    assert_eq!([query("first", None), query("second", None), query("U", Some(true))], [64, 64, 32]);
}

/// 3.1 #4, 3.1 #15.
#[test]
fn long_properties_flags_and_buyers_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let long = "汉".repeat(10 * 1024);
    let properties = format!("long\u{1}{long}\u{2}BUYER_ID\u{1}b-1\u{2}");
    let mut sent = send_request("T", 0, b"x", &properties);
    sent.fields.set("h", "-17");
    assert_eq!(client.call(sent).code, 0);
    let message = pull(&mut client, 0, 1).remove(0);
    assert_eq!(message.flag, -17);
    assert_eq!(message.properties.get("long"), Some(long.as_str()));
    assert_eq!(message.properties.get("BUYER_ID"), Some("b-1"));
}

fn commit(client: &mut Client, group: &str, queue_offset: i64) {
    assert_eq!(client.call(commit_request(group, "T", 0, queue_offset)).code, 0);
}

fn progress(client: &mut Client, group: &str) -> Vec<(i32, ConsumedOffset)> {
    let header = GetConsumeStatsHeader { group: Text::from(group), ..Default::default() };
    let answer = client.call(request::<GetConsumeStats>(&header));
    assert_eq!(answer.code, 0, "{answer:?}");
    let stats: ConsumeStats = from_loose(&answer.body).unwrap();
    stats.offset_table.into_iter().map(|(queue, offset)| (queue.queue_id, offset)).collect()
}

/// 3.8 #73, #74, #75.
#[test]
fn tools_see_every_queue_of_a_group_that_committed_once_and_what_was_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    fill(&mut client, 3, b"x", "");
    let of = |queue: &(i32, ConsumedOffset)| (queue.0, queue.1.broker_offset, queue.1.consumer_offset);
    commit(&mut client, "TOOLS_CONSUMER", 0);
    let fresh = progress(&mut client, "TOOLS_CONSUMER");
    let expected = [(0, 3, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)];
    assert_eq!(fresh.iter().map(of).collect::<Vec<_>>(), expected);
    let header = PullMessageHeader { group: Text::from("TOOLS_CONSUMER"), ..pull_header("T", 0, 0, "*") };
    assert_eq!(messages(&client.call(request::<PullMessage>(&header))).len(), 3);
    let pulled = progress(&mut client, "TOOLS_CONSUMER");
    assert_eq!((pulled[0].1.consumer_offset, pulled[0].1.pull_offset), (0, 3), "handed out, not consumed");
    commit(&mut client, "TOOLS_CONSUMER", 3);
    let done = progress(&mut client, "TOOLS_CONSUMER");
    assert_eq!(done[0].1.consumer_offset, done[0].1.broker_offset);
}

/// 3.8 #76.
#[test]
fn a_fresh_topic_has_an_entry_for_each_queue_and_all_are_empty() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let made = client.call(request::<UpdateAndCreateTopic>(&UpdateAndCreateTopicHeader {
        topic: Text::from("T"),
        default_topic: Text::from("TBW102"),
        read_queue_nums: 2,
        write_queue_nums: 3,
        perm: 6,
        topic_filter_type: Text::from("SINGLE_TAG"),
        ..Default::default()
    }));
    assert_eq!(made.code, 0);
    let header = GetTopicStatsInfoHeader { topic: Text::from("T") };
    let stats: TopicStats = from_loose(&client.call(request::<GetTopicStatsInfo>(&header)).body).unwrap();
    assert_eq!(stats.offset_table.len(), 3);
    let is_empty = |offset: &TopicOffset| *offset == TopicOffset::default();
    assert!(stats.offset_table.values().all(is_empty), "{stats:?}");
}

fn reset(client: &mut Client, queue_offset: i64) -> Command {
    let header = InvokeBrokerToResetOffsetHeader {
        topic: Text::from("T"),
        group: Text::from("TOOLS_CONSUMER"),
        queue_id: Some(0),
        queue_offset: Some(queue_offset),
        timestamp_ms: -1,
        is_force: true,
    };
    client.call(request::<InvokeBrokerToResetOffset>(&header))
}

/// 3.9 #81, #82, #85.
#[test]
fn a_reset_within_the_queue_counts_until_a_pull_has_taken_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    fill(&mut client, 3, b"x", "");
    commit(&mut client, "TOOLS_CONSUMER", 3);
    let beyond = reset(&mut client, 5);
    assert_eq!(beyond.response_code(), ResponseCode::SYSTEM_ERROR);
    assert!(beyond.remark.is_some_and(|remark| remark.contains("not in consume queue range [0-3]")));
    for queue_offset in [4, 2, 1] {
        let answer = reset(&mut client, queue_offset);
        let body: ResetOffsetBody = from_loose(&answer.body).unwrap();
        assert_eq!(body.offset_table.into_values().collect::<Vec<_>>(), [queue_offset]);
    }
    commit(&mut client, "TOOLS_CONSUMER", 3);
    let header = PullMessageHeader { group: Text::from("TOOLS_CONSUMER"), ..pull_header("T", 0, 3, "*") };
    let moved = client.call(request::<PullMessage>(&header));
    assert_eq!(moved.response_code(), ResponseCode::PULL_OFFSET_MOVED);
    assert_eq!(moved.fields.get("nextBeginOffset"), Some("1"), "the last reset wins");
    assert_eq!(client.call(request::<PullMessage>(&header)).response_code(), ResponseCode::PULL_NOT_FOUND);
}

/// Copies units of another queue over old ones, as a misdirected write or a hand does.
#[test]
fn a_damaged_old_unit_never_gives_a_consumer_another_message() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    fill(&mut client, 20, b"right", "");
    for _ in 0..20 {
        assert_eq!(client.produce("Other", 0, b"wrong", "").code, 0);
    }
    node.stop_and_wait().unwrap();
    let queue = |topic: &str| dir.path().join("consumequeue").join(topic).join("0/00000000000000000000");
    let other = std::fs::read(queue("Other")).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(queue("T")).unwrap();
    file.write_all_at(&other[5 * 20..7 * 20], 5 * 20).unwrap();
    file.write_all_at(&[0xff; 20], 9 * 20).unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    fill(&mut client, 1, b"right", "");
    let (mut offsets, mut next) = (Vec::new(), 0);
    while next < 21 {
        let answer = client.call(request::<PullMessage>(&pull_header("T", 0, next, "*")));
        let reply: PullMessageReplyHeader = answer.header().unwrap();
        assert!(reply.next_offset > next, "a consumer gets on");
        next = reply.next_offset;
        for message in Message::decode_all(answer.body.clone()).unwrap() {
            assert_eq!((&message.body[..], message.topic.as_str()), (&b"right"[..], "T"));
            offsets.push(message.queue_offset);
        }
    }
    assert_eq!(offsets, (0..21).filter(|offset| ![5, 6, 9].contains(offset)).collect::<Vec<_>>());
    node.stop_and_wait().unwrap();
    let mut findings = Vec::new();
    let config = StoreConfig::in_dir(dir.path());
    StoreView::open(dir.path()).unwrap().check(&mut |one| findings.push(one.to_string())).unwrap();
    assert!(findings.iter().any(|one| one.contains("consumequeue/T/0 at byte 100")), "{findings:?}");
    rebuild(config, Arc::new(SystemClock::new())).unwrap();
    let node = start_broker(dir.path());
    assert_eq!(pull(&mut Client::of(&node), 0, 32).len(), 21);
}
