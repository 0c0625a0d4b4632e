//! Settings that tools change, over restarts.
//!
//! Invariants:
//! - each restart is that of a whole node on the same folder.

use std::path::Path;

use bytes::Bytes;
use troupemq_codec::request::*;

use crate::config::{NameServerPart, NodeConfig};
use crate::node::{Node, NodeHandle};
use crate::properties_text;
use crate::testing::{Client, request, small_broker};

fn broker(dir: &Path, max_message_size: i32) -> NodeHandle {
    let mut config = small_broker(dir);
    config.broker.as_mut().unwrap().config.max_message_size = max_message_size;
    Node::start(config).unwrap()
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
        "brokerName cannot change while the broker runs: set it in the configuration file"
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
