//! Consumer groups over a socket: heartbeats, members, leases, progress, resets.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::collections::BTreeMap;

use troupemq_codec::group::{SubscriptionGroupConfig, SubscriptionGroupTable};
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, SubscriptionData};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::{
    ConsumerList, DeleteSubscriptiongroup, DeleteSubscriptiongroupHeader, GetConsumerListByGroup,
    GetConsumerListByGroupHeader, HeartBeat, LockBatchMq, LockBody, LockReplyBody, NotifyConsumerIdsChanged,
    PullMessage, PullMessageHeader, PullMessageReplyHeader, QueryConsumerOffset, QueryConsumerOffsetHeader,
    QueryConsumerOffsetReplyHeader, UnlockBatchMq,
};
use troupemq_codec::topic::{MessageQueue, TopicConfig, TopicConfigTable};
use troupemq_codec::{Command, Request, ResponseCode, Text};
use troupemq_store::tables::TableFile;

use crate::heartbeat::clients::GROUPS_PER_LINK_MAX;
use crate::offsets::ResetOffsets;
use crate::testing::{Client, commit_request, pull_header, request, start_broker, until};

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
    client.call_past_notices(commit_request(GROUP, "T", 0, queue_offset))
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
    until("the pull makes the group known", || {
        commit(&mut client, 1).response_code() == ResponseCode::SUCCESS
    });
    assert_eq!(query(&mut client, 0, None), Ok(1));
}

/// Makes groups with their retry topics before the broker starts: while it runs each takes a write to the disk.
fn there_before(dir: &std::path::Path, names: &[String]) {
    let (file, mut groups) = TableFile::<SubscriptionGroupTable>::open(dir).expect("no table");
    let (topics_file, mut topics) = TableFile::<TopicConfigTable>::open(dir).expect("no table");
    for name in names {
        let group_name = Text::from(name.as_str());
        let config =
            SubscriptionGroupConfig { group_name: group_name.clone(), ..SubscriptionGroupConfig::default() };
        groups.subscription_group_table.insert(group_name, config);
        let topic_name = Text::from(format!("%RETRY%{name}"));
        let config = TopicConfig { topic_name: topic_name.clone(), ..TopicConfig::default() };
        topics.topic_config_table.insert(topic_name, config);
    }
    file.save(&groups).expect("groups are saved");
    topics_file.save(&topics).expect("topics are saved");
}

/// A connection that speaks for more groups than it may leaves nothing behind in any of them.
#[test]
fn a_connection_is_no_member_of_the_groups_that_are_too_many_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..GROUPS_PER_LINK_MAX).map(|number| format!("g{number}")).collect();
    there_before(dir.path(), &names);
    let node = start_broker(dir.path());
    let (mut client, mut greedy) = (Client::of(&node), Client::of(&node));
    let named = |name: String| ConsumerData { group_name: Text::from(name), ..ConsumerData::default() };
    let beat = |groups: Vec<ConsumerData>| {
        let data = HeartbeatData {
            client_id: Text::from("greedy"),
            consumer_data_set: groups,
            ..HeartbeatData::default()
        };
        Command::request::<HeartBeat>(&Default::default()).with_body(to_fastjson(&data).into())
    };
    assert_eq!(greedy.call_past_notices(beat(names.into_iter().map(named).collect())).remark, None);
    let answer = greedy.call_past_notices(beat(vec![named(GROUP.to_owned())]));
    let told = answer.remark.clone().unwrap_or_default();
    assert_eq!(answer.code, 0, "{told}");
    assert_eq!(
        told.as_str(),
        "1 of its groups, from readers on, are left out: a connection speaks for 4096 at most"
    );
    assert!(members(&mut client).is_empty(), "nobody would end its membership with its connection");
    drop(greedy);
    until("the others end with it", || {
        node.broker().unwrap().directory.group("g0").is_none_or(|view| view.online().is_none())
    });
    node.stop_and_wait().expect("a clean stop");
}

fn lock(group: &str, client_id: &str, queue: &MessageQueue) -> Command {
    let body = LockBody {
        client_id: Text::from(client_id),
        consumer_group: Text::from(group),
        queues: vec![queue.clone()],
        only_this_broker: false,
    };
    Command::request::<LockBatchMq>(&Default::default()).with_body(to_fastjson(&body).into())
}

/// The queues that the answer to a lock names.
fn locked(answer: Command) -> Vec<MessageQueue> {
    assert_eq!(answer.code, 0, "{answer:?}");
    from_loose::<LockReplyBody>(&answer.body).unwrap().locked
}

