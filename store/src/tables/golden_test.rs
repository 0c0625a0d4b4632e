//! Every table that Java wrote is read, and what is written means the same.
//!
//! Invariants:
//! - nothing but the derived fields may differ between what was read and what is written.

use std::path::Path;

use serde_json::Value;

use troupemq_codec::loose_json::from_loose;

use super::*;
use crate::testing::{GOLDEN_SETS, GoldenStore};

/// Reads the table and its old generation; writes both; answers the table if the set has it.
fn round_trip<T: Table + PartialEq + std::fmt::Debug>(dir: &Path) -> Option<T> {
    let path = dir.join("config").join(T::FILE);
    let java = std::fs::read(&path).ok()?;
    let mut wanted: Value = from_loose(&java).unwrap();
    for derived in T::DERIVED {
        wanted.as_object_mut().unwrap().remove(*derived);
    }
    let (file, table) = TableFile::<T>::open(dir).unwrap();
    assert!(file.unknown.is_empty(), "{}: {:?}", path.display(), file.unknown);
    let ours = file.encode(&table);
    assert_eq!(from_loose::<Value>(&ours).unwrap(), wanted, "{}", path.display());
    if T::FORM == Form::Compact {
        assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(java.clone()).unwrap());
    }
    file.save(&table).unwrap();
    assert_eq!(TableFile::<T>::open(dir).unwrap().1, table);
    let mut old = path.into_os_string();
    old.push(".bak");
    assert_eq!(std::fs::read(old).unwrap(), java);
    Some(table)
}

#[test]
fn every_table_of_every_set_keeps_its_meaning() {
    for set in GOLDEN_SETS {
        let store = GoldenStore::unpack(set);
        let dir = store.dir();
        let topics = round_trip::<TopicConfigTable>(&dir).unwrap();
        assert!(topics.topic_config_table.contains_key("TBW102"), "{set}");
        round_trip::<SubscriptionGroupTable>(&dir);
        round_trip::<ConsumerOffsetTable>(&dir).unwrap();
        round_trip::<DelayOffsetTable>(&dir).unwrap();
        round_trip::<ConsumerFilterTable>(&dir).unwrap();
        round_trip::<ConsumerOrderTable>(&dir).unwrap();
        round_trip::<RequestModeTable>(&dir);
        round_trip::<TimerMetricsTable>(&dir).unwrap();
        round_trip::<TransactionMetricsTable>(&dir).unwrap();
    }
}

#[test]
fn the_numbers_are_those_of_java() {
    let dir = |set| GoldenStore::unpack(set);
    let delivery = dir("delivery-clean");
    let offsets = TableFile::<ConsumerOffsetTable>::open(&delivery.dir()).unwrap().1;
    assert_eq!(offsets.offset_table["GoldTx@cg_tag"], [(0, 3), (1, 2)].into());
    assert_eq!(offsets.offset_table["GoldBroadcast@cg_broadcast@broadcast"], [(0, 3), (1, 2)].into());
    let delays = TableFile::<DelayOffsetTable>::open(&delivery.dir()).unwrap().1;
    assert_eq!(delays.offset_table, [(1, 14), (2, 1), (3, 4), (5, 0), (10, 0), (18, 0)].into());
    let groups = TableFile::<SubscriptionGroupTable>::open(&delivery.dir()).unwrap().1;
    let custom = &groups.subscription_group_table["cg_custom"].group_retry_policy;
    assert_eq!(custom.customized_retry_policy.as_ref().unwrap().next, [1000, 5000, 60_000]);
    let metrics = TableFile::<TimerMetricsTable>::open(&delivery.dir()).unwrap().1;
    assert_eq!(metrics.timing_count["GoldDelay"].count, 4);

    let pop = dir("pop");
    let order = TableFile::<ConsumerOrderTable>::open(&pop.dir()).unwrap().1;
    let out = &order.table["GoldPop@cg_pop_order"][&1];
    assert_eq!((out.acked, out.invisible_ms, &out.queue_offsets[..]), (1, Some(3000), &[0, 1, 2][..]));
    assert_eq!(out.visible_at_ms.as_ref().unwrap()[&1], 1_795_967_921_047);
    let modes = TableFile::<RequestModeTable>::open(&pop.dir()).unwrap().1;
    assert_eq!(modes.message_request_mode_map["GoldPopPush"]["cg_poppush"].pop_share_queue_num, 0);

    let filters = TableFile::<ConsumerFilterTable>::open(&dir("batch-cq").dir()).unwrap().1;
    let filter = &filters.filter_data_by_topic["GoldSql"].group_filter_data["cg_sql_1"];
    assert_eq!(filter.expression.as_str(), "price > 30");
    assert_eq!(filter.bloom_filter_data.as_ref().unwrap().bit_pos, [23, 66, 109]);
}

#[test]
fn a_field_of_a_later_version_survives_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config");
    std::fs::create_dir(&config).unwrap();
    let text =
        r#"{"topicConfigTable":{"A":{"perm":6,"topicName":"A","colour":"blue"},"B":{"colour":"red"}}}"#;
    std::fs::write(config.join("topics.json"), text).unwrap();
    let (file, mut table) = TableFile::<TopicConfigTable>::open(dir.path()).unwrap();
    table.topic_config_table.remove("B");
    table.topic_config_table.get_mut("A").unwrap().perm = 4;
    file.save(&table).unwrap();
    let saved: Value = from_loose(&std::fs::read(config.join("topics.json")).unwrap()).unwrap();
    let topics = saved["topicConfigTable"].as_object().unwrap();
    assert_eq!((topics["A"]["colour"].as_str(), topics["A"]["perm"].as_i64()), (Some("blue"), Some(4)));
    assert!(!topics.contains_key("B"));
}

#[test]
fn static_topics_are_read_in_javas_form() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("config")).unwrap();
    let text = r#"{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},
        "topicQueueMappingInfoMap":{"S1":{"bname":"broker-a","dirty":false,"epoch":1,"hostedQueues":{0:[
        {"bname":"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,
        "timeOfStart":-1}]},"scope":"__global__","topic":"S1","totalQueues":2}}}"#;
    std::fs::write(dir.path().join("config/topicQueueMapping.json"), text).unwrap();
    let table = round_trip::<TopicQueueMappingTable>(dir.path()).unwrap();
    assert_eq!(table.topic_queue_mapping_info_map["S1"].total_queues, 2);
}
