//! Tables for slaves, limits for readers, and what a group may not read, asked over a socket.
//!
//! Invariants:
//! - each table is compared with the one that Java's master gave its slave, read by the same type.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use troupemq_codec::heartbeat_data::{ConsumerData, HeartbeatData, SubscriptionData};
use troupemq_codec::loose_json::{from_loose, to_fastjson};
use troupemq_codec::request::*;
use troupemq_codec::{Command, Request, Text};
use troupemq_store::tables::TableFile;

use crate::testing::{Client, commit_request, pull_header, request, start_broker};

fn ask<R: Request<Header = troupemq_codec::header::NoHeader>>(client: &mut Client) -> Command {
    client.call(request::<R>(&Default::default()))
}

fn commit(client: &mut Client, group: &str, topic: &str, queue_offset: i64) {
    assert_eq!(client.call(commit_request(group, topic, 0, queue_offset)).code, 0);
}

fn make_group(client: &mut Client, group: &str) {
    let made = request::<UpdateAndCreateSubscriptiongroup>(&Default::default());
    let body = format!("{{\"groupName\":\"{group}\"}}");
    assert_eq!(client.call(made.with_body(Bytes::from(body))).code, 0);
}

#[test]
fn a_slave_gets_the_tables_that_java_gives_it() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = TableFile::<RequestModeTable>::open(dir.path()).unwrap();
    let mode = r#"{"consumerGroup":"cg_ha","mode":"POP","popShareQueueNum":0,"topic":"GoldHa"}"#;
    let java = format!("{{\"messageRequestModeMap\":{{\"GoldHa\":{{\"cg_ha\":{mode}}}}}}}");
    file.save(&from_loose(java.as_bytes()).unwrap()).unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(client.produce("orders", 0, b"later", "DELAY\u{1}3\u{2}").code, 0);
    make_group(&mut client, "readers");
    commit(&mut client, "readers", "orders", 3);

    let offsets = ask::<GetAllConsumerOffset>(&mut client);
    let table: ConsumerOffsetTable = from_loose(&offsets.body).unwrap();
    assert_eq!(table.offset_table["orders@readers"], BTreeMap::from([(0, 3)]));
    let delays = ask::<GetAllDelayOffset>(&mut client);
    let table: DelayOffsetTable = from_loose(&delays.body).unwrap();
    assert!(delays.code == 0 && table.offset_table.values().all(|offset| *offset == 0), "{table:?}");
    let modes = ask::<GetAllMessageRequestMode>(&mut client);
    assert_eq!(&modes.body[..], java.as_bytes());
    node.stop_and_wait().unwrap();
}

#[test]
fn a_master_without_slaves_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(client.produce("orders", 0, b"one", "").code, 0);
    let status: HaStatus = from_loose(&ask::<GetBrokerHaStatus>(&mut client).body).unwrap();
    assert!(
        status.master && status.ha_connection_info.is_empty() && status.master_commit_log_max_offset > 100
    );
    let epochs = ask::<GetBrokerEpochCache>(&mut client);
    assert_eq!((epochs.code, epochs.remark.as_deref()), (1, Some("this request only for controllerMode ")));
    let reset = ResetMasterFlushOffsetHeader { master_flush_offset: 0 };
    assert_eq!(client.call(request::<ResetMasterFlushOffset>(&reset)).code, 0);
    let no_number = client.call(bare(ResetMasterFlushOffset::CODE, &[("masterFlushOffset", "much")]));
    assert_eq!(no_number.code, 1);
    assert!(no_number.remark.unwrap().contains("masterFlushOffset"));
    node.stop_and_wait().unwrap();
}

/// A request with these fields, whatever its header wants.
fn bare(code: i32, fields: &[(&'static str, &str)]) -> Command {
    let mut command = request::<GetBrokerConfig>(&Default::default());
    command.code = code;
    for (key, value) in fields {
        command.fields.push(*key, (*value).to_owned());
    }
    command
}

#[test]
fn limits_for_cold_reads_are_set_together_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let limit = |text: &str| {
        request::<UpdateColdDataFlowCtrConfig>(&Default::default()).with_body(Bytes::from(text.to_owned()))
    };
    assert_eq!(client.call(limit("a=1048576\nb=5\n")).code, 0);
    for (text, why) in [("c=7\nd=much", "the limit of d is no number of bytes"), ("a\\ b=1", "illegal")] {
        let refused = client.call(limit(text));
        assert!(refused.code != 0 && refused.remark.as_ref().unwrap().contains(why), "{refused:?}");
    }
    let gone = request::<RemoveColdDataFlowCtrConfig>(&Default::default()).with_body(Bytes::from("b"));
    assert_eq!(client.call(gone).code, 0);
    let info = ask::<GetColdDataFlowCtrInfo>(&mut client);
    let told: Value = serde_json::from_slice(&info.body).unwrap();
    let java = r#"{"cgColdReadThreshold":3145728,"configTable":{"a":1048576},"globalAcc":0,
        "globalColdReadThreshold":104857600,"runtimeTable":{}}"#;
    assert_eq!(told, serde_json::from_str::<Value>(java).unwrap());
    for (mode, code) in [("0", 0), ("1", 0), ("2", 29), ("", 29)] {
        let mode = SetCommitlogReadModeHeader { read_ahead_mode: Text::from(mode) };
        assert_eq!(client.call(request::<SetCommitlogReadMode>(&mode)).code, code);
    }
    node.stop_and_wait().unwrap();
}

