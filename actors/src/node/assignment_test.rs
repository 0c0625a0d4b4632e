//! Who reads which queue, asked of a broker over a socket; how groups read topics.
//!
//! Invariants:
//! - every test has its own node, folder and ports.

use std::path::Path;

use troupemq_codec::heartbeat_data::{ConsumerData, MessageModel};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::*;
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{Command, ResponseCode, Text};

use crate::config::NameServerPart;
use crate::node::{Node, NodeHandle};
use crate::testing::{
    self, Client, member_data, request, small_broker, start_broker, start_broker_as, topic_request,
};

const GROUP: &str = "Readers";

/// A member of the group; it stays one as long as its connection is kept.
fn join(node: &NodeHandle, client_id: &str) -> Client {
    let consumer = ConsumerData { group_name: Text::from(GROUP), ..ConsumerData::default() };
    testing::join(node, &member_data(client_id, consumer))
}

fn make_topic(client: &mut Client, topic: &str, queues: i32, perm: i32) {
    assert_eq!(client.call(topic_request(topic, queues, perm, None)).code, 0);
}

/// The queues that a client is given, with the mode in which it is to read them; none if there is no answer.
fn asked(client: &mut Client, body: &AssignmentBody) -> Option<Vec<(MessageQueue, RequestMode)>> {
    let answer =
        client.call(request::<QueryAssignment>(&Default::default()).with_body(to_fastjson(body).into()));
    assert_eq!(answer.code, 0, "{answer:?}");
    let reply: AssignmentReplyBody = from_loose(&answer.body).expect("a body that clients read");
    let assignments = reply.message_queue_assignments?;
    Some(assignments.into_iter().map(|one| (one.message_queue, one.mode)).collect())
}

fn wish(client_id: &str, topic: &str) -> AssignmentBody {
    AssignmentBody {
        client_id: client_id.into(),
        consumer_group: GROUP.into(),
        message_model: MessageModel::Clustering,
        strategy_name: Some("AVG".into()),
        topic: topic.into(),
    }
}

fn ids(client: &mut Client, body: &AssignmentBody) -> Option<Vec<i32>> {
    Some(asked(client, body)?.iter().map(|(queue, _)| queue.queue_id).collect())
}

fn set_mode(client: &mut Client, topic: &str, group: &str, (mode, share): (RequestMode, i32)) -> Command {
    let body = RequestModeBody {
        topic: topic.into(),
        consumer_group: group.into(),
        mode,
        pop_share_queue_num: share,
    };
    client.call(request::<SetMessageRequestMode>(&Default::default()).with_body(to_fastjson(&body).into()))
}

/// 4.10: AVG and AVG_BY_CIRCLE among the members; what cannot be decided is answered without a list.
#[test]
fn a_broker_divides_queues_among_the_members_of_a_group() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    make_topic(&mut client, "T", 5, 6);
    make_topic(&mut client, "WriteOnly", 5, 2);
    assert_eq!(ids(&mut client, &wish("a", "T")), None, "a group without members");
    let _members = ["b", "a"].map(|name| join(&node, name));
    assert_eq!(ids(&mut client, &wish("a", "T")), Some(vec![0, 1, 2]));
    assert_eq!(ids(&mut client, &wish("b", "T")), Some(vec![3, 4]));
    assert_eq!(ids(&mut client, &wish("stranger", "T")), Some(vec![]));
    let circle = AssignmentBody { strategy_name: Some("AVG_BY_CIRCLE".into()), ..wish("b", "T") };
    assert_eq!(ids(&mut client, &circle), Some(vec![1, 3]));
    let broadcast = AssignmentBody { message_model: MessageModel::Broadcasting, ..wish("a", "T") };
    assert_eq!(ids(&mut client, &broadcast), Some(vec![0, 1, 2, 3, 4]));
    for strategy in [Some("MACHINE_ROOM".into()), None] {
        assert_eq!(ids(&mut client, &AssignmentBody { strategy_name: strategy, ..wish("a", "T") }), None);
    }
    assert_eq!(ids(&mut client, &wish("a", "Unknown")), None);
    assert_eq!(ids(&mut client, &wish("a", "WriteOnly")), Some(vec![]));
    // 3.6 #57.
    assert_eq!(ids(&mut client, &wish("a", "%LMQ%x")), Some(vec![0]));
    make_topic(&mut client, "T", 2, 6);
    assert_eq!(ids(&mut client, &wish("b", "T")), Some(vec![1]), "queues that are gone are not given");
    node.stop_and_wait().expect("a clean stop");
}

