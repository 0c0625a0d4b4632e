//! Progress of groups over a socket: commits that go back, resets, clones, the offsets of queues.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use bytes::BytesMut;
use troupemq_codec::heartbeat_data::{ConsumeType, ConsumerData};
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::message::Message;
use troupemq_codec::request::{
    Boundary, CloneGroupOffset, CloneGroupOffsetHeader, GetEarliestMsgStoretime,
    GetEarliestMsgStoretimeHeader, GetMaxOffset, GetMaxOffsetHeader, GetMinOffset, GetMinOffsetHeader,
    InvokeBrokerToResetOffset, InvokeBrokerToResetOffsetHeader, PULL_COMMITS_OFFSET, PullMessage,
    PullMessageHeader, QueryConsumerOffset, QueryConsumerOffsetHeader, ResetConsumerClientOffset,
    ResetOffsetBody, SearchOffsetByTimestamp, SearchOffsetByTimestampHeader, UnregisterClient,
    UnregisterClientHeader, UpdateConsumerOffset, UpdateConsumerOffsetHeader,
};
use troupemq_codec::{Command, Request, ResponseCode, Text};

use crate::node::NodeHandle;
use crate::testing::{
    Client, beat_request, commit_request, held_pull_header, member_data, pull_header, reader_of, request,
    start_broker, start_broker_as, until,
};

const GROUP: &str = "readers";

fn join(client: &mut Client) {
    join_as(client, ConsumeType::Passively);
}

fn join_as(client: &mut Client, consume_type: ConsumeType) {
    let consumer = ConsumerData { consume_type, ..reader_of(GROUP, "T", 1) };
    let mut beat = beat_request(&member_data("client", consumer));
    beat.version = 477;
    assert_eq!(client.call_past_notices(beat).code, 0);
}

fn commit(client: &mut Client, queue_offset: i64) -> Command {
    client.call_past_notices(commit_request(GROUP, "T", 0, queue_offset))
}

fn progress(client: &mut Client, group: &str) -> Option<i64> {
    let header = QueryConsumerOffsetHeader {
        group: Text::from(group),
        topic: Text::from("T"),
        queue_id: 0,
        zero_if_not_found: Some(false),
    };
    let answer = client.call_past_notices(request::<QueryConsumerOffset>(&header));
    answer.fields.get("offset").map(|offset| offset.parse().unwrap())
}

fn pull(client: &mut Client, queue_offset: i64) -> Command {
    let header = PullMessageHeader { group: Text::from(GROUP), ..pull_header("T", 0, queue_offset, "*") };
    client.call_past_notices(request::<PullMessage>(&header))
}

fn reset(client: &mut Client, change: impl FnOnce(&mut InvokeBrokerToResetOffsetHeader)) -> Command {
    let mut header = InvokeBrokerToResetOffsetHeader {
        topic: Text::from("T"),
        group: Text::from(GROUP),
        queue_id: None,
        queue_offset: None,
        timestamp_ms: -1,
        is_force: true,
    };
    change(&mut header);
    client.call_past_notices(request::<InvokeBrokerToResetOffset>(&header))
}

/// The offsets that a reset answers, by queue id.
fn offsets_of(answer: &Command) -> Vec<(i32, i64)> {
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let body: ResetOffsetBody = from_loose(&answer.body).unwrap();
    body.offset_table.into_iter().map(|(queue, offset)| (queue.queue_id, offset)).collect()
}

/// A broker with ten messages in the first queue of `T`, and a member of the group.
fn ten(dir: &std::path::Path) -> (NodeHandle, Client) {
    let node = start_broker(dir);
    let mut client = Client::of(&node);
    (0..10).for_each(|number| assert_eq!(client.produce("T", 0, &[number], "").code, 0));
    join(&mut client);
    (node, client)
}

// 3.8 #72: offsets may move backwards by 15. Ours: if something asked for it.
#[test]
fn a_member_that_commits_late_is_ignored_and_reported_and_a_seek_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut client) = ten(dir.path());
    pull(&mut client, 0);
    assert_eq!(commit(&mut client, 9).remark, None);
    let late = commit(&mut client, 4);
    assert_eq!(late.code, 0);
    assert_eq!(late.remark.as_deref(), Some("Offset 4 is behind 9 and no reset asked for it: it is ignored"));
    assert_eq!(progress(&mut client, GROUP), Some(9));
    assert_eq!(node.broker().unwrap().stats.read().ignored_commits, 1);
    pull(&mut client, 3);
    assert_eq!(commit(&mut client, 4).remark, None, "the consumer has sought to 3");
    assert_eq!(progress(&mut client, GROUP), Some(4));
}

