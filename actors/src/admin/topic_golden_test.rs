//! What Java's tools asked Java's broker 5.3.1 about topics, asked ours.
//!
//! Invariants:
//! - every recorded request about topics is asked, and every answer compared: code, keys of the extension
//!   fields, the remark of a refusal, the body;
//! - a topic that a question presupposes is made before, as Java's answer tells it;
//! - where ours differs it stands in [`DIFFERENCES`], with the reason.

use std::collections::BTreeSet;

use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::*;
use troupemq_codec::topic::{TopicConfig, TopicConfigTable};
use troupemq_codec::{Command, Request, Text};

use crate::golden::conversations;
use crate::golden::replay::{Asked, Intended, Replay, asked, difference};
use crate::testing::{Client, request, start_broker_as};

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
const DIFFERENCES: &[Intended] = &[
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
    let node = start_broker_as(dir.path(), |part| part.config.broker_cluster_name = "GoldCluster".to_owned());
    let mut client = Client::of(&node);
    let mut replay = Replay::new(DIFFERENCES);
    for (name, frames) in conversations("broker") {
        for Asked { request, java } in asked(&frames) {
            let code = request.command.code;
            let Some(java) = java.filter(|_| ASKED.contains(&code)) else { continue };
            presuppose(&mut client, &request.command, java);
            let ours = client.call(request.command.clone());
            replay.note(&name, request, unlike(code, java, &ours));
        }
    }
    let compared = replay.end();
    assert!(ASKED.iter().all(|code| compared.contains_key(code)), "{compared:?}");
    node.stop_and_wait().unwrap();
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
fn unlike(asked: i32, java: &Command, ours: &Command) -> Option<String> {
    let bodies = || (told(asked, &java.body), told(asked, &ours.body));
    let differs = || Some(bodies()).filter(|(java, ours)| java != ours);
    difference(java, ours).or_else(|| differs().map(|(java, ours)| format!("{ours} instead of {java}")))
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