/// 4.10: `serverLoadBalancerEnable` off.
#[test]
fn a_broker_that_shall_not_divide_queues_gives_all_to_everybody() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker_as(dir.path(), |part| part.config.server_load_balancer_enable = false);
    let mut client = Client::of(&node);
    make_topic(&mut client, "T", 3, 6);
    assert_eq!(ids(&mut client, &wish("a", "T")), Some(vec![0, 1, 2]), "a group without members too");
    let _members = ["a", "b"].map(|name| join(&node, name));
    for client_id in ["a", "b", "stranger"] {
        assert_eq!(ids(&mut client, &wish(client_id, "T")), Some(vec![0, 1, 2]), "{client_id}");
    }
    assert_eq!(ids(&mut client, &wish("a", "Unknown")), None);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.6 #56.
#[test]
fn a_group_pops_a_topic_once_that_was_set_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    make_topic(&mut client, "T", 3, 6);
    let pop = (RequestMode::Pop, 1);
    let refused = |answer: Command| (answer.response_code(), answer.remark.unwrap_or_default().to_string());
    let wanted = (ResponseCode::NO_PERMISSION, "retry topic is not allowed to set mode".to_owned());
    assert_eq!(refused(set_mode(&mut client, "%RETRY%Readers", GROUP, pop)), wanted);
    let wanted = (ResponseCode::TOPIC_NOT_EXIST, "topic[Unknown] not exist".to_owned());
    assert_eq!(refused(set_mode(&mut client, "Unknown", GROUP, pop)), wanted);
    let bad = set_mode(&mut client, "T", "a.b", pop);
    assert_eq!(bad.response_code(), ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
    assert_eq!(set_mode(&mut client, "T", GROUP, pop).code, 0);
    assert!(saved(dir.path()).contains("\"mode\":\"POP\""), "{}", saved(dir.path()));
    node.stop_and_wait().expect("a clean stop");

    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let _members = ["a", "b", "c"].map(|name| join(&node, name));
    let given = asked(&mut client, &wish("c", "T")).expect("a list");
    assert!(given.iter().all(|(_, mode)| *mode == RequestMode::Pop));
    assert_eq!(ids(&mut client, &wish("c", "T")), Some(vec![2, 0]), "its own and those of the next member");
    let retries = asked(&mut client, &wish("a", "%RETRY%Readers")).expect("a list");
    assert!(retries.iter().all(|(_, mode)| *mode == RequestMode::Pull));
    assert_eq!(set_mode(&mut client, "T", GROUP, (RequestMode::Pop, 0)).code, 0);
    assert_eq!(ids(&mut client, &wish("c", "T")), Some(vec![-1]), "everything of the broker");
    assert_eq!(set_mode(&mut client, "T", GROUP, (RequestMode::Pull, 0)).code, 0);
    assert_eq!(ids(&mut client, &wish("c", "T")), Some(vec![2]));
    node.stop_and_wait().expect("a clean stop");
}

fn saved(dir: &Path) -> String {
    let path = dir.join("config/messageRequestMode.json");
    std::fs::read_to_string(path).expect("the table is saved").split_whitespace().collect()
}

#[test]
fn the_queues_of_other_brokers_are_divided_as_well() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut first = small_broker(dirs[0].path());
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    first.name_server = Some(NameServerPart { listen, ..NameServerPart::default() });
    let first = Node::start(first).expect("a node with a name server starts");
    let mut second = small_broker(dirs[1].path());
    let config = &mut second.broker.as_mut().expect("a small broker has one").config;
    config.broker_name = "broker-b".to_owned();
    config.namesrv_addr = first.name_server_address().expect("it has one").to_string();
    let second = Node::start(second).expect("a second broker starts");
    for node in [&first, &second] {
        make_topic(&mut Client::of(node), "T", 2, 6);
    }
    let _members = ["a", "b"].map(|name| join(&first, name));
    let given = asked(&mut Client::of(&first), &wish("b", "T")).expect("a list");
    let given: Vec<_> = given.iter().map(|(queue, _)| (queue.broker_name.as_str(), queue.queue_id)).collect();
    assert_eq!(given, [("broker-b", 0), ("broker-b", 1)]);
    second.stop_and_wait().expect("a clean stop");
    first.stop_and_wait().expect("a clean stop");
}
