//! What Java's tools asked Java's broker 5.3.1 about groups, clients, progress and settings, asked ours.
//!
//! Invariants:
//! - every recorded request of [`ASKED`] is asked, and every answer compared: code, keys of the extension fields,
//!   the remark of a refusal, the shape of the body;
//! - a group, client or offset that a question presupposes is made before, as Java's answer tells it;
//! - where ours differs it stands in [`DIFFERENCES`], with the reason.

use bytes::Bytes;
use troupemq_codec::group::SubscriptionGroupConfig;
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, ProducerData, SubscriptionData};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::*;
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{Command, Request, Text};

use crate::golden::conversations;
use crate::golden::replay::{Asked, Intended, Replay, asked, difference};
use crate::golden::shape::shape_of;
use crate::node::Node;
use crate::testing::{Client, pull_header, request, small_broker};

/// The requests that are asked.
const ASKED: [i32; 32] = [
    UpdateBrokerConfig::CODE,
    GetBrokerConfig::CODE,
    GetBrokerRuntimeInfo::CODE,
    UpdateAndCreateSubscriptiongroup::CODE,
    GetAllSubscriptiongroupConfig::CODE,
    GetConsumerConnectionList::CODE,
    GetProducerConnectionList::CODE,
    DeleteSubscriptiongroup::CODE,
    GetConsumeStats::CODE,
    InvokeBrokerToResetOffset::CODE,
    InvokeBrokerToGetConsumerStatus::CODE,
    UpdateAndCreateSubscriptiongroupList::CODE,
    QueryTopicConsumeByWho::CODE,
    QueryConsumeTimeSpan::CODE,
    CleanExpiredConsumequeue::CODE,
    ViewBrokerStatsData::CODE,
    CleanUnusedTopic::CODE,
    GetBrokerConsumeStats::CODE,
    QueryConsumeQueue::CODE,
    GetAllProducerInfo::CODE,
    DeleteExpiredCommitlog::CODE,
    QueryTopicsByConsumer::CODE,
    QuerySubscriptionByConsumer::CODE,
    GetSubscriptiongroupConfig::CODE,
    CheckRocksdbCqWriteProgress::CODE,
    GetBrokerHaStatus::CODE,
    ResetMasterFlushOffset::CODE,
    GetBrokerEpochCache::CODE,
    UpdateColdDataFlowCtrConfig::CODE,
    RemoveColdDataFlowCtrConfig::CODE,
    GetColdDataFlowCtrInfo::CODE,
    SetCommitlogReadMode::CODE,
];

/// Where ours answers otherwise: file, number of the request, reason.
const DIFFERENCES: &[Intended] = &[
    ("errors", 141, "an unknown group has a code of its own, as in later releases"),
    ("errors", 145, "who is not online is named instead of a Java exception"),
    ("errors", 171, "a bad name is an invalid parameter, as in later releases"),
    ("errors", 173, "what is no JSON is named instead of a Java exception"),
];

#[test]
fn every_recorded_question_of_tools_is_answered_as_java_answers_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(small_broker(dir.path())).unwrap();
    let mut client = Client::of(&node);
    make_topic(&mut client, &Text::from("ErrTopic"), 2);
    let mut replay = Replay::new(DIFFERENCES);
    for (name, frames) in conversations("broker") {
        for Asked { request, java } in asked(&frames) {
            let code = request.command.code;
            let Some(java) = java.filter(|_| ASKED.contains(&code)) else { continue };
            // A connection of its own for each question: it is gone when the next is asked.
            let mut online = Client::of(&node);
            presuppose(&mut client, &mut online, &request.command, java);
            let ours = client.call(request.command.clone());
            drop(online);
            replay.note(&name, request, unlike(code, java, &ours));
        }
    }
    let compared = replay.end();
    assert!(ASKED.iter().all(|code| compared.contains_key(code)), "{compared:?}");
    node.stop_and_wait().unwrap();
}

