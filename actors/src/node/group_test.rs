//! Consumer groups over a socket: heartbeats, members, leases, progress, resets.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::collections::BTreeMap;

use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, SubscriptionData};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::{
    ConsumerList, GetConsumerListByGroup, GetConsumerListByGroupHeader, HeartBeat, LockBatchMq, LockBody,
    LockReplyBody, NotifyConsumerIdsChanged, PullMessage, PullMessageHeader, PullMessageReplyHeader,
    QueryConsumerOffset, QueryConsumerOffsetHeader, QueryConsumerOffsetReplyHeader, UnlockBatchMq,
    UpdateConsumerOffset, UpdateConsumerOffsetHeader,
};
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{Command, Request, ResponseCode, Text};

use crate::offsets::ResetOffsets;
use crate::testing::{Client, pull_header, request, start_broker};

const GROUP: &str = "readers";

fn beat(client_id: &str, topic: &str) -> Command {
    let subscription = SubscriptionData {
        topic: Text::from(topic),
        sub_string: Text::from("*"),
        sub_version: 1,
        ..SubscriptionData::default()
    };
    let data = HeartbeatData {
        client_id: Text::from(client_id),
        consumer_data_set: vec![ConsumerData {
            group_name: Text::from(GROUP),
            subscription_data_set: vec![subscription],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    };
    Command::request::<HeartBeat>(&Default::default()).with_body(to_fastjson(&data).into())
}

/// The members of the group as a client learns them.
fn members(client: &mut Client) -> Vec<Text> {
    let header = GetConsumerListByGroupHeader { group: Text::from(GROUP) };
    let answer = client.call_past_notices(request::<GetConsumerListByGroup>(&header));
    match answer.response_code() {
        ResponseCode::SUCCESS => from_loose::<ConsumerList>(&answer.body).unwrap().consumer_id_list,
        _ => Vec::new(),
    }
}

fn notice(client: &mut Client) -> Command {
    let frame = client.receive().expect("a notice comes");
    assert_eq!((frame.code, frame.is_oneway()), (NotifyConsumerIdsChanged::CODE, true), "{frame:?}");
    frame
}

fn query(client: &mut Client, queue_id: i32, zero_if_not_found: Option<bool>) -> Result<i64, ResponseCode> {
    let header = QueryConsumerOffsetHeader {
        group: Text::from(GROUP),
        topic: Text::from("T"),
        queue_id,
        zero_if_not_found,
    };
    let answer = client.call_past_notices(request::<QueryConsumerOffset>(&header));
    match answer.response_code() {
        ResponseCode::SUCCESS => Ok(answer.header::<QueryConsumerOffsetReplyHeader>().unwrap().queue_offset),
        code => Err(code),
    }
}

fn commit(client: &mut Client, queue_offset: i64) -> Command {
    let header = UpdateConsumerOffsetHeader {
        group: Text::from(GROUP),
        topic: Text::from("T"),
        queue_id: 0,
        queue_offset,
    };
    client.call_past_notices(request::<UpdateConsumerOffset>(&header))
}

#[test]
fn members_are_told_at_once_when_one_comes_and_when_one_closes_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let (mut first, mut second) = (Client::of(&node), Client::of(&node));
    assert!(members(&mut first).is_empty());
    first.call_past_notices(beat("a", "T"));
    second.call_past_notices(beat("b", "T"));
    notice(&mut first);
    assert_eq!(members(&mut first), [Text::from("a"), Text::from("b")]);
    drop(second);
    notice(&mut first);
    assert_eq!(members(&mut first), [Text::from("a")]);
    assert!(node.broker().unwrap().directory.topic("%RETRY%readers").is_some());
}

#[test]
fn a_pull_behind_a_heartbeat_finds_the_group_and_its_subscription() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    client.produce("T", 0, b"x", "");
    let header = PullMessageHeader {
        group: Text::from(GROUP),
        sys_flag: 0,
        subscription: None,
        subscription_version: 1,
        ..pull_header("T", 0, 0, "*")
    };
    let unknown = client.call(request::<PullMessage>(&header));
    assert_eq!(unknown.response_code(), ResponseCode::SUBSCRIPTION_NOT_EXIST);
    client.send(beat("a", "T"));
    let opaque = client.send(request::<PullMessage>(&header));
    let found = loop {
        let frame = client.receive().expect("an answer comes");
        if frame.is_response() && frame.opaque == opaque {
            break frame;
        }
    };
    assert_eq!(found.response_code(), ResponseCode::SUCCESS);
}

