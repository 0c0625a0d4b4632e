//! What is registered, compared with what Java's broker registers.
//!
//! Invariants:
//! - the recorded broker had default names, four automatic queues and one topic of its own at most.

use std::collections::BTreeSet;

use troupemq_codec::request::RegisterBrokerBody;
use troupemq_codec::topic::{DataVersion, TopicConfigTable};

use super::*;
use crate::golden::conversation;
use crate::topics::table::{TopicRules, TopicTable};

fn identity() -> Identity {
    Identity {
        cluster: Text::from("GoldCluster"),
        broker: Text::from("broker-a"),
        id: 0,
        address: Text::from("127.0.0.1:10911"),
        ha_address: Text::from("127.0.0.1:10912"),
    }
}

fn new_broker() -> TopicSnapshot {
    let rules = TopicRules {
        cluster: identity().cluster,
        broker: identity().broker,
        auto_create: true,
        default_queues: 4,
        revive_queues: 8,
    };
    TopicTable::new(TopicConfigTable::default(), rules).snapshot()
}

#[test]
fn a_new_broker_registers_what_javas_registers() {
    let java = conversation("register-531", "namesrv").swap_remove(0).command;
    let ours = request(identity(), new_broker().registered(6));
    let keys = |command: &Command| -> BTreeSet<String> {
        command.fields.iter().map(|(key, _)| key.to_owned()).collect()
    };
    assert_eq!((ours.code, keys(&ours)), (java.code, keys(&java)));
    let without_times = |body: &Bytes| {
        let mut table = RegisterBrokerBody::decode(body).unwrap().topic_config_serialize_wrapper;
        table.data_version = DataVersion::default();
        table.mapping_data_version = table.mapping_data_version.map(|_| DataVersion::default());
        table
    };
    assert_eq!(without_times(&ours.body), without_times(&java.body));
    let header: RegisterBrokerHeader = ours.header().unwrap();
    assert_eq!(u32::try_from(header.body_crc.unwrap()), Ok(body_crc(&ours.body)));
    for key in ["brokerId", "clusterName", "brokerAddr", "haServerAddr", "brokerName", "compressed"] {
        assert_eq!(ours.fields.get(key), java.fields.get(key), "{key}");
    }
}

#[test]
fn a_table_too_large_for_a_frame_goes_compressed() {
    let mut table = new_broker().registered(6);
    let model = table.topic_config_table["TBW102"].clone();
    for number in 0..40_000 {
        let name = Text::from(format!("topic-{number}"));
        let config = troupemq_codec::topic::TopicConfig { topic_name: name.clone(), ..model.clone() };
        table.topic_config_table.insert(name, config);
    }
    let ours = request(identity(), table.clone());
    assert_eq!(ours.fields.get("compressed"), Some("true"));
    assert!(ours.body.len() < 1 << 20, "{} bytes", ours.body.len());
    let read = RegisterBrokerBody::decode(&ours.body).unwrap().topic_config_serialize_wrapper;
    assert_eq!(read.topic_config_table, table.topic_config_table);
}

#[test]
fn a_refusal_is_a_failure_and_ordered_topics_are_heard() {
    let refused = Command::response(ResponseCode::SYSTEM_ERROR).with_remark("register broker failed");
    let failure = ordered_in(&refused).unwrap_err();
    assert_eq!(failure.to_string(), "refused with SYSTEM_ERROR (1): register broker failed");
    let body = br#"{"table":{"T":"broker-a:4"}}"#;
    let accepted = Command::response(ResponseCode::SUCCESS);
    assert_eq!(ordered_in(&accepted).unwrap(), [] as [Text; 0]);
    assert_eq!(ordered_in(&accepted.with_body(Bytes::from_static(body))).unwrap(), ["T"]);
}