/// Makes what Java's answer tells of.
fn presuppose(client: &mut Client, online: &mut Client, asked: &Command, java: &Command) {
    if java.code != 0 || java.body.is_empty() {
        return;
    }
    let field = |key: &str| asked.fields.text(key).unwrap_or_default();
    match asked.code {
        GetConsumerConnectionList::CODE => {
            let group: ConsumerConnection = from_loose(&java.body).unwrap();
            let subscriptions = group.subscription_table.into_values().collect();
            beat(online, &field("consumerGroup"), subscriptions);
        }
        QuerySubscriptionByConsumer::CODE => {
            let told: SubscriptionOfGroup = from_loose(&java.body).unwrap();
            if let Some(data) = told.subscription_data {
                beat(online, &field("group"), vec![data]);
            }
        }
        GetProducerConnectionList::CODE => produce_for(online, vec![field("producerGroup")]),
        GetAllProducerInfo::CODE => {
            let table: ProducerTable = from_loose(&java.body).unwrap();
            produce_for(online, table.data.into_keys().collect());
        }
        GetConsumeStats::CODE => {
            let stats: ConsumeStats = from_loose(&java.body).unwrap();
            commit(client, &field("consumerGroup"), stats.offset_table.into_keys().collect());
        }
        GetBrokerConsumeStats::CODE => {
            let list: ConsumeStatsList = from_loose(&java.body).unwrap();
            for (group, topics) in list.consume_stats_list.into_iter().flatten() {
                let queues = topics.into_iter().flat_map(|stats| stats.offset_table.into_keys());
                commit(client, &group, queues.collect());
            }
        }
        InvokeBrokerToResetOffset::CODE => {
            let table: ResetOffsetBody = from_loose(&java.body).unwrap();
            for (queue, offset) in &table.offset_table {
                fill(client, &queue.topic, queue.queue_id, *offset);
            }
            make_group(client, &field("group"));
        }
        QueryTopicConsumeByWho::CODE => {
            let list: GroupList = from_loose(&java.body).unwrap();
            for group in list.group_list {
                commit(client, &group, vec![queue(&field("topic"), 0)]);
            }
        }
        QueryTopicsByConsumer::CODE => {
            let list: TopicList = from_loose(&java.body).unwrap();
            let queues = list.topic_list.iter().map(|topic| queue(topic, 0));
            commit(client, &field("group"), queues.collect());
        }
        ViewBrokerStatsData::CODE => consume(client, &field("statsKey")),
        QueryConsumeQueue::CODE => {
            let units: ConsumeQueueUnits = from_loose(&java.body).unwrap();
            let queue_id = field("queueId").parse().unwrap();
            fill(client, &field("topic"), queue_id, units.max_queue_index);
            if let Some(data) = units.subscription_data {
                beat(online, &field("consumerGroup"), vec![data]);
            }
        }
        _ => {}
    }
}

fn queue(topic: &Text, queue_id: i32) -> MessageQueue {
    MessageQueue { broker_name: Text::from("broker-a"), queue_id, topic: topic.clone() }
}

fn make_group(client: &mut Client, group: &Text) {
    let config = SubscriptionGroupConfig { group_name: group.clone(), ..SubscriptionGroupConfig::default() };
    let made = request::<UpdateAndCreateSubscriptiongroup>(&Default::default());
    let answer = client.call(made.with_body(Bytes::from(to_fastjson(&config))));
    assert_eq!(answer.code, 0, "{answer:?}");
}

fn make_topic(client: &mut Client, topic: &Text, queues: i32) {
    let header = UpdateAndCreateTopicHeader {
        topic: topic.clone(),
        default_topic: Text::from("TBW102"),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm: 6,
        topic_filter_type: Text::from("SINGLE_TAG"),
        ..UpdateAndCreateTopicHeader::default()
    };
    client.call(request::<UpdateAndCreateTopic>(&header));
}

