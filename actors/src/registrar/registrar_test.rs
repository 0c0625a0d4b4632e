//! Brokers and name servers of this crate, each in a node of its own.
//!
//! Invariants:
//! - what is waited for is asked for again and again; it comes at once, or the test fails after many questions.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{
    GetBrokerClusterInfo, GetRouteinfoByTopic, GetRouteinfoByTopicHeader, UpdateAndCreateTopic,
    UpdateAndCreateTopicHeader,
};
use troupemq_codec::route::{ClusterInfo, TopicRouteData};
use troupemq_codec::{Command, NoHeader, Text};

use crate::config::{NameServerPart, NodeConfig};
use crate::node::{Node, NodeHandle};
use crate::testing::{Client, request, small_broker};

/// How often something is asked for that has to come by itself.
const QUESTIONS_MAX: usize = 200_000;

fn name_server(port: u16) -> NodeHandle {
    let listen = SocketAddr::from(([127, 0, 0, 1], port));
    let part = NameServerPart { listen, ..NameServerPart::default() };
    Node::start(NodeConfig { name_server: Some(part), ..NodeConfig::empty() }).unwrap()
}

fn broker_of(dir: &Path, name_servers: &[SocketAddr]) -> NodeHandle {
    let mut config = small_broker(dir);
    let list: Vec<String> = name_servers.iter().map(SocketAddr::to_string).collect();
    config.broker.as_mut().unwrap().config.namesrv_addr = list.join(";");
    Node::start(config).unwrap()
}

fn at(node: &NodeHandle) -> SocketAddr {
    node.name_server_address().unwrap()
}

fn route(client: &mut Client, topic: &str) -> Option<TopicRouteData> {
    let header = GetRouteinfoByTopicHeader { topic: Text::from(topic), ..Default::default() };
    let answer = client.call(request::<GetRouteinfoByTopic>(&header));
    (answer.code == 0).then(|| from_loose(&answer.body).unwrap())
}

/// Asks until the route is as wanted.
fn await_route(client: &mut Client, topic: &str, is_wanted: impl Fn(Option<&TopicRouteData>) -> bool) {
    for _ in 0..QUESTIONS_MAX {
        if is_wanted(route(client, topic).as_ref()) {
            return;
        }
    }
    panic!("the route of {topic} never became as wanted: {:?}", route(client, topic));
}

fn topic_change(topic: &str, queues: i32) -> Command {
    request::<UpdateAndCreateTopic>(&UpdateAndCreateTopicHeader {
        topic: Text::from(topic),
        default_topic: Text::from("TBW102"),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm: 6,
        topic_filter_type: Text::from("SINGLE_TAG"),
        ..Default::default()
    })
}

#[test]
fn a_broker_is_found_with_each_of_its_topics_as_long_as_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let names = name_server(0);
    let broker = broker_of(dir.path(), &[at(&names)]);
    let mut client = Client::connect(at(&names));
    await_route(&mut client, "TBW102", |route| route.is_some_and(|route| route.queue_datas[0].perm == 7));
    let found = route(&mut client, "TBW102").unwrap();
    let address = broker.broker_address().unwrap().to_string();
    assert_eq!(found.broker_datas[0].broker_addrs[&0].as_str(), address);

    let mut sender = Client::of(&broker);
    assert_eq!(sender.produce("Made", 0, b"on demand", "").code, 0);
    await_route(&mut client, "Made", |route| {
        route.is_some_and(|route| route.queue_datas[0].read_queue_nums == 4)
    });
    assert_eq!(sender.call(topic_change("Made", 6)).code, 0);
    await_route(&mut client, "Made", |route| {
        route.is_some_and(|route| route.queue_datas[0].read_queue_nums == 6)
    });

    broker.stop_and_wait().unwrap();
    assert_eq!(route(&mut client, "Made"), None, "taken back before the stop has ended");
    let clusters = client.call(request::<GetBrokerClusterInfo>(&NoHeader));
    assert_eq!(from_loose::<ClusterInfo>(&clusters.body).unwrap(), ClusterInfo::default());
    names.stop_and_wait().unwrap();
}

#[test]
fn a_broker_finds_a_name_server_that_comes_later_or_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (name_server(0), name_server(0));
    let (first_at, second_at) = (at(&first), at(&second));
    second.stop_and_wait().unwrap();
    let broker = broker_of(dir.path(), &[first_at, second_at]);
    await_route(&mut Client::connect(first_at), "TBW102", |route| route.is_some());

    let second = name_server(second_at.port());
    await_route(&mut Client::connect(second_at), "TBW102", |route| route.is_some());

    first.stop_and_wait().unwrap();
    let first = name_server(first_at.port());
    await_route(&mut Client::connect(first_at), "TBW102", |route| route.is_some());
    for node in [broker, first, second] {
        node.stop_and_wait().unwrap();
    }
}

#[test]
fn who_waits_for_a_start_is_told_when_each_name_server_knows_or_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let (names, gone) = (name_server(0), name_server(0));
    let gone_at = at(&gone);
    gone.stop_and_wait().unwrap();
    let broker = broker_of(dir.path(), &[at(&names), gone_at]);
    let is_registered = || actix_rt::System::new().block_on(broker.registered(Duration::from_secs(60)));
    assert!(is_registered());
    assert!(route(&mut Client::connect(at(&names)), "TBW102").is_some(), "asked once, it is there");
    assert!(is_registered(), "who asks later is told at once");
    broker.stop_and_wait().unwrap();
    names.stop_and_wait().unwrap();
}

#[test]
fn a_node_with_both_parts_registers_with_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    let listen = SocketAddr::from(([0, 0, 0, 0], 0));
    config.name_server = Some(NameServerPart { listen, ..NameServerPart::default() });
    let node = Node::start(config).unwrap();
    let port = at(&node).port();
    let mut client = Client::connect(SocketAddr::from(([127, 0, 0, 1], port)));
    await_route(&mut client, "TBW102", |route| route.is_some());
    node.stop_and_wait().unwrap();
}