/// The offset that a pull brings counts when it comes, and as any other commit.
#[test]
fn a_pull_commits_once_however_long_it_is_held_and_one_that_comes_late_is_ignored_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut client) = ten(dir.path());
    let committing = |header: PullMessageHeader, commit_offset| {
        let sys_flag = header.sys_flag | PULL_COMMITS_OFFSET;
        let group = Text::from(GROUP);
        request::<PullMessage>(&PullMessageHeader { group, sys_flag, commit_offset, ..header })
    };
    let ignored = || node.broker().unwrap().stats.read().ignored_commits;
    let mut held = Client::of(&node);
    held.send(committing(held_pull_header("T", 0, 10, "*"), 5));
    until("the held pull has committed", || progress(&mut client, GROUP) == Some(5));
    assert_eq!(commit(&mut client, 7).remark, None);
    assert_eq!(Client::of(&node).produce("T", 0, b"wakes it", "").code, 0);
    assert_eq!(held.receive().expect("it is woken").code, 0);
    assert_eq!((progress(&mut client, GROUP), ignored()), (Some(7), 0));
    let late = committing(pull_header("T", 0, 9, "*"), 4);
    assert_eq!(client.call_past_notices(late).code, 0);
    assert_eq!((progress(&mut client, GROUP), ignored()), (Some(7), 1));
}

/// 3.8 #72: as a client does that stops; another member has had its queue for long.
#[test]
fn a_member_that_commits_late_and_leaves_at_once_is_ignored_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut other) = ten(dir.path());
    assert_eq!(commit(&mut other, 9).remark, None);
    let late = UpdateConsumerOffsetHeader {
        group: Text::from(GROUP),
        topic: Text::from("T"),
        queue_id: 0,
        queue_offset: 4,
    };
    let leaves = UnregisterClientHeader {
        client_id: Text::from("client"),
        producer_group: None,
        consumer_group: Some(Text::from(GROUP)),
    };
    for _ in 0..50 {
        let mut member = Client::of(&node);
        join(&mut member);
        // Both are in the socket before the first is looked at.
        let mut out = BytesMut::new();
        let requests = [request::<UpdateConsumerOffset>(&late), request::<UnregisterClient>(&leaves)];
        for (opaque, mut request) in (1..).zip(requests) {
            request.opaque = opaque;
            request.encode(&mut out);
        }
        member.write(&out);
        let mut answers = 0;
        while answers < 2 {
            answers += usize::from(member.receive().expect("each is answered").is_response());
        }
        assert_eq!(progress(&mut other, GROUP), Some(9));
    }
    assert_eq!(node.broker().unwrap().stats.read().ignored_commits, 50);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.9: a push consumer that resets itself asks for an offset by time, commits what it holds for some seconds more,
/// and then commits where it was told.
#[test]
fn a_member_goes_back_to_the_offset_at_a_time_that_it_asked_for_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut client) = ten(dir.path());
    pull(&mut client, 0);
    commit(&mut client, 9);
    let ask = |client: &mut Client| {
        let header = SearchOffsetByTimestampHeader {
            topic: Text::from("T"),
            queue_id: 0,
            timestamp_ms: 0,
            boundary: None,
        };
        let answer = client.call_past_notices(request::<SearchOffsetByTimestamp>(&header));
        assert_eq!(answer.fields.get("offset"), Some("0"));
    };
    // What a tool asks for opens no way to a member.
    ask(&mut Client::of(&node));
    commit(&mut client, 0);
    assert_eq!(progress(&mut client, GROUP), Some(9));
    ask(&mut client);
    assert_eq!(commit(&mut client, 10).remark, None, "it still commits what it held");
    pull(&mut client, 10);
    commit(&mut client, 4);
    assert_eq!(progress(&mut client, GROUP), Some(10), "nobody asked for 4");
    assert_eq!(commit(&mut client, 0).remark, None);
    assert_eq!(progress(&mut client, GROUP), Some(0));
    assert_eq!(commit(&mut client, 10).remark, None);
    commit(&mut client, 0);
    assert_eq!(progress(&mut client, GROUP), Some(10), "the way counts once");
}

