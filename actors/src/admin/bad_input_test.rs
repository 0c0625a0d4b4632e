//! Every request a broker serves, with one thing wrong: it is refused by name, the connection lives on, and nothing has
//! changed.
//!
//! Invariants:
//! - the requests and their faults come from the table of requests, so that a new request is in here at once.

use troupemq_codec::request::*;
use troupemq_codec::{Command, Request, ResponseCode, Text};

use crate::node::NodeHandle;
use crate::testing::bad_input::{Bad, Fault, LONG, bad_bodies, bad_headers};
use crate::testing::{Client, request, start_broker};

/// Longest remark of a refusal; it may repeat a name of [`LONG`] characters.
const REMARK_MAX_BYTES: usize = 2 * LONG + 300;

/// Fields that are not looked at: answers come whole, and there is no store that would need to be checked.
const NOT_READ: [(&str, &str); 3] = [
    ("GET_ALL_TOPIC_CONFIG", "topicSeq"),
    ("GET_ALL_TOPIC_CONFIG", "maxTopicNum"),
    ("CHECK_ROCKSDB_CQ_WRITE_PROGRESS", "checkStoreTime"),
];

/// Requests that live by their body.
const WITH_BODY: [&str; 9] = [
    CheckClientConfig::NAME,
    HeartBeat::NAME,
    LockBatchMq::NAME,
    QueryAssignment::NAME,
    SetMessageRequestMode::NAME,
    UnlockBatchMq::NAME,
    UpdateAndCreateSubscriptiongroup::NAME,
    UpdateAndCreateSubscriptiongroupList::NAME,
    UpdateAndCreateTopicList::NAME,
];

/// Fields that name what is made or changed: a bad name or number there is never taken.
const GUARDED: [(&str, &str); 16] = [
    (SendMessage::NAME, "topic"),
    (SendMessageV2::NAME, "b"),
    (SendBatchMessage::NAME, "b"),
    (UpdateConsumerOffset::NAME, "topic"),
    (UpdateConsumerOffset::NAME, "consumerGroup"),
    (UpdateConsumerOffset::NAME, "queueId"),
    (UpdateConsumerOffset::NAME, "commitOffset"),
    (UpdateAndCreateTopic::NAME, "topic"),
    (UpdateAndCreateTopic::NAME, "readQueueNums"),
    (UpdateAndCreateTopic::NAME, "writeQueueNums"),
    (UpdateAndCreateTopic::NAME, "perm"),
    (UpdateAndCreateTopic::NAME, "topicFilterType"),
    (ConsumerSendMsgBack::NAME, "group"),
    (InvokeBrokerToResetOffset::NAME, "topic"),
    (InvokeBrokerToResetOffset::NAME, "group"),
    (CloneGroupOffset::NAME, "destGroup"),
];

fn to_broker(info: &RequestInfo) -> bool {
    matches!(info.to, Direction::ClientToBroker | Direction::ThroughBroker | Direction::BrokerToBroker)
}

/// Sends it over a connection that must live on.
fn ask(client: &mut Client, bad: &Bad) -> (ResponseCode, String) {
    let answer = client.call(bad.command.clone());
    let remark = answer.remark.as_deref().unwrap_or_default().to_owned();
    assert!(remark.len() <= REMARK_MAX_BYTES, "{bad:?}: the remark has {} bytes", remark.len());
    (answer.response_code(), remark)
}

fn is_served(code: ResponseCode) -> bool {
    code != ResponseCode::REQUEST_CODE_NOT_SUPPORTED
}

/// What tables and queues hold.
fn holds(node: &NodeHandle) -> Vec<Command> {
    let mut client = Client::of(node);
    let stats = GetTopicStatsInfoHeader { topic: Text::from("orders") };
    let asked = [
        request::<GetAllTopicConfig>(&Default::default()),
        request::<GetAllSubscriptiongroupConfig>(&Default::default()),
        request::<GetAllConsumerOffset>(&Default::default()),
        request::<GetAllDelayOffset>(&Default::default()),
        request::<GetAllMessageRequestMode>(&Default::default()),
        request::<GetBrokerConfig>(&Default::default()),
        request::<GetTopicStatsInfo>(&stats),
    ];
    let told = asked.into_iter().map(|asked| client.call(asked));
    told.map(|mut answer| {
        assert_eq!(answer.code, 0, "{answer:?}");
        answer.opaque = 0;
        answer
    })
    .collect()
}

/// A broker with a topic, a message and a group.
fn broker(dir: &std::path::Path) -> NodeHandle {
    let node = start_broker(dir);
    let mut client = Client::of(&node);
    assert_eq!(client.produce("orders", 0, b"x", "").code, 0);
    let group = bytes::Bytes::from_static(b"{\"groupName\":\"readers\"}");
    let put = request::<UpdateAndCreateSubscriptiongroup>(&Default::default()).with_body(group);
    assert_eq!(client.call(put).code, 0);
    node
}