fn forbid(group: &str, topic: &str, readable: Option<bool>) -> Command {
    let (group, topic) = (Text::from(group), Text::from(topic));
    request::<UpdateAndGetGroupForbidden>(&UpdateAndGetGroupForbiddenHeader { group, topic, readable })
}

fn subscribed_pull(client: &mut Client) -> Command {
    let group = ConsumerData {
        group_name: Text::from("readers"),
        subscription_data_set: vec![SubscriptionData {
            topic: Text::from("orders"),
            sub_string: Text::from("*"),
            ..SubscriptionData::default()
        }],
        ..ConsumerData::default()
    };
    let data = HeartbeatData {
        client_id: Text::from("127.0.0.1@reader"),
        consumer_data_set: vec![group],
        ..HeartbeatData::default()
    };
    let beat = request::<HeartBeat>(&Default::default()).with_body(Bytes::from(to_fastjson(&data)));
    let opaque = client.send(beat);
    while client.receive().unwrap().opaque != opaque {}
    let header =
        PullMessageHeader { group: Text::from("readers"), sys_flag: 0, ..pull_header("orders", 0, 0, "*") };
    client.call(request::<PullMessage>(&header))
}

#[test]
fn a_group_that_is_forbidden_a_topic_cannot_pull_it_not_even_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(client.produce("orders", 0, b"one", "").code, 0);
    assert_eq!(subscribed_pull(&mut client).code, 0);
    let told: GroupForbidden =
        from_loose(&client.call(forbid("readers", "orders", Some(false))).body).unwrap();
    assert_eq!((told.group.as_str(), told.topic.as_str(), told.readable), ("readers", "orders", false));
    node.stop_and_wait().unwrap();

    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let refused = subscribed_pull(&mut client);
    assert_eq!((refused.code, refused.fields.get("forbiddenType")), (16, Some("5")));
    assert_eq!(refused.remark.as_deref(), Some("the consumer group[readers] is forbidden for topic[orders]"));
    let told: GroupForbidden = from_loose(&client.call(forbid("readers", "orders", None)).body).unwrap();
    assert!(!told.readable);
    assert_eq!(client.call(forbid("readers", "orders", Some(true))).code, 0);
    assert_eq!(subscribed_pull(&mut client).code, 0);
    assert_eq!(client.call(forbid("nobody", "orders", Some(false))).code, 26);
    let no_topic = client.call(forbid("readers", "nothing", Some(false)));
    assert_eq!((no_topic.code, no_topic.remark.as_deref()), (17, Some("topic[nothing] not exist")));
    node.stop_and_wait().unwrap();
}

#[test]
fn the_smallest_offset_of_the_other_groups_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    assert_eq!(client.produce("orders", 0, b"one", "").code, 0);
    for (group, offset) in [("ahead", 9), ("behind", 4), ("own", 6)] {
        make_group(&mut client, group);
        commit(&mut client, group, "orders", offset);
    }
    let mut ask = |filter: Option<&str>, compare: &str| -> BTreeMap<i32, i64> {
        let header = QueryCorrectionOffsetHeader {
            filter_groups: filter.map(Text::from),
            compare_group: Text::from(compare),
            topic: Text::from("orders"),
        };
        let answer = client.call(request::<QueryCorrectionOffset>(&header));
        from_loose::<CorrectionOffsets>(&answer.body).unwrap().correction_offsets
    };
    assert_eq!(ask(None, "own"), BTreeMap::from([(0, 4)]));
    assert_eq!(ask(Some("behind,own"), "own"), BTreeMap::from([(0, i64::MAX)]), "9 is ahead of 6");
    assert_eq!(ask(Some("behind,own"), "nobody"), BTreeMap::from([(0, 9)]));
    node.stop_and_wait().unwrap();
}