#[test]
fn a_group_that_only_pulls_is_known_so_that_its_commits_count() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    client.produce("T", 0, b"x", "");
    assert_eq!(commit(&mut client, 1).response_code(), ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
    let header = PullMessageHeader { group: Text::from(GROUP), ..pull_header("T", 0, 0, "*") };
    assert_eq!(client.call(request::<PullMessage>(&header)).response_code(), ResponseCode::SUCCESS);
    let counted = (0..1000).any(|_| commit(&mut client, 1).response_code() == ResponseCode::SUCCESS);
    assert!(counted, "the pull made the group known");
    assert_eq!(query(&mut client, 0, None), Ok(1));
}

#[test]
fn one_client_holds_a_queue_until_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let (mut first, mut second) = (Client::of(&node), Client::of(&node));
    let queue = MessageQueue { topic: Text::from("T"), broker_name: Text::from("b"), queue_id: 0 };
    let lock = |client_id: &str| {
        let body = LockBody {
            client_id: Text::from(client_id),
            consumer_group: Text::from(GROUP),
            queues: vec![queue.clone()],
            only_this_broker: false,
        };
        Command::request::<LockBatchMq>(&Default::default()).with_body(to_fastjson(&body).into())
    };
    let locked = |answer: Command| from_loose::<LockReplyBody>(&answer.body).unwrap().locked;
    assert_eq!(locked(first.call(lock("a"))), std::slice::from_ref(&queue));
    assert!(locked(second.call(lock("b"))).is_empty());
    // A stranger can neither take the queue nor give it away.
    let strangers = Command { code: UnlockBatchMq::CODE, ..lock("stranger") };
    assert_eq!(second.call(strangers).code, 0);
    assert!(locked(second.call(lock("stranger"))).is_empty());
    assert_eq!(locked(first.call(lock("a"))), [queue]);
}

#[test]
fn committed_offsets_survive_a_restart_and_a_new_group_begins_at_zero_of_a_young_queue() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    client.produce("T", 0, b"x", "");
    let refused = commit(&mut client, 1);
    assert_eq!(refused.response_code(), ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
    client.call_past_notices(beat("a", "T"));
    assert_eq!(query(&mut client, 0, None), Ok(0));
    assert_eq!(query(&mut client, 1, None), Ok(0));
    assert_eq!(query(&mut client, 0, Some(false)), Err(ResponseCode::QUERY_NOT_FOUND));
    assert_eq!(commit(&mut client, 1).response_code(), ResponseCode::SUCCESS);
    node.stop_and_wait().expect("a clean stop");

    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(query(&mut client, 0, Some(false)), Ok(1));
    assert!(node.broker().unwrap().directory.group(GROUP).is_some());
}

#[test]
fn a_reset_is_the_answer_to_the_next_pull_and_commits_before_it_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    for _ in 0..3 {
        client.produce("T", 0, b"x", "");
    }
    client.call_past_notices(beat("a", "T"));
    commit(&mut client, 3);
    let reset = ResetOffsets {
        group: Text::from(GROUP),
        topic: Text::from("T"),
        queue_offsets: BTreeMap::from([(0, 1)]),
    };
    let offsets = &node.broker().unwrap().offsets;
    offsets.try_send(reset).expect("the mailbox takes it");
    assert_eq!(query(&mut client, 0, None), Ok(1));
    let ignored = commit(&mut client, 3);
    assert_eq!(ignored.remark.as_deref(), Some("Offset has been previously reset"));
    let header = PullMessageHeader { group: Text::from(GROUP), ..pull_header("T", 0, 3, "*") };
    let moved = client.call_past_notices(request::<PullMessage>(&header));
    assert_eq!(moved.response_code(), ResponseCode::PULL_OFFSET_MOVED);
    assert_eq!(moved.header::<PullMessageReplyHeader>().unwrap().next_offset, 1);
    assert_eq!(commit(&mut client, 2).remark, None);
    assert_eq!(query(&mut client, 0, None), Ok(2));
}