/// Sends messages until the queue has as many.
fn fill(client: &mut Client, topic: &Text, queue_id: i32, messages: i64) {
    make_topic(client, topic, 2);
    let max =
        request::<GetMaxOffset>(&GetMaxOffsetHeader { topic: topic.clone(), queue_id, ..Default::default() });
    let has: GetMaxOffsetReplyHeader = client.call(max).header().unwrap();
    for _ in has.queue_offset..messages {
        assert_eq!(client.produce(topic, queue_id, b"body", "TAGS\u{1}TagA\u{2}").code, 0);
    }
}

fn commit(client: &mut Client, group: &Text, queues: Vec<MessageQueue>) {
    if queues.is_empty() {
        return;
    }
    make_group(client, group);
    for MessageQueue { topic, queue_id, .. } in queues {
        make_topic(client, &topic, if topic.starts_with("%RETRY%") { 1 } else { 2 });
        let header = UpdateConsumerOffsetHeader { group: group.clone(), topic, queue_id, queue_offset: 0 };
        let answer = client.call(request::<UpdateConsumerOffset>(&header));
        assert_eq!(answer.code, 0, "{answer:?}");
    }
}

/// One message to a topic, pulled by a group, if the key names one.
fn consume(client: &mut Client, key: &str) {
    let (topic, group) = key.split_once('@').unwrap_or((key, ""));
    fill(client, &Text::from(topic), 0, 1);
    if group.is_empty() {
        // Counted since the start of this broker only if it was sent now.
        assert_eq!(client.produce(topic, 0, b"body", "").code, 0);
        return;
    }
    let header = PullMessageHeader { group: Text::from(group), ..pull_header(topic, 0, 0, "*") };
    // A reset that was asked for before is the answer to the first pull.
    let answers = [(); 2].map(|()| client.call(request::<PullMessage>(&header)).code);
    assert_eq!(answers[1], 0, "{key}: {answers:?}");
}

fn beat(online: &mut Client, group: &Text, subscriptions: Vec<SubscriptionData>) {
    let group = ConsumerData {
        group_name: group.clone(),
        subscription_data_set: subscriptions,
        ..ConsumerData::default()
    };
    send_beat(online, HeartbeatData { consumer_data_set: vec![group], ..HeartbeatData::default() });
}

fn produce_for(online: &mut Client, groups: Vec<Text>) {
    let groups = groups.into_iter().map(|group_name| ProducerData { group_name });
    send_beat(online, HeartbeatData { producer_data_set: groups.collect(), ..HeartbeatData::default() });
}

fn send_beat(online: &mut Client, data: HeartbeatData) {
    let data = HeartbeatData { client_id: Text::from("127.0.0.1@tool"), ..data };
    let request = request::<HeartBeat>(&Default::default()).with_body(Bytes::from(to_fastjson(&data)));
    let opaque = online.send(request);
    // The broker may tell of the new member before it answers.
    while online.receive().unwrap().opaque != opaque {}
}

/// How ours differs from Java's answer, if it does.
fn unlike(asked: i32, java: &Command, ours: &Command) -> Option<String> {
    if let Some(why) = difference(java, ours) {
        return Some(why);
    }
    if asked == GetBrokerConfig::CODE {
        return missing_settings(&ours.body);
    }
    let (java, ours) = (shape_of(&java.body), shape_of(&ours.body));
    let (more, less) = (&ours - &java, &java - &ours);
    // The state of a broker has more members in later releases.
    let differs = if asked == GetBrokerRuntimeInfo::CODE { !less.is_empty() } else { java != ours };
    differs.then(|| format!("more: {more:?} less: {less:?}"))
}

/// Tools read these settings by name.
fn missing_settings(body: &[u8]) -> Option<String> {
    let settings = crate::properties_text::parse(std::str::from_utf8(body).unwrap());
    let wanted =
        ["brokerName", "brokerId", "brokerClusterName", "brokerRole", "fileReservedTime", "listenPort"];
    let more = ["flushDiskType", "maxMessageSize", "messageDelayLevel", "slaveReadEnable", "aclEnable"];
    let missing = wanted.iter().chain(&more).filter(|key| !settings.contains_key(**key));
    let missing: Vec<_> = missing.collect();
    (!missing.is_empty()).then(|| format!("{missing:?} are missing"))
}
