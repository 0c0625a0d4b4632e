//! What Java's tools asked Java's broker 5.3.1 about topics, asked ours.
//!
//! Invariants:
//! - every recorded request about topics is asked, and every answer compared: code, keys of the extension
//!   fields, the remark of a refusal, the body;
//! - a topic that a question presupposes is made before, as Java's answer tells it;
//! - where ours differs it stands in [`DIFFERENCES`], with the reason.

use std::collections::{BTreeMap, BTreeSet};

use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::*;
use troupemq_codec::topic::{TopicConfig, TopicConfigTable};
use troupemq_codec::{Command, Request, Text};

use crate::golden::{Frame, conversations};
use crate::node::Node;
use crate::testing::{Client, request, small_broker};

/// The requests that are asked.
const ASKED: [i32; 7] = [
    UpdateAndCreateTopic::CODE,
    UpdateAndCreateTopicList::CODE,
    GetAllTopicConfig::CODE,
    DeleteTopicInBroker::CODE,
    GetTopicStatsInfo::CODE,
    GetSystemTopicListFromBroker::CODE,
    GetTopicConfig::CODE,
];

/// Where ours answers otherwise: file, number of the request, reason.
const DIFFERENCES: &[(&str, i64, &str)] = &[
    ("errors", 147, "a bad name is an invalid parameter, as in later releases"),
    ("errors", 149, "a bad name is an invalid parameter, as in later releases"),
    ("errors", 151, "a topic of the system is an invalid parameter, as in later releases"),
    ("errors", 153, "a topic of the system is an invalid parameter, as in later releases"),
    ("errors", 155, "a bad name is an invalid parameter, as in later releases"),
    ("errors", 161, "a topic of the type MIXED is refused unless it is allowed, as in later releases"),
    ("errors", 163, "the missing key is named instead of a Java exception"),
    ("errors", 165, "a topic of the system is an invalid parameter, as in later releases"),
];

#[test]
fn every_recorded_question_about_topics_is_answered_as_java_answers_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small_broker(dir.path());
    config.broker.as_mut().unwrap().config.broker_cluster_name = "GoldCluster".to_owned();
    let node = Node::start(config).unwrap();
    let mut client = Client::of(&node);
    let mut compared = BTreeMap::new();
    let mut found = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, frames) in conversations("broker") {
        for (asked, java) in pairs(&frames) {
            let code = asked.command.code;
            presuppose(&mut client, &asked.command, java);
            let ours = client.call(asked.command.clone());
            *compared.entry(code).or_insert(0) += 1;
            let Some(why) = difference(code, java, &ours) else { continue };
            match DIFFERENCES.iter().find(|known| known.0 == name && known.1 == asked.number) {
                Some(known) => _ = found.insert((known.0, known.1)),
                None => wrong.push(format!("{name} {}: {code}: {why}", asked.number)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed: BTreeSet<_> = DIFFERENCES.iter().map(|known| (known.0, known.1)).collect();
    assert_eq!(found, listed, "differences that are none any more");
    assert!(ASKED.iter().all(|code| compared.contains_key(code)), "{compared:?}");
    node.stop_and_wait().unwrap();
}

/// The requests that are asked, each with Java's answer.
fn pairs(frames: &[Frame]) -> Vec<(&Frame, &Command)> {
    let answer_of = |asked: &Frame| {
        let is_answer = |frame: &&Frame| {
            frame.is_from_server && frame.conn == asked.conn && frame.command.opaque == asked.command.opaque
        };
        frames.iter().find(is_answer).map(|frame| &frame.command)
    };
    let asked = frames.iter().filter(|frame| !frame.is_from_server && ASKED.contains(&frame.command.code));
    asked.filter_map(|asked| answer_of(asked).map(|java| (asked, java))).collect()
}

/// Makes the topic that Java's answer tells of.
fn presuppose(client: &mut Client, asked: &Command, java: &Command) {
    if java.code != 0 {
        return;
    }
    let config = match asked.code {
        GetTopicConfig::CODE => from_loose::<TopicConfig>(&java.body).unwrap(),
        GetTopicStatsInfo::CODE => {
            let stats: TopicStats = from_loose(&java.body).unwrap();
            let queues = i32::try_from(stats.offset_table.len()).unwrap();
            TopicConfig {
                topic_name: asked.fields.text("topic").unwrap(),
                read_queue_nums: queues,
                write_queue_nums: queues,
                ..TopicConfig::default()
            }
        }
        _ => return,
    };
    let header = UpdateAndCreateTopicHeader {
        topic: config.topic_name,
        default_topic: Text::from("TBW102"),
        read_queue_nums: config.read_queue_nums,
        write_queue_nums: config.write_queue_nums,
        perm: config.perm,
        topic_filter_type: Text::from("SINGLE_TAG"),
        ..UpdateAndCreateTopicHeader::default()
    };
    assert_eq!(client.call(request::<UpdateAndCreateTopic>(&header)).code, 0);
}

/// How ours differs from Java's answer, if it does.
fn difference(asked: i32, java: &Command, ours: &Command) -> Option<String> {
    if java.code != ours.code {
        return Some(format!("code {} instead of {}, {:?}", ours.code, java.code, ours.remark));
    }
    let keys =
        |command: &Command| command.fields.iter().map(|(key, _)| key.to_owned()).collect::<BTreeSet<_>>();
    if keys(java) != keys(ours) {
        return Some(format!("fields {:?} instead of {:?}", ours.fields, java.fields));
    }
    if java.code != 0 && java.remark != ours.remark {
        return Some(format!("{:?} instead of {:?}", ours.remark, java.remark));
    }
    let (java, ours) = (told(asked, &java.body), told(asked, &ours.body));
    (java != ours).then(|| format!("{ours} instead of {java}"))
}

/// What is to be the same in a body: offsets, times, and topics of the tools' own are not.
fn told(asked: i32, body: &[u8]) -> String {
    let body = match asked {
        GetTopicStatsInfo::CODE if !body.is_empty() => {
            let mut stats: TopicStats = from_loose(body).unwrap();
            stats.offset_table.values_mut().for_each(|offsets| *offsets = TopicOffset::default());
            to_fastjson(&stats)
        }
        GetSystemTopicListFromBroker::CODE => {
            let list: TopicList = from_loose(body).unwrap();
            format!("{:?}", list.topic_list.iter().collect::<BTreeSet<_>>()).into_bytes()
        }
        GetAllTopicConfig::CODE => {
            let mut table: TopicConfigTable = from_loose(body).unwrap();
            table.topic_config_table.retain(|name, _| name.starts_with("rmq_sys_"));
            table.data_version = Default::default();
            table.mapping_data_version = table.mapping_data_version.map(|_| Default::default());
            to_fastjson(&table)
        }
        _ => body.to_vec(),
    };
    String::from_utf8(body).unwrap()
}