#[test]
fn one_client_holds_a_queue_until_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let (mut first, mut second) = (Client::of(&node), Client::of(&node));
    first.call_past_notices(beat("a", "T"));
    let queue = MessageQueue { topic: Text::from("T"), broker_name: Text::from("b"), queue_id: 0 };
    let lock = |client_id: &str| lock(GROUP, client_id, &queue);
    assert_eq!(locked(first.call_past_notices(lock("a"))), std::slice::from_ref(&queue));
    assert!(locked(second.call(lock("b"))).is_empty());
    // A stranger can neither take the queue nor give it away.
    let strangers = Command { code: UnlockBatchMq::CODE, ..lock("stranger") };
    assert_eq!(second.call(strangers).code, 0);
    assert!(locked(second.call(lock("stranger"))).is_empty());
    assert_eq!(locked(first.call_past_notices(lock("a"))), [queue]);
}

/// 3.6 #49: leases know no groups.
#[test]
fn who_locks_for_a_group_that_is_not_there_holds_its_queues_and_makes_no_group() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let (mut first, mut second) = (Client::of(&node), Client::of(&node));
    let queue = MessageQueue { topic: Text::from("T"), broker_name: Text::from("b"), queue_id: 0 };
    for group in [GROUP, "no name of a group!"] {
        assert_eq!(locked(first.call(lock(group, "a", &queue))), std::slice::from_ref(&queue), "{group}");
        assert!(locked(second.call(lock(group, "b", &queue))).is_empty(), "{group}");
        assert!(node.broker().unwrap().directory.group(group).is_none(), "{group} is not made for it");
    }
    // Once it is there its leases go on.
    second.call_past_notices(beat("b", "T"));
    assert!(node.broker().unwrap().directory.group(GROUP).is_some());
    assert!(locked(second.call_past_notices(lock(GROUP, "b", &queue))).is_empty());
    assert_eq!(locked(first.call(lock(GROUP, "a", &queue))), std::slice::from_ref(&queue));
    let unlock = |group| Command { code: UnlockBatchMq::CODE, ..lock(group, "a", &queue) };
    for group in [GROUP, "no name of a group!"] {
        assert_eq!(first.call(unlock(group)).code, 0);
        assert_eq!(locked(second.call_past_notices(lock(group, "b", &queue))), std::slice::from_ref(&queue));
    }
}

/// 3.6 #49: the leases of a group that is deleted are held on, who holds a queue does not hear of it.
#[test]
fn who_holds_a_queue_holds_it_on_when_its_group_is_deleted_and_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let (mut first, mut second) = (Client::of(&node), Client::of(&node));
    let queue = MessageQueue { topic: Text::from("T"), broker_name: Text::from("b"), queue_id: 0 };
    let lock = |client_id: &str| lock(GROUP, client_id, &queue);
    first.call_past_notices(beat("a", "T"));
    assert_eq!(locked(first.call_past_notices(lock("a"))), std::slice::from_ref(&queue));
    let header = DeleteSubscriptiongroupHeader { group: Text::from(GROUP), clean_offset: Some(true) };
    assert_eq!(second.call(request::<DeleteSubscriptiongroup>(&header)).code, 0);
    assert!(node.broker().unwrap().directory.group(GROUP).is_none());
    assert!(locked(second.call(lock("b"))).is_empty(), "while it is gone");
    second.call_past_notices(beat("b", "T"));
    assert!(locked(second.call_past_notices(lock("b"))).is_empty(), "when it is there again");
    assert_eq!(locked(first.call_past_notices(lock("a"))), [queue]);
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

#[test]
fn a_reset_that_nobody_has_pulled_yet_goes_with_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(client.produce("T", 0, b"x", "").code, 0);
    client.call_past_notices(beat("a", "T"));
    let queue_offsets = BTreeMap::from([(0, 0)]);
    let reset = ResetOffsets { group: Text::from(GROUP), topic: Text::from("T"), queue_offsets };
    node.broker().unwrap().offsets.try_send(reset).expect("the mailbox takes it");
    assert_eq!(query(&mut client, 0, None), Ok(0));
    let waits = || node.broker().unwrap().offsets_published.resets.has(GROUP, "T");
    assert!(waits());
    let deletion = DeleteSubscriptiongroupHeader { group: Text::from(GROUP), clean_offset: Some(true) };
    assert_eq!(client.call_past_notices(request::<DeleteSubscriptiongroup>(&deletion)).code, 0);
    assert!(!waits());
}
