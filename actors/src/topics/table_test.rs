//! Tests of the topic table.
//!
//! Invariants:
//! - time is a number here.

use std::collections::BTreeMap;

use troupemq_codec::ResponseCode;
use troupemq_codec::topic::{DataVersion, PERM_READ, PERM_WRITE};

use super::table::*;
use super::*;

fn rules() -> TopicRules {
    TopicRules {
        cluster: Text::from("GoldCluster"),
        broker: Text::from("broker-a"),
        auto_create: true,
        default_queues: 4,
        revive_queues: 8,
    }
}

fn table() -> TopicTable {
    TopicTable::new(TopicConfigTable::default(), rules())
}

fn change(topic: &str, queues: i32) -> TopicChange {
    TopicChange { config: plain(topic, queues), attributes: Text::default() }
}

fn put(table: &mut TopicTable, topic: &str, queues: i32, now_ms: i64) {
    table.put(Arc::new(plain(topic, queues)), now_ms);
}

fn text(text: &str) -> Text {
    Text::from(text)
}

#[test]
fn a_new_broker_has_the_topics_that_java_has() {
    let table = table();
    let found: Vec<(&str, i32, i32)> = table
        .iter()
        .map(|config| (config.topic_name.as_str(), config.read_queue_nums, config.perm))
        .collect();
    let java = [
        ("BenchmarkTest", 1024, 6),
        ("GoldCluster", 16, 7),
        ("GoldCluster_REPLY_TOPIC", 1, 6),
        ("OFFSET_MOVED_EVENT", 1, 6),
        ("RMQ_SYS_TRACE_TOPIC", 1, 6),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, 6),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("SELF_TEST_TOPIC", 1, 6),
        ("TBW102", 4, 7),
        ("broker-a", 1, 7),
        ("rmq_sys_REVIVE_LOG_GoldCluster", 8, 6),
        ("rmq_sys_SYNC_BROKER_MEMBER_broker-a", 1, 1),
        ("rmq_sys_wheel_timer", 1, 6),
    ];
    assert_eq!(found, java);
    assert_eq!(table.version(), DataVersion::default());
}

#[test]
fn what_was_saved_wins_over_what_is_built_in() {
    let saved = TopicConfigTable {
        data_version: DataVersion { counter: 9, state_version: 0, timestamp: 5 },
        topic_config_table: BTreeMap::from([
            (text("TBW102"), TopicConfig { perm: 6, ..TopicConfig::default() }),
            (text("Mine"), TopicConfig::default()),
        ]),
        ..TopicConfigTable::default()
    };
    let table = TopicTable::new(saved, rules());
    assert_eq!(table.get("TBW102").unwrap().perm, 6);
    assert_eq!(table.get("Mine").unwrap().topic_name, "Mine", "old files name it by its key only");
    assert_eq!(table.version().counter, 9);
    assert!(table.get("SELF_TEST_TOPIC").is_some());
}

#[test]
fn a_topic_is_made_after_its_template() {
    let mut table = table();
    let made = table.create_from(&text("T"), "TBW102", 8, 77).unwrap();
    assert_eq!((made.read_queue_nums, made.write_queue_nums, made.perm), (4, 4, 6));
    assert_eq!(table.version(), DataVersion { counter: 1, state_version: 0, timestamp: 77 });
    assert_eq!(table.create_from(&text("U"), "TBW102", 2, 78).unwrap().read_queue_nums, 2);
    assert_eq!(table.create_from(&text("V"), "TBW102", -3, 78).unwrap().read_queue_nums, 0);
    let again = table.create_from(&text("T"), "TBW102", 1, 99).unwrap();
    assert!(Arc::ptr_eq(&made, &again), "it exists");
    assert_eq!(table.version().counter, 3);
}

#[test]
fn a_template_must_exist_and_be_one() {
    let mut table = table();
    for template in ["Nobody", "SELF_TEST_TOPIC", ""] {
        let refusal = table.create_from(&text("T"), template, 8, 0).unwrap_err();
        assert_eq!(refusal.code, ResponseCode::TOPIC_NOT_EXIST);
        assert!(refusal.remark.starts_with("topic[T] not exist, apply first please!"));
    }
    assert!(table.create_from(&text("a.b"), "TBW102", 8, 0).is_err());
    assert_eq!(table.version().counter, 0);
}

#[test]
fn without_automatic_topics_only_other_templates_serve() {
    let manual = TopicRules { auto_create: false, ..rules() };
    let mut table = TopicTable::new(table().snapshot().table(), manual.clone());
    assert!(table.get("TBW102").is_some(), "left from before");
    assert!(table.create_from(&text("T"), "TBW102", 8, 0).is_err());
    assert_eq!(table.create_from(&text("T"), "GoldCluster", 8, 0).unwrap().read_queue_nums, 8);
    assert!(TopicTable::new(TopicConfigTable::default(), manual).get("TBW102").is_none());
}

fn wanted(topic: &str, queue_nums: i32, sys_flag: i32, order: bool) -> EnsureGroupTopic {
    EnsureGroupTopic { topic: text(topic), queue_nums, sys_flag, order }
}