#[test]
fn a_consumer_that_pulls_sets_its_own_position() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(client.produce("T", 0, b"x", "").code, 0);
    join_as(&mut client, ConsumeType::Actively);
    commit(&mut client, 9);
    assert_eq!(commit(&mut client, 2).remark, None);
    assert_eq!(progress(&mut client, GROUP), Some(2));
}

#[test]
fn a_tool_that_is_no_member_may_commit_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut member) = ten(dir.path());
    commit(&mut member, 9);
    let mut tool = Client::of(&node);
    assert_eq!(commit(&mut tool, 2).remark, None);
    assert_eq!(progress(&mut member, GROUP), Some(2));
}

// 3.9 #81: accepted when min <= offset <= max+1, else 1 with `Target offset ... not in consume queue range`;
// timestamp -1 = max offset. #86: unknown topic 17, unknown group 26.
#[test]
fn a_reset_by_offset_stays_within_the_queue_and_one_without_a_time_goes_to_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = ten(dir.path());
    let to = |offset| {
        move |header: &mut InvokeBrokerToResetOffsetHeader| {
            (header.queue_id, header.queue_offset) = (Some(0), Some(offset));
        }
    };
    assert_eq!(offsets_of(&reset(&mut client, to(0))), [(0, 0)]);
    assert_eq!(offsets_of(&reset(&mut client, to(11))), [(0, 11)]);
    let refused = reset(&mut client, to(12));
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(refused.remark.unwrap(), "Target offset 12 not in consume queue range [0-10]");
    assert_eq!(offsets_of(&reset(&mut client, |_| {})), [(0, 10), (1, 0), (2, 0), (3, 0)]);
    let no_topic = reset(&mut client, |header| header.topic = Text::from("none"));
    assert_eq!(no_topic.response_code(), ResponseCode::TOPIC_NOT_EXIST);
    let no_group = reset(&mut client, |header| header.group = Text::from("none"));
    assert_eq!(no_group.response_code(), ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
}

// 3.9 #83: no other queue is affected by the reset of one.
#[test]
fn a_reset_of_one_queue_leaves_the_others_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = ten(dir.path());
    (0..5).for_each(|number| assert_eq!(client.produce("T", 1, &[number], "").code, 0));
    commit(&mut client, 9);
    let of_next = |queue_offset| commit_request(GROUP, "T", 1, queue_offset);
    assert_eq!(client.call_past_notices(of_next(3)).code, 0);
    let to_two = |header: &mut InvokeBrokerToResetOffsetHeader| {
        (header.queue_id, header.queue_offset) = (Some(0), Some(2));
    };
    assert_eq!(offsets_of(&reset(&mut client, to_two)), [(0, 2)]);
    let header = QueryConsumerOffsetHeader {
        group: Text::from(GROUP),
        topic: Text::from("T"),
        queue_id: 1,
        zero_if_not_found: Some(false),
    };
    let answer = client.call_past_notices(request::<QueryConsumerOffset>(&header));
    assert_eq!(answer.fields.get("offset"), Some("3"));
    let header = PullMessageHeader { group: Text::from(GROUP), ..pull_header("T", 1, 3, "*") };
    let answer = client.call_past_notices(request::<PullMessage>(&header));
    assert_eq!((answer.code, Message::decode_all(answer.body).unwrap().len()), (0, 2));
    assert_eq!(client.call_past_notices(of_next(5)).remark, None, "its commits count");
    assert_eq!(progress(&mut client, GROUP), Some(2));
}

