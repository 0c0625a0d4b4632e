//! Brokers that fall silent or go away, seen over real connections.
//!
//! Invariants:
//! - what is waited for comes by itself: a closed connection is read, nothing is slept for.

use std::net::SocketAddr;

use bytes::Bytes;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::{
    BrokerHeartbeat, BrokerHeartbeatHeader, GetBrokerClusterInfo, GetRouteinfoByTopic,
    GetRouteinfoByTopicHeader, RegisterBroker, RegisterBrokerBody, RegisterBrokerHeader,
};
use troupemq_codec::route::ClusterInfo;
use troupemq_codec::topic::{TopicConfig, TopicConfigTable};
use troupemq_codec::{Command, NoHeader, ResponseCode, Text};

use crate::config::{NameServerPart, NodeConfig};
use crate::name_server::NameServerConfig;
use crate::node::{Node, NodeHandle};
use crate::testing::{Client, request};

/// Questions that are asked at most for something that has to come by itself.
const QUESTIONS_MAX: usize = 200_000;

pub(super) fn name_server() -> (NodeHandle, SocketAddr) {
    let config = NameServerConfig { scan_not_active_broker_interval: 10, ..NameServerConfig::default() };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let part = NameServerPart { listen, config };
    let node = Node::start(NodeConfig { name_server: Some(part), ..NodeConfig::empty() }).unwrap();
    let address = node.name_server_address().unwrap();
    (node, address)
}

pub(super) fn registration(address: &str, silence_max_ms: i64) -> Command {
    let topics = ["t", "u"].map(|name| (Text::from(name), TopicConfig::default()));
    let table = TopicConfigTable { topic_config_table: topics.into(), ..TopicConfigTable::default() };
    let body = RegisterBrokerBody { topic_config_serialize_wrapper: table, ..RegisterBrokerBody::default() };
    let header = RegisterBrokerHeader {
        broker_name: Text::from("b"),
        broker_address: Text::from(address),
        cluster_name: Text::from("c"),
        ha_address: Text::from("h:2"),
        heartbeat_timeout_ms: Some(silence_max_ms),
        ..RegisterBrokerHeader::default()
    };
    request::<RegisterBroker>(&header).with_body(Bytes::from(body.encode()))
}

pub(super) fn brokers(client: &mut Client) -> usize {
    let answer = client.call(request::<GetBrokerClusterInfo>(&NoHeader));
    from_loose::<ClusterInfo>(&answer.body).unwrap().broker_addr_table.len()
}

#[test]
fn a_silent_broker_is_dropped_and_its_connection_closed() {
    let (node, address) = name_server();
    let mut broker = Client::connect(address);
    assert_eq!(broker.call(registration("h:1", 30)).code, 0);
    assert_eq!(broker.receive(), None, "closed by the name server");
    assert_eq!(brokers(&mut Client::connect(address)), 0);
    node.stop_and_wait().unwrap();
}

#[test]
fn a_broker_that_gives_signs_of_life_stays() {
    let (node, address) = name_server();
    let (mut broker, mut client) = (Client::connect(address), Client::connect(address));
    assert_eq!(broker.call(registration("h:1", 2000)).code, 0);
    let sign = BrokerHeartbeatHeader {
        cluster_name: Text::from("c"),
        broker_address: Text::from("h:1"),
        broker_name: Text::from("b"),
        ..BrokerHeartbeatHeader::default()
    };
    for _ in 0..500 {
        assert_eq!(broker.call(request::<BrokerHeartbeat>(&sign)).code, 0);
        assert_eq!(brokers(&mut client), 1);
    }
    node.stop_and_wait().unwrap();
}

#[test]
fn a_broker_whose_connection_closes_is_gone_at_once() {
    let (node, address) = name_server();
    let mut client = Client::connect(address);
    let mut broker = Client::connect(address);
    assert_eq!(broker.call(registration("h:1", 120_000)).code, 0);
    let mut route = || {
        let header =
            GetRouteinfoByTopicHeader { topic: Text::from("t"), ..GetRouteinfoByTopicHeader::default() };
        client.call(request::<GetRouteinfoByTopic>(&header)).response_code()
    };
    assert_eq!(route(), ResponseCode::SUCCESS);
    drop(broker);
    // 3.12 #117: without its last broker there is no topic.
    let mut codes = (0..QUESTIONS_MAX).map(|_| route()).skip_while(|code| *code == ResponseCode::SUCCESS);
    assert_eq!(codes.next(), Some(ResponseCode::TOPIC_NOT_EXIST));
    drop(codes);
    assert_eq!(brokers(&mut client), 0);
    node.stop_and_wait().unwrap();
}