#[test]
fn a_field_that_is_missing_or_no_number_is_refused_by_name_and_value() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path());
    let mut client = Client::of(&node);
    let mut refused = 0;
    let before = holds(&node);
    for bad in bad_headers(to_broker) {
        if !matches!(bad.fault, Fault::Missing | Fault::NotANumber | Fault::OutOfRange) {
            continue;
        }
        let (code, remark) = ask(&mut client, &bad);
        if !is_served(code) || NOT_READ.contains(&(bad.name, bad.key)) {
            continue;
        }
        let allowed = [ResponseCode::SYSTEM_ERROR, ResponseCode::INVALID_PARAMETER];
        assert!(allowed.contains(&code), "{bad:?}: {code:?} {remark}");
        // The one-letter keys of the short form are told by their long names.
        let names_key = bad.key.len() == 1 || remark.contains(bad.key);
        let sent = bad.command.fields.get(bad.key).filter(|_| bad.fault != Fault::Missing);
        let names_value = sent.is_none_or(|value| remark.contains(value));
        assert!(names_key && names_value, "{bad:?}: {remark}");
        refused += 1;
    }
    assert!(refused > 150, "{refused} refusals");
    assert_eq!(holds(&node), before);
    assert_eq!(node.broker().unwrap().poison.cause(), None);
    node.stop_and_wait().unwrap();
}

#[test]
fn a_body_that_is_none_is_refused_with_the_place_where_it_goes_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path());
    let mut client = Client::of(&node);
    let before = holds(&node);
    for bad in bad_bodies(|info| WITH_BODY.contains(&info.name) || info.name == UpdateBrokerConfig::NAME) {
        let (code, remark) = ask(&mut client, &bad);
        let wholly_other = bad.command.body.starts_with(b"{\"topic\"");
        assert!(wholly_other || code != ResponseCode::SUCCESS, "{} took {:?}", bad.name, bad.command.body);
        assert!(code == ResponseCode::SUCCESS || !remark.is_empty(), "{bad:?}: {code:?} without a reason");
    }
    assert_eq!(holds(&node), before);
    node.stop_and_wait().unwrap();
}

#[test]
fn no_bad_name_or_number_is_taken_where_something_is_made_or_changed() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path());
    let mut client = Client::of(&node);
    let before = holds(&node);
    let mut refused = 0;
    for mut bad in bad_headers(|info| GUARDED.iter().any(|(name, _)| *name == info.name)) {
        if !GUARDED.contains(&(bad.name, bad.key)) {
            continue;
        }
        bad.command.body = bytes::Bytes::from_static(b"body");
        let (code, remark) = ask(&mut client, &bad);
        assert!(code != ResponseCode::SUCCESS && !remark.is_empty(), "{bad:?}: {code:?} {remark}");
        refused += 1;
    }
    assert!(refused >= 2 * GUARDED.len(), "{refused} refusals");
    assert_eq!(holds(&node), before);
    node.stop_and_wait().unwrap();
}

#[test]
fn whatever_is_wrong_every_request_is_answered_and_the_node_stays() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path());
    let mut client = Client::of(&node);
    for bad in bad_headers(to_broker).iter().chain(&bad_bodies(to_broker)) {
        ask(&mut client, bad);
        let mut bare = bad.clone();
        bare.command.fields = Default::default();
        if bad.fault == Fault::Body || bad.fault == Fault::Missing {
            ask(&mut client, &bare);
        }
    }
    assert_eq!(node.broker().unwrap().poison.cause(), None);
    assert_eq!(client.produce("orders", 0, b"x", "").code, 0);
    node.stop_and_wait().unwrap();
}

#[test]
fn remarks_tell_the_value_and_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path());
    let mut client = Client::of(&node);
    let told = |bad: &Bad, client: &mut Client| ask(client, bad);
    for (name, key, fault, parts) in [
        (SendMessageV2::NAME, "b", Fault::TooLong, ["300", "127"]),
        (SendMessageV2::NAME, "b", Fault::Illegal, ["a b", "a-zA-Z0-9_-"]),
        (UpdateAndCreateTopic::NAME, "writeQueueNums", Fault::Negative, ["-1", "65536"]),
        (UpdateConsumerOffset::NAME, "commitOffset", Fault::Negative, ["-1", "0"]),
        (UpdateConsumerOffset::NAME, "queueId", Fault::Negative, ["-1", "0"]),
        (CloneGroupOffset::NAME, "destGroup", Fault::TooLong, ["group", "120"]),
        (PullMessage::NAME, "queueId", Fault::Negative, ["-1", "[4]"]),
    ] {
        let all = bad_headers(|info| info.name == name);
        let bad = all.iter().find(|bad| bad.key == key && bad.fault == fault).unwrap();
        let (code, remark) = told(bad, &mut client);
        assert_eq!(code, ResponseCode::INVALID_PARAMETER, "{name} {key}: {remark}");
        assert!(parts.iter().all(|part| remark.contains(part)), "{name} {key}: {remark}");
    }
    node.stop_and_wait().unwrap();
}