// 3.9 #82: 14 answers the reset value until consumed; the next pull of that queue answers 21 with nextBeginOffset
// = reset offset and erases it; commits arriving in between are ignored. #85: several resets: the last one wins.
#[test]
fn a_reset_by_time_is_what_the_next_pull_is_told_and_the_last_of_several_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = ten(dir.path());
    commit(&mut client, 10);
    let stored = Message::decode_all(pull(&mut client, 6).body).unwrap()[0].store_timestamp_ms;
    let search = |timestamp_ms, boundary| {
        request::<SearchOffsetByTimestamp>(&SearchOffsetByTimestampHeader {
            topic: Text::from("T"),
            queue_id: 0,
            timestamp_ms,
            boundary,
        })
    };
    let first = client
        .call_past_notices(search(stored, Some(Boundary::Lower)))
        .fields
        .get("offset")
        .map(str::to_owned);
    let first: i64 = first.unwrap().parse().unwrap();
    assert!(first <= 6, "the first message of the millisecond in which the one at 6 was stored: {first}");
    assert_eq!(
        client.call_past_notices(search(i64::MAX, Some(Boundary::Upper))).fields.get("offset"),
        Some("9")
    );
    assert_eq!(client.call_past_notices(search(i64::MAX, None)).fields.get("offset"), Some("10"));
    assert_eq!(client.call_past_notices(search(0, Some(Boundary::Upper))).fields.get("offset"), Some("0"));
    reset(&mut client, |header| header.timestamp_ms = 0);
    let by_time = reset(&mut client, |header| header.timestamp_ms = stored);
    assert_eq!(offsets_of(&by_time)[0], (0, first));
    assert_eq!(progress(&mut client, GROUP), Some(first));
    assert_eq!(commit(&mut client, 10).remark.as_deref(), Some("Offset has been previously reset"));
    let moved = pull(&mut client, 10);
    assert_eq!(moved.response_code(), ResponseCode::PULL_OFFSET_MOVED);
    assert_eq!(moved.fields.get("nextBeginOffset"), Some(first.to_string().as_str()));
    assert_eq!(pull(&mut client, first).code, 0);
    assert_eq!(commit(&mut client, first + 1).remark, None);
}

#[test]
fn a_reset_that_nobody_takes_is_asked_for_by_the_pulls_of_its_group_and_topic_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut client) = ten(dir.path());
    assert_eq!(client.produce("Other", 0, b"x", "").code, 0);
    let resets = &node.broker().unwrap().offsets_published.resets;
    reset(&mut client, |header| header.timestamp_ms = 0);
    let asks = || [(GROUP, "T"), ("consumers", "T"), (GROUP, "Other")].map(|(g, t)| resets.has(g, t));
    assert_eq!(asks(), [true, false, false]);
    assert_eq!(client.pull("T", 0, 3, "*").code, 0, "another group");
    assert_eq!(asks(), [true, false, false]);
    // All queues of the topic have one: it is asked for until the last is taken.
    for queue_id in 0..4 {
        assert!(resets.has(GROUP, "T"), "{queue_id}");
        let header = PullMessageHeader { group: Text::from(GROUP), ..pull_header("T", queue_id, 9, "*") };
        let moved = client.call_past_notices(request::<PullMessage>(&header));
        assert_eq!(moved.response_code(), ResponseCode::PULL_OFFSET_MOVED);
    }
    assert_eq!(asks(), [false; 3]);
}

#[test]
fn without_resets_of_its_own_the_broker_tells_the_clients_and_lets_them_commit() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.use_server_side_reset_offset = false);
    let (mut member, mut tool) = (Client::of(&node), Client::of(&node));
    (0..10).for_each(|number| assert_eq!(member.produce("T", 0, &[number], "").code, 0));
    let offline = reset(&mut tool, |_| {});
    assert_eq!(offline.response_code(), ResponseCode::CONSUMER_NOT_ONLINE);
    join(&mut member);
    for queue_id in 0..4 {
        let queue_offset = if queue_id == 0 { 9 } else { 0 };
        member.call_past_notices(commit_request(GROUP, "T", queue_id, queue_offset));
    }
    let told = reset(&mut tool, |header| header.timestamp_ms = 0);
    assert_eq!(offsets_of(&told), [(0, 0), (1, 0), (2, 0), (3, 0)]);
    let notice = member.receive().expect("the client is told");
    assert_eq!((notice.code, notice.is_oneway()), (ResetConsumerClientOffset::CODE, true));
    let body: ResetOffsetBody = from_loose(&notice.body).unwrap();
    assert_eq!(body.offset_table.values().copied().collect::<Vec<_>>(), [0, 0, 0, 0]);
    // It commits what it held for ten seconds more, and then where it was sent.
    assert_eq!(commit(&mut member, 9).remark, None);
    assert_eq!(commit(&mut member, 0).remark, None);
    assert_eq!(progress(&mut member, GROUP), Some(0));
    assert_eq!(commit(&mut member, 9).remark, None);
    commit(&mut member, 0);
    assert_eq!(progress(&mut member, GROUP), Some(9), "the way counts once");
}