#[test]
fn a_topic_of_a_group_needs_no_template() {
    let mut table = table();
    let made = table.create_for_group(&wanted("%RETRY%g", 2, 1, true), 5).unwrap();
    assert_eq!((made.read_queue_nums, made.perm, made.topic_sys_flag, made.order), (2, 6, 1, true));
    let dead = table.create_for_group(&wanted("%DLQ%g", 0, 0, false), 5).unwrap();
    assert_eq!((dead.write_queue_nums, dead.order), (1, false));
    assert!(table.create_for_group(&wanted(&"x".repeat(255), 1, 0, false), 5).is_ok());
    assert!(table.create_for_group(&wanted(&"x".repeat(256), 1, 0, false), 5).is_err());
}

#[test]
fn each_topic_that_is_put_moves_the_version() {
    let mut table = table();
    put(&mut table, "T", 3, 1);
    put(&mut table, "T", 5, 3);
    assert_eq!(table.get("T").unwrap().read_queue_nums, 5);
    assert_eq!(table.version(), DataVersion { counter: 2, state_version: 0, timestamp: 3 });
}

#[test]
fn a_list_with_a_name_that_is_not_allowed_or_stands_twice_is_refused() {
    let table = table();
    let check = |names: &[&str]| {
        let changes: Vec<_> = names.iter().map(|name| change(name, 1)).collect();
        table.check_names(&changes).map_err(|refusal| refusal.remark)
    };
    assert_eq!(check(&["T", "U"]), Ok(()));
    assert_eq!(check(&["T", "U", "T"]), Err("the topic T stands twice in the list".to_owned()));
    assert_eq!(check(&["T", "TBW102"]).unwrap_err(), "The topic[TBW102] is conflict with system topic.");
    assert!(check(&["T", "a.b"]).is_err());
    assert_eq!(check(&[""]).unwrap_err(), "The specified topic is blank.");
}

#[test]
fn a_full_table_refuses_what_is_new_with_its_limit_and_serves_what_is_there() {
    let mut table = table();
    table.topics_max = table.iter().count() + 2;
    let (has, limit) = (table.topics_max - 1, table.topics_max);
    put(&mut table, "T", 3, 1);
    let two = table.check_names(&[change("U", 1), change("T", 1), change("V", 1)]).unwrap_err();
    assert_eq!(two.remark, format!("the broker has {has} topics, 2 more are not made: limit {limit}"));
    assert!(table.create_from(&text("U"), "TBW102", 8, 2).is_ok(), "the last one");
    let full = format!("the broker has {limit} topics, 1 more are not made: limit {limit}");
    let refusals = [
        table.create_from(&text("V"), "TBW102", 8, 3).unwrap_err(),
        table.create_for_group(&wanted("%RETRY%g", 1, 0, false), 3).unwrap_err(),
        table.check_names(&[change("V", 1)]).unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!((refusal.code, refusal.remark), (ResponseCode::SYSTEM_ERROR, full.clone()));
    }
    assert!(
        table.create_from(&text("U"), "TBW102", 8, 4).is_ok() && table.check_names(&[change("T", 5)]).is_ok()
    );
    assert_eq!((table.iter().count(), table.version().counter), (limit, 2));
    assert!(table.delete("T", 5).unwrap().is_some());
    assert!(table.create_from(&text("V"), "TBW102", 8, 6).is_ok(), "there is room again");
}

#[test]
fn what_is_the_systems_own_is_neither_changed_nor_deleted() {
    let mut table = table();
    for topic in ["TBW102", "GoldCluster", "broker-a", "rmq_sys_x", "TRANS_CHECK_MAX_TIME_TOPIC"] {
        let refusal = table.check_names(&[change(topic, 3)]).unwrap_err();
        assert_eq!(refusal.remark, format!("The topic[{topic}] is conflict with system topic."));
        assert_eq!(refusal.code, ResponseCode::INVALID_PARAMETER);
        assert_eq!(table.delete(topic, 1).unwrap_err(), refusal);
    }
    assert_eq!(table.delete("", 1).unwrap_err().remark, "The specified topic is blank.");
    assert_eq!(table.version().counter, 0);
}

#[test]
fn a_deleted_topic_is_gone_and_moves_the_version() {
    let mut table = table();
    put(&mut table, "T", 3, 1);
    assert!(table.delete("T", 2).unwrap().is_some());
    assert!(table.delete("T", 3).unwrap().is_none());
    assert!(table.get("T").is_none());
    assert_eq!(table.version(), DataVersion { counter: 2, state_version: 0, timestamp: 2 });
}

#[test]
fn a_broker_that_may_not_write_registers_topics_that_may_not() {
    let table = table();
    let registered = table.snapshot().registered(PERM_READ);
    assert_eq!(registered.topic_config_table["TBW102"].perm, PERM_READ);
    let free = table.snapshot().registered(PERM_READ | PERM_WRITE);
    assert_eq!(free.topic_config_table["TBW102"].perm, 7);
    assert_eq!(free, table.snapshot().told());
    let some = table.snapshot_of(&[text("TBW102"), text("Gone")]).registered(PERM_READ | PERM_WRITE);
    assert_eq!(some.topic_config_table.keys().collect::<Vec<_>>(), ["TBW102"]);
    assert_eq!(some.data_version, table.version());
}
