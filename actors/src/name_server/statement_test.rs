//! What the section about the name server says of its answers, sentence by sentence, over real connections.
//!
//! Invariants:
//! - what a refusal must not change is looked at behind it.

use bytes::Bytes;
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::*;
use troupemq_codec::topic::{DataVersion, TopicConfig, TopicConfigTable};
use troupemq_codec::{Command, Text};

use super::silence_test::{brokers, name_server, registration};
use crate::testing::{Client, request};

fn told(answer: &Command) -> (i32, &str) {
    (answer.code, answer.remark.as_deref().unwrap_or_default())
}

/// 4.15: 103.
#[test]
fn a_registration_with_a_wrong_sum_or_a_first_one_of_a_single_topic_is_refused_and_leaves_nothing() {
    let (node, address) = name_server();
    let mut client = Client::connect(address);
    let good = registration("h:1", 120_000);
    let mut torn = good.clone();
    torn.fields.set("bodyCrc32", "77");
    assert_eq!(told(&client.call(torn)), (1, "crc32 not match"));
    let topic_config_table = [(Text::from("t"), TopicConfig::default())].into();
    let table = TopicConfigTable { topic_config_table, ..TopicConfigTable::default() };
    let body = RegisterBrokerBody { topic_config_serialize_wrapper: table, ..RegisterBrokerBody::default() };
    let single = good.clone().with_body(Bytes::from(body.encode()));
    assert_eq!(told(&client.call(single.clone())), (1, "register broker failed"));
    assert_eq!(brokers(&mut client), 0);
    assert_eq!(client.call(good.clone()).code, 0);
    assert_eq!(client.call(single).code, 0, "a single one may follow a whole one");
    let mut right = good;
    right.fields.set("bodyCrc32", "0");
    assert_eq!(client.call(right).code, 0, "0 is no sum");
    assert_eq!(brokers(&mut client), 1);
    node.stop_and_wait().unwrap();
}

/// 4.15: 103, its answer.
#[test]
fn a_slave_is_told_its_master_and_every_broker_the_ordered_topics() {
    let (node, address) = name_server();
    let mut client = Client::connect(address);
    let master = client.call(registration("h:1", 120_000));
    assert_eq!((master.code, master.fields.get("masterAddr"), master.body.len()), (0, None, 0));
    let ordered =
        PutKvConfigHeader { namespace: "ORDER_TOPIC_CONFIG".into(), key: "t".into(), value: "b:4".into() };
    assert_eq!(client.call(request::<PutKvConfig>(&ordered)).code, 0);
    let mut slave = registration("s:1", 120_000);
    slave.fields.set("brokerId", "1");
    let answer = Client::connect(address).call(slave);
    let fields = ["masterAddr", "haServerAddr"].map(|key| answer.fields.get(key));
    assert_eq!((answer.code, fields), (0, [Some("h:1"), Some("h:2")]));
    let table: KvTable = from_loose(&answer.body).expect("a table");
    let table: Vec<_> = table.table.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(table, [("t", "b:4")]);
    node.stop_and_wait().unwrap();
}

/// 4.15: 100 to 102, 105, 318.
#[test]
fn what_is_not_there_or_may_not_be_is_told_with_rocketmqs_codes_and_words() {
    let (node, address) = name_server();
    let mut client = Client::connect(address);
    let route = GetRouteinfoByTopicHeader { topic: "Nowhere".into(), ..Default::default() };
    let answer = client.call(request::<GetRouteinfoByTopic>(&route));
    let (code, remark) = told(&answer);
    assert_eq!(code, 17);
    let begin = "No topic route info in name server for the topic: Nowhere\nSee http";
    assert!(remark.starts_with(begin), "{remark}");
    let key = GetKvConfigHeader { namespace: "N".into(), key: "K".into() };
    let answer = client.call(request::<GetKvConfig>(&key));
    assert_eq!(told(&answer), (22, "No config item, Namespace: N Key: K"));
    let mut change = |text: &str| {
        let answer = client.call(
            request::<UpdateNamesrvConfig>(&Default::default())
                .with_body(Bytes::copy_from_slice(text.as_bytes())),
        );
        (answer.code, answer.remark.as_deref().unwrap_or_default().to_owned())
    };
    for key in ["configBlackList", "configStorePath", "kvConfigPath"] {
        let black = change(&format!("orderMessageEnable=true\n{key}=x"));
        assert_eq!(black, (16, "Can not update config in black list.".to_owned()), "{key}");
    }
    assert_eq!(change("orderMessageEnable=maybe").0, 1);
    assert_eq!(change("unknownToAll=1").0, 0, "an unknown key is ignored");
    let config = client.call(request::<GetNamesrvConfig>(&Default::default()));
    let text = String::from_utf8(config.body.to_vec()).expect("it is text");
    assert!(text.contains("orderMessageEnable=false"), "nothing was changed: {text}");
    node.stop_and_wait().unwrap();
}

/// 4.15: 322.
#[test]
fn a_broker_is_told_whether_its_topics_are_of_another_version_than_it_registered() {
    let (node, address) = name_server();
    let mut client = Client::connect(address);
    assert_eq!(client.call(registration("h:1", 120_000)).code, 0);
    let mut ask = |address: &str, own: DataVersion| {
        let header = QueryDataVersionHeader {
            broker_name: "b".into(),
            broker_address: address.into(),
            cluster_name: "c".into(),
            broker_id: 0,
        };
        let asked = request::<QueryDataVersion>(&header).with_body(Bytes::from(to_fastjson(&own)));
        let answer = client.call(asked);
        let reply: QueryDataVersionReplyHeader = answer.header().expect("it tells");
        (reply.changed, from_loose::<DataVersion>(&answer.body).ok())
    };
    let registered = DataVersion::default();
    assert_eq!(ask("h:1", registered), (false, Some(registered)));
    assert_eq!(ask("h:1", registered.next(5)), (true, Some(registered)));
    assert!(ask("h:9", registered).0, "nobody registered it");
    node.stop_and_wait().unwrap();
}
