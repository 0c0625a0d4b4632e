//! Settings that tools change, over restarts.
//!
//! Invariants:
//! - each restart is that of a whole node on the same folder.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use troupemq_codec::Text;
use troupemq_codec::request::*;
use troupemq_store::ManualClock;

use crate::config::{NameServerPart, NodeClock, NodeConfig};
use crate::node::{Node, NodeHandle};
use crate::properties_text;
use crate::testing::{Client, request, small_broker, start_broker_as, until};

const NOW_MS: u64 = 1_795_000_000_000;

fn broker(dir: &Path, max_message_size: i32) -> NodeHandle {
    start_broker_as(dir, |part| part.config.max_message_size = max_message_size)
}

fn change(node: &NodeHandle, text: &str) -> (i32, Option<String>) {
    let update = request::<UpdateBrokerConfig>(&Default::default()).with_body(Bytes::from(text.to_owned()));
    let answer = Client::of(node).call(update);
    (answer.code, answer.remark.map(|remark| remark.to_string()))
}

fn setting(node: &NodeHandle, key: &str) -> String {
    let answer = Client::of(node).call(request::<GetBrokerConfig>(&Default::default()));
    properties_text::parse(std::str::from_utf8(&answer.body).unwrap())[key].clone()
}

#[test]
fn a_setting_that_was_changed_stays_so_over_a_restart_unless_it_is_configured_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path(), 65_536);
    assert_eq!(change(&node, "maxMessageSize=2048\ndefaultTopicQueueNums=4\n").0, 0);
    assert_eq!(change(&node, "maxMessageSize=9\n").0, 1);
    let refused = change(&node, "brokerName=other\nmaxMessageSize=4096");
    assert_eq!(
        refused.1.unwrap(),
        "brokerName cannot change while the broker runs: set it in the configuration file, it counts from the \
         next start"
    );
    assert_eq!(change(&node, "brokerConfigPath=x").0, 16);
    assert_eq!(Client::of(&node).produce("orders", 0, &[1; 2049], "").code, 13);
    node.stop_and_wait().unwrap();

    let node = broker(dir.path(), 65_536);
    assert_eq!(setting(&node, "maxMessageSize"), "2048");
    assert_eq!(Client::of(&node).produce("orders", 0, &[1; 2049], "").code, 13);
    node.stop_and_wait().unwrap();

    let node = broker(dir.path(), 32_768);
    assert_eq!(setting(&node, "maxMessageSize"), "32768", "the configuration has the last word");
    assert_eq!(setting(&node, "defaultTopicQueueNums"), "4");
    node.stop_and_wait().unwrap();
}

#[test]
fn topics_are_made_on_use_as_the_setting_says_now_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let start = || start_broker_as(dir.path(), |part| part.config.auto_create_topic_enable = false);
    let queues = |node: &NodeHandle, topic: &str| {
        assert_eq!(Client::of(node).produce(topic, 0, b"x", "").code, 0, "{topic}");
        node.broker().unwrap().directory.topic(topic).unwrap().queue_count()
    };
    let node = start();
    assert_eq!(Client::of(&node).produce("none", 0, b"x", "").code, 17);
    assert_eq!(change(&node, "autoCreateTopicEnable=true\ndefaultTopicQueueNums=3\n"), (0, None));
    assert_eq!(queues(&node, "three"), 3);
    assert_eq!(change(&node, "defaultTopicQueueNums=2\n"), (0, None));
    assert_eq!(queues(&node, "two"), 2);
    assert_eq!(change(&node, "autoCreateTopicEnable=false\n"), (0, None));
    assert_eq!(Client::of(&node).produce("none", 0, b"x", "").code, 17);
    assert_eq!(change(&node, "autoCreateTopicEnable=true\n"), (0, None));
    node.stop_and_wait().unwrap();

    let node = start();
    assert_eq!(queues(&node, "still"), 2);
    node.stop_and_wait().unwrap();

    let other = start_broker_as(dir.path(), |part| part.config.default_topic_queue_nums = 1);
    assert_eq!(queues(&other, "one"), 1, "the configuration has the last word");
    other.stop_and_wait().unwrap();
}

#[test]
fn what_is_known_in_another_way_cannot_change_and_what_is_not_here_is_not_promised() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path(), 65_536);
    let port = setting(&node, "listenPort");
    assert_eq!(change(&node, &format!("listenPort={port}\nmaxMessageSize=2048\n")).0, 0, "it is so already");
    for (setting, why) in [
        ("listenPort=1", "listenPort cannot change while the broker runs"),
        ("brokerIP1=10.0.0.1", "brokerIP1 cannot change while the broker runs"),
        ("aclEnable=true", "aclEnable = true cannot be kept: there is no access control here"),
        (
            "enableDLegerCommitLog=true",
            "enableDLegerCommitLog = true cannot be kept: there is no replication",
        ),
        ("defaultQueryMaxNum=99999999999", "defaultQueryMaxNum = 99999999999 cannot be: invalid value"),
    ] {
        let (code, remark) = change(&node, &format!("maxMessageSize=4096\n{setting}\n"));
        assert!(code == 1 && remark.as_ref().unwrap().starts_with(why), "{setting}: {code} {remark:?}");
    }
    assert_eq!(setting(&node, "maxMessageSize"), "2048", "a change is whole or not at all");
    node.stop_and_wait().unwrap();
}

