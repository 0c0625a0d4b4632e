//! Conversations that Java's brokers, clients and tools had with Java's name server 5.1.4, held with ours.
//!
//! Invariants:
//! - every request of every recorded conversation is asked, and every answer compared: code, keys of the
//!   extension fields, the remark of a refusal, and the body, byte for byte where it says the same thing;
//! - what a conversation presupposes (a topic, a key) is registered before it is asked for, from Java's answer;
//! - where ours differs it stands in [`DIFFERENCES`], with the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use troupemq_codec::loose_json::from_loose;
use troupemq_codec::request::*;
use troupemq_codec::route::TopicRouteData;
use troupemq_codec::topic::{TopicConfig, TopicConfigTable};
use troupemq_codec::{Command, Request, Text};
use troupemq_store::ManualClock;

use super::{NameServerConfig, answer};
use crate::cast::NameServerCast;
use crate::config::NodeClock;
use crate::golden::replay::{Asked, Intended, Replay, asked, difference};
use crate::golden::{Frame, conversations};
use crate::net::{Call, Link};

/// Where ours answers otherwise: file, number of the request (0: all of the file), reason.
const DIFFERENCES: &[Intended] = &[
    ("errors", 223, "a route without a topic is a malformed request, not an unknown topic named null"),
    ("errors", 227, "the missing key is named"),
    ("errors", 239, "the text of later releases: the key is in the black list"),
    (
        "register-compressed-531",
        0,
        "a compressed body is recognised and accepted; Java's answer is an accident",
    ),
];

#[test]
fn every_recorded_request_is_answered_as_java_answers_it() {
    let mut replay = Replay::new(DIFFERENCES);
    let system = actix_rt::System::new();
    for (name, frames) in conversations("namesrv") {
        system.block_on(hold(&name, &frames, &mut replay));
    }
    assert_eq!(replay.end().values().sum::<usize>(), 497, "answers compared");
}

/// Holds one conversation with a fresh name server.
async fn hold(name: &str, frames: &[Frame], replay: &mut Replay) {
    let config = NameServerConfig { order_message_enable: true, ..NameServerConfig::default() };
    let clock = NodeClock(Arc::new(ManualClock::at(1_795_968_000_000)));
    let cast = NameServerCast::start(config, clock).unwrap();
    for asked in asked(frames) {
        if !name.starts_with("register") {
            presuppose(&cast, &asked).await;
        }
        let ours = ask(&cast, asked.request.conn, asked.request.command.clone()).await;
        if let Some(java) = asked.java {
            replay.note(name, asked.request, unlike(asked.request.command.code, java, &ours));
        }
    }
}

async fn ask(cast: &NameServerCast, conn: u64, request: Command) -> Command {
    let call = Call { command: request, link: Link::loose(conn, "127.0.0.1:5".parse().unwrap()) };
    match answer(cast, &call).await {
        Ok(answer) => answer,
        Err(refusal) => Command::response(refusal.code).with_remark(refusal.remark),
    }
}

/// How ours differs from Java's answer, if it does.
fn unlike(request: i32, java: &Command, ours: &Command) -> Option<String> {
    let other = || (body_of(request, &java.body) != body_of(request, &ours.body)).then_some(());
    let bodies = || format!("{} instead of {}", text(&ours.body), text(&java.body));
    difference(java, ours).or_else(|| other().map(|()| bodies()))
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

/// What is to be the same in a body: everything, but of lists only that they are some.
fn body_of(request: i32, body: &[u8]) -> String {
    match request {
        GetAllTopicListFromNameserver::CODE | GetSystemTopicListFromNs::CODE if !body.is_empty() => {
            let list: TopicList = from_loose(body).unwrap();
            format!("a list, broker {:?}", list.broker_addr)
        }
        GetNamesrvConfig::CODE => text(body).lines().all(|line| line.contains('=')).to_string(),
        _ => text(body),
    }
}

/// Registers what Java's answer tells of.
async fn presuppose(cast: &NameServerCast, asked: &Asked<'_>) {
    let Some(java) = asked.java.filter(|java| java.code == 0) else { return };
    match asked.request.command.code {
        GetBrokerClusterInfo::CODE | GetAllTopicListFromNameserver::CODE if java.body.len() > 50 => {
            register(cast, &[]).await;
        }
        GetRouteinfoByTopic::CODE => {
            let header: GetRouteinfoByTopicHeader = asked.request.command.header().unwrap();
            let route: TopicRouteData = from_loose(&java.body).unwrap();
            let queues = &route.queue_datas[0];
            let topic = TopicConfig {
                topic_name: header.topic.clone(),
                perm: queues.perm,
                read_queue_nums: queues.read_queue_nums,
                write_queue_nums: queues.write_queue_nums,
                ..TopicConfig::default()
            };
            register(cast, &[topic]).await;
            if let Some(value) = route.order_topic_conf {
                put(cast, "ORDER_TOPIC_CONFIG", &header.topic, value).await;
            }
        }
        GetKvConfig::CODE => {
            let header: GetKvConfigHeader = asked.request.command.header().unwrap();
            let value = java.fields.text("value").unwrap();
            put(cast, &header.namespace, &header.key, value).await;
        }
        _ => {}
    }
}

async fn put(cast: &NameServerCast, namespace: &str, key: &str, value: Text) {
    let (namespace, key) = (Text::from(namespace), Text::from(key));
    let put = Command::request::<PutKvConfig>(&PutKvConfigHeader { namespace, key, value });
    assert_eq!(ask(cast, 0, put).await.code, 0);
}

/// Registers the broker of the recordings with two topics and these; each time with a newer version.
async fn register(cast: &NameServerCast, topics: &[TopicConfig]) {
    let header = RegisterBrokerHeader {
        broker_name: Text::from("broker-a"),
        broker_address: Text::from("127.0.0.1:10911"),
        cluster_name: Text::from("GoldCluster"),
        ha_address: Text::from("127.0.0.1:10912"),
        acting_master: Some(false),
        ..RegisterBrokerHeader::default()
    };
    let first = ["SELF_TEST_TOPIC", "broker-a"]
        .map(|name| TopicConfig { topic_name: Text::from(name), ..TopicConfig::default() });
    let topics = first.iter().chain(topics).map(|topic| (topic.topic_name.clone(), topic.clone()));
    let mut table = TopicConfigTable {
        topic_config_table: topics.collect::<BTreeMap<_, _>>(),
        ..TopicConfigTable::default()
    };
    let names = table.topic_config_table.len();
    table.data_version.counter = version_after(cast).await + i64::try_from(names).unwrap();
    let body = RegisterBrokerBody { topic_config_serialize_wrapper: table, ..RegisterBrokerBody::default() };
    let register = Command::request::<RegisterBroker>(&header).with_body(Bytes::from(body.encode()));
    assert_eq!(ask(cast, 0, register).await.code, 0);
}

async fn version_after(cast: &NameServerCast) -> i64 {
    let broker = super::liveness::BrokerAddress {
        cluster: Text::from("GoldCluster"),
        address: Text::from("127.0.0.1:10911"),
    };
    let known = cast.routes.send(super::registry::Heard(broker)).await.unwrap();
    known.map_or(0, |version| version.counter)
}