#[test]
fn a_clone_takes_the_progress_of_a_group_that_is_offline_over_backwards_too() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = ten(dir.path());
    commit(&mut client, 7);
    for group in ["copy", "copy", "partial"] {
        let header = CloneGroupOffsetHeader {
            source_group: Text::from(GROUP),
            target_group: Text::from(group),
            topic: (group == "partial").then(|| Text::from("none")),
            offline: Some(false),
        };
        assert_eq!(client.call_past_notices(request::<CloneGroupOffset>(&header)).code, 0);
        reset(&mut client, |header| (header.queue_id, header.queue_offset) = (Some(0), Some(5)));
    }
    assert_eq!(progress(&mut client, "copy"), Some(5), "the second clone went back");
    assert_eq!(progress(&mut client, "partial"), None);
}

// 3.8 #68: offset == max -> 19; offset > max -> 21 with max; empty queue and offset 0 -> 19, != 0 -> 21 with 0.
#[test]
fn a_queue_tells_its_ends_and_pulls_outside_of_them_where_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, mut client) = ten(dir.path());
    let (topic, queue_id) = (Text::from("T"), 0);
    let max = request::<GetMaxOffset>(&GetMaxOffsetHeader {
        topic: topic.clone(),
        queue_id,
        ..GetMaxOffsetHeader::default()
    });
    let min = request::<GetMinOffset>(&GetMinOffsetHeader { topic: topic.clone(), queue_id });
    let earliest =
        request::<GetEarliestMsgStoretime>(&GetEarliestMsgStoretimeHeader { topic: topic.clone(), queue_id });
    let nothing = request::<GetEarliestMsgStoretime>(&GetEarliestMsgStoretimeHeader { topic, queue_id: 3 });
    let stored = Message::decode_all(pull(&mut client, 0).body).unwrap()[0].store_timestamp_ms.to_string();
    assert_eq!(client.call_past_notices(max).fields.get("offset"), Some("10"));
    assert_eq!(client.call_past_notices(min).fields.get("offset"), Some("0"));
    assert_eq!(client.call_past_notices(earliest).fields.get("timestamp"), Some(stored.as_str()));
    assert_eq!(client.call_past_notices(nothing).fields.get("timestamp"), Some("-1"));
    for (queue_id, offset, code, next) in
        [(0, 10, 19, "10"), (0, 11, 21, "10"), (1, 0, 19, "0"), (1, 4, 21, "0")]
    {
        let answer = client.pull("T", queue_id, offset, "*");
        assert_eq!((answer.code, answer.fields.get("nextBeginOffset")), (code, Some(next)), "{offset}");
    }
}

/// A pull of a queue that commits an offset; its remark.
fn pull_with_commit(client: &mut Client, (group, queue_id): (&str, i32), commit_offset: i64) -> String {
    let header = pull_header("T", queue_id, 0, "*");
    let sys_flag = header.sys_flag | PULL_COMMITS_OFFSET;
    let header = PullMessageHeader { group: Text::from(group), sys_flag, commit_offset, ..header };
    let answer = client.call_past_notices(request::<PullMessage>(&header));
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    answer.remark.unwrap_or_default().to_string()
}

#[test]
fn a_commit_of_a_pull_that_finds_the_table_full_is_told_with_the_limit_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.consumer_offsets_max = 1);
    let mut client = Client::of(&node);
    (0..2).for_each(|queue_id| assert_eq!(client.produce("T", queue_id, b"x", "").code, 0));
    assert_eq!(pull_with_commit(&mut client, ("TOOLS_CONSUMER", 0), 1), "FOUND");
    assert_eq!(progress(&mut client, "TOOLS_CONSUMER"), Some(1), "it took the only place");
    let told = "FOUND; an offset of group TOOLS_CONSUMER in topic T is not kept: the table of offsets is full, \
                consumerOffsetsMax = 1 queues";
    assert_eq!(pull_with_commit(&mut client, ("TOOLS_CONSUMER", 1), 1), told);
    assert_eq!(pull_with_commit(&mut client, ("TOOLS_CONSUMER", 0), 1), "FOUND", "it is known");
    // This question comes behind what the pulls have told.
    progress(&mut client, "TOOLS_CONSUMER");
    assert_eq!(node.broker().unwrap().stats.read().refused_commits, 1);
    node.stop_and_wait().expect("a clean stop");
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(pull_with_commit(&mut client, ("TOOLS_CONSUMER", 1), 1), "FOUND", "there is room again");
}