#[test]
fn settings_of_the_store_change_while_it_is_open_whole_or_not_at_all_and_stay_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = broker(dir.path(), 65_536);
    assert_eq!(change(&node, "fileReservedTime=48\ndeleteWhen=04;16\nmaxMessageSize=2048").0, 0);
    let keys = ["fileReservedTime", "deleteWhen", "maxMessageSize"];
    assert_eq!(keys.map(|key| setting(&node, key)), ["48", "04;16", "2048"]);
    for (text, why) in [
        (
            "fileReservedTime=1\nmappedFileSizeCommitLog=65536",
            "mappedFileSizeCommitLog cannot change: RocketMQ",
        ),
        ("maxMessageSize=4096\ndeleteWhen=25", "setting deleteWhen: \"25\" is no hour of the day"),
        (
            "diskMaxUsedSpaceRatio=99\nfileReservedTime=1",
            "setting diskMaxUsedSpaceRatio: 99 is not within 10 … 95",
        ),
        ("fileReservedTime=1\nbrokerName=other", "brokerName cannot change while"),
    ] {
        let (code, remark) = change(&node, text);
        assert_eq!(code, 1);
        assert!(remark.as_ref().unwrap().starts_with(why), "{remark:?}");
    }
    assert_eq!(keys.map(|key| setting(&node, key)), ["48", "04;16", "2048"]);
    node.stop_and_wait().unwrap();
    let node = broker(dir.path(), 65_536);
    assert_eq!(keys.map(|key| setting(&node, key)), ["48", "04;16", "2048"]);
    node.stop_and_wait().unwrap();
}

#[test]
fn messages_are_kept_as_long_as_the_setting_says_now() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(NOW_MS.cast_signed())));
    let mut config = small_broker(dir.path());
    config.clock = NodeClock(clock);
    let store = &mut config.broker.as_mut().unwrap().store;
    (store.log_segment_bytes, store.recycled_max) = (65_536, 0);
    let node = Node::start(config).unwrap();
    let mut client = Client::of(&node);
    for _ in 0..4 {
        assert_eq!(client.produce("T", 0, &[7; 40_000], "").code, 0);
    }
    // The age of a segment is that of its file.
    let written = UNIX_EPOCH + Duration::from_millis(NOW_MS - 3 * 3_600_000);
    for segment in std::fs::read_dir(dir.path().join("commitlog")).unwrap().flatten() {
        File::options().write(true).open(segment.path()).unwrap().set_modified(written).unwrap();
    }
    let min = |client: &mut Client| {
        let asked = GetMinOffsetHeader { topic: Text::from("T"), queue_id: 0 };
        client.call(request::<GetMinOffset>(&asked)).fields.get("offset").map(str::to_owned)
    };
    assert_eq!(client.call(request::<DeleteExpiredCommitlog>(&Default::default())).code, 0);
    assert_eq!(min(&mut client).as_deref(), Some("0"), "72 h are not over");
    assert_eq!(change(&node, "fileReservedTime=2").0, 0);
    assert_eq!(client.call(request::<DeleteExpiredCommitlog>(&Default::default())).code, 0);
    until("what is older than 2 h goes", || min(&mut client).as_deref() != Some("0"));
    node.stop_and_wait().unwrap();
}

#[test]
fn a_name_server_keeps_its_changes_too() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let mut part = NameServerPart { listen: ([127, 0, 0, 1], 0).into(), ..NameServerPart::default() };
        part.config.config_store_path = dir.path().join("settings.json").display().to_string();
        Node::start(NodeConfig { name_server: Some(part), ..NodeConfig::empty() }).unwrap()
    };
    let node = start();
    let mut client = Client::connect(node.name_server_address().unwrap());
    let update = |text: &'static str| {
        request::<UpdateNamesrvConfig>(&Default::default()).with_body(Bytes::from_static(text.as_bytes()))
    };
    assert_eq!(client.call(update("orderMessageEnable=true\nclusterTest=true")).code, 0);
    assert_eq!(client.call(update("configStorePath=/tmp/x")).code, 16);
    let refused = client.call(update("scanNotActiveBrokerInterval=1"));
    assert_eq!(refused.remark.as_deref(), Some("scanNotActiveBrokerInterval = 1 is out of bounds: 10.."));
    node.stop_and_wait().unwrap();
    let node = start();
    let mut client = Client::connect(node.name_server_address().unwrap());
    let told = client.call(request::<GetNamesrvConfig>(&Default::default()));
    let told = properties_text::parse(std::str::from_utf8(&told.body).unwrap());
    assert_eq!((told["orderMessageEnable"].as_str(), told.contains_key("clusterTest")), ("true", false));
    node.stop_and_wait().unwrap();
}
